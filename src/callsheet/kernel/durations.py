"""Parse lengths of time as people write them: `10`, `0.5`, `"500ms"`, `"10m"`, `"1h30m"`, or a timedelta."""

from __future__ import annotations

import re
from typing import Protocol

from .errors import InvalidInput

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")


class _HasSeconds(Protocol):
    def total_seconds(self) -> float: ...


Duration = float | str | _HasSeconds


def seconds(duration: Duration) -> float:
    """Return a duration in seconds, zero or more; a bare number means seconds. Raises InvalidInput."""
    if isinstance(duration, str):
        value = _read(duration)
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        value = float(duration)
    elif hasattr(duration, "total_seconds"):
        value = duration.total_seconds()
    else:
        raise _wrong(duration)
    if not 0 <= value < float("inf"):
        raise _wrong(duration)
    return value


def milliseconds(duration: Duration) -> int:
    """Return a duration in whole milliseconds, the unit of the stores; raises InvalidInput."""
    return round(seconds(duration) * 1000)


def _read(text: str) -> float:
    plain = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", plain):
        return float(plain)
    if not plain or _PART.sub("", plain):
        raise _wrong(text)
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(plain))


def _wrong(duration: object) -> InvalidInput:
    return InvalidInput(f"{duration!r} is no duration; write seconds (10, 0.5) or units: 500ms, 30s, 10m, 1h30m, 2d")
