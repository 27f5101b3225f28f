"""Export ranges as WebVTT, SRT, CSV and JSON. Each export is an iterator of text, so any length streams.

Ranges keep their order; subtitles need them sorted by `t_start`, as `merge` returns them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from .normalise import display_form
from .records import Range

ExportFormat = Literal["vtt", "srt", "csv", "json"]

_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1_000, 60_000, 3_600_000
_JOINER = "\u2060"  # zero-width; `normalized` removes it again
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
_COLUMNS = ("start", "end", "t_start_ms", "t_end_ms", "text", "confidence", "language", "x", "y", "width", "height")


def webvtt(ranges: Iterable[Range]) -> Iterator[str]:
    """Yield WebVTT with one cue per range. Escaping keeps text from becoming a tag or a time line."""
    yield "WEBVTT\n"
    for number, row in enumerate(ranges, 1):
        text = display_form(row.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield f"\n{number}\n{_times(row, '.')}\n{text}\n"


def srt(ranges: Iterable[Range]) -> Iterator[str]:
    """Yield SRT with one cue per range. SRT has no escapes, so zero-width characters keep text from becoming tags."""
    for number, row in enumerate(ranges, 1):
        text = display_form(row.text).replace("-->", f"--{_JOINER}>").replace("<", f"<{_JOINER}")
        text = text.replace("{", f"{{{_JOINER}")
        yield f"{number}\n{_times(row, ',')}\n{text}\n\n"


def comma_separated(ranges: Iterable[Range]) -> Iterator[str]:
    """Yield RFC 4180 CSV with a header. Text that a spreadsheet would run as a formula gets an apostrophe."""
    yield _row(_COLUMNS)
    for row in ranges:
        clock = (_clock(row.t_start, "."), _clock(row.t_end, "."))
        facts = (f"{row.confidence:.4f}", row.language or "")
        yield _row((*clock, row.t_start, row.t_end, _inert(display_form(row.text)), *facts, *row.box))


def as_json(ranges: Iterable[Range]) -> Iterator[str]:
    """Yield a JSON object whose `segments` array holds every range with all fields."""
    yield '{"segments": ['
    for number, row in enumerate(ranges):
        fields = row._asdict() | {"bounding_box": dict(zip(("x", "y", "width", "height"), row.box, strict=True))}
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


def _times(row: Range, point: str) -> str:
    """Return a cue's time line. Its length is at least a millisecond, since players hide empty cues."""
    return f"{_clock(row.t_start, point)} --> {_clock(max(row.t_end, row.t_start + 1), point)}"


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
