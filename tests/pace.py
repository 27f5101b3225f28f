"""Limits of time that tests hold the program to."""

from __future__ import annotations

import os

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
BESIDE_S = 8.0


def within(promised_s: float) -> float:
    """The limit of a promise: as promised in a deep run on a quiet machine, else with room for what runs beside.

    What a test would see without the promise must take longer than that, or it proves nothing.
    """
    return promised_s if DEEP else promised_s + BESIDE_S
