"""New ids. Job ids are UUIDs of version 7: they rise with time, so indexes grow at one end."""

from __future__ import annotations

import os
import time


def new_id() -> str:
    """A fresh UUIDv7 in its usual form."""
    ms = time.time_ns() // 1_000_000
    chance = int.from_bytes(os.urandom(10))
    value = ms << 80 | 0x7 << 76 | (chance >> 62 & 0xFFF) << 64 | 0b10 << 62 | chance & ((1 << 62) - 1)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
