"""Ranges as files: WebVTT, SRT, CSV and JSON. Each is an iterator of text, one piece per range, so any length streams.

Ranges are written in the order in which they come; subtitles want them by `t_start`, as `merge` gives them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from .normalise import displayed
from .records import Range

ExportFormat = Literal["vtt", "srt", "csv", "json"]

_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1_000, 60_000, 3_600_000
_JOINER = "\u2060"  # no width, and `normalised` takes it out again
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
_COLUMNS = ("start", "end", "t_start_ms", "t_end_ms", "text", "confidence", "language", "x", "y", "width", "height")


def webvtt(ranges: Iterable[Range]) -> Iterator[str]:
    """One cue per range. `&`, `<` and `>` are escaped, so no text can be taken for a tag or a time line."""
    yield "WEBVTT\n"
    for number, shown in enumerate(ranges, 1):
        text = displayed(shown.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield f"\n{number}\n{_times(shown, '.')}\n{text}\n"


def srt(ranges: Iterable[Range]) -> Iterator[str]:
    """One cue per range. SRT has no escapes: a character without width keeps text from being taken for a tag."""
    for number, shown in enumerate(ranges, 1):
        text = displayed(shown.text).replace("-->", f"--{_JOINER}>").replace("<", f"<{_JOINER}")
        text = text.replace("{", f"{{{_JOINER}")
        yield f"{number}\n{_times(shown, ',')}\n{text}\n\n"


def comma_separated(ranges: Iterable[Range]) -> Iterator[str]:
    """RFC 4180 with a header. Text that a spreadsheet would run as a formula begins with an apostrophe."""
    yield _row(_COLUMNS)
    for shown in ranges:
        clock = (_clock(shown.t_start, "."), _clock(shown.t_end, "."))
        facts = (f"{shown.confidence:.4f}", shown.language or "")
        yield _row((*clock, shown.t_start, shown.t_end, _inert(displayed(shown.text)), *facts, *shown.box))


def as_json(ranges: Iterable[Range]) -> Iterator[str]:
    """`{"segments": [...]}`, with all that is known of each range."""
    yield '{"segments": ['
    for number, shown in enumerate(ranges):
        fields = shown._asdict() | {"bounding_box": dict(zip(("x", "y", "width", "height"), shown.box, strict=True))}
        yield (",\n" if number else "\n") + json.dumps(fields, ensure_ascii=False)
    yield "\n]}\n"


WRITERS: dict[ExportFormat, Callable[[Iterable[Range]], Iterator[str]]] = {
    "vtt": webvtt,
    "srt": srt,
    "csv": comma_separated,
    "json": as_json,
}
MEDIA_TYPES: dict[ExportFormat, str] = {
    "vtt": "text/vtt; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "csv": "text/csv; charset=utf-8; header=present",
    "json": "application/json",
}


def _times(shown: Range, point: str) -> str:
    """A cue that ends when it begins is shown by no player, so each has a millisecond at least."""
    return f"{_clock(shown.t_start, point)} --> {_clock(max(shown.t_end, shown.t_start + 1), point)}"


def _clock(time_ms: int, point: str) -> str:
    hours, rest = divmod(max(0, time_ms), _HOUR_MS)
    minutes, rest = divmod(rest, _MINUTE_MS)
    seconds, millis = divmod(rest, _SECOND_MS)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{millis:03}"


def _inert(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _row(cells: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()
