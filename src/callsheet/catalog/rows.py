"""Conversion between rows and records. Columns have the order of the records' fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .records import Box, Json, NewSegment, Segment, Video, VideoStatus

MOST_PX = 1 << 31
_STATUS = Video._fields.index("status")
_BOX = Segment._fields.index("bounding_box")
_MERGED = Segment._fields.index("is_merged")


def video_of(row: Sequence[Any]) -> Video:
    """Return the Video record of a row."""
    fields = list(row)
    fields[_STATUS] = VideoStatus(fields[_STATUS])
    return Video._make(fields)


def segment_of(row: Sequence[Any]) -> Segment:
    """Return the Segment record of a row."""
    fields = list(row)
    fields[_BOX] = box_of(fields[_BOX])
    fields[_MERGED] = bool(fields[_MERGED])
    return Segment._make(fields)


def box_of(text: Json) -> Box:
    """Return the Box of a JSON text in whole pixels. A worker may have written it by SQL: non-numbers become 0."""
    told = json.loads(text)
    sides = told if isinstance(told, dict) else {}
    return Box(*(_pixels(sides.get(side)) for side in Box._fields))


def _pixels(number: object) -> int:
    return round(min(max(number, -MOST_PX), MOST_PX)) if isinstance(number, int | float) else 0


def box_json(box: Box) -> Json:
    """Return a box as JSON, in the form of the contract."""
    return f'{{"x":{int(box.x)},"y":{int(box.y)},"width":{int(box.width)},"height":{int(box.height)}}}'


def segment_row(s: NewSegment, video_id: str, owner_id: str, team_id: str | None) -> tuple[Any, ...]:
    """Return the row of `segments` for a new segment."""
    head = (s.segment_id, video_id, owner_id, team_id, s.t_start, s.t_end, s.text, s.normalized_text, s.text_hash)
    return (*head, s.confidence, box_json(s.bounding_box), s.language, s.is_merged, s.seen)
