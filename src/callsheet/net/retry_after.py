"""The header Retry-After of a response."""

from __future__ import annotations

import math
import re
from email.utils import parsedate_to_datetime

IS_NUMBER = re.compile(r"\d{1,300}(\.\d*)?", re.ASCII).fullmatch


def retry_after_s(text: str, now_s: float | None = None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date, never below 0; None if unreadable.

    `now_s` is the current Unix time; without it a date counts as unreadable. The caller sets an upper limit.
    """
    text = text.strip()
    if IS_NUMBER(text):
        return float(text)
    if now_s is None:
        return None
    try:
        wait_s = parsedate_to_datetime(text).timestamp() - now_s
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0.0, wait_s) if math.isfinite(wait_s) else None
