"""Records of the catalogue, and their conversion from and to rows, whose columns have the order of the fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

Json = str
ENTITY_TYPES = ("mention", "hashtag", "url", "emoji", "number")


class VideoStatus(StrEnum):
    """The pipeline state of a video."""

    UPLOADING = "uploading"
    QUEUED = "queued"
    PROCESSING = "processing"
    READY = "ready"
    FAILED = "failed"


class Reader(NamedTuple):
    """The identity behind a read, which sees rows of its owner and teams. `sees_all` is for the service and admins."""

    owner_id: str = ""
    team_ids: tuple[str, ...] = ()
    sees_all: bool = False


SERVICE = Reader(sees_all=True)


class Writer(NamedTuple):
    """The job attempt that writes a video. Of two attempts of one job, the later claim is the later writer.

    Of two jobs, the one with the later `created_at`, by the job store's clock, is the later writer. If either has
    none, the greater job id is later: ids grow with the clock of the machine that generated them.
    """

    job_id: str
    claim_version: int
    created_at: int = 0


class Box(NamedTuple):
    """The bounding box of a text in the picture, in pixels of the original video."""

    x: int
    y: int
    width: int
    height: int


class Video(NamedTuple):
    """A row of `videos`. `options` holds the owner's settings for the stages (languages, target_fps and so on).

    `jobs` maps each stage to the id of its latest job, from the start of that job.
    """

    video_id: str
    owner_id: str
    team_id: str | None
    title: str
    status: VideoStatus
    s3_original_path: str
    s3_proxy_path: str | None = None
    s3_thumb_path: str | None = None
    size_bytes: int | None = None
    duration_ms: int | None = None
    width: int | None = None
    height: int | None = None
    fps: float | None = None
    coverage: Json = "{}"
    options: Json = "{}"
    jobs: Json = "{}"
    error: Json | None = None
    created_at: int = 0
    updated_at: int = 0


class VideoFacts(NamedTuple):
    """Facts that a stage measured about a video; None keeps a column's value."""

    s3_proxy_path: str | None = None
    s3_thumb_path: str | None = None
    size_bytes: int | None = None
    duration_ms: int | None = None
    width: int | None = None
    height: int | None = None
    fps: float | None = None
    coverage: Json | None = None


class NewSegment(NamedTuple):
    """A text with its times on screen: a raw detection of one frame, or a merged range of frames."""

    segment_id: str
    t_start: int
    t_end: int
    text: str
    normalized_text: str
    text_hash: str
    confidence: float
    bounding_box: Box
    language: str | None
    is_merged: bool = False
    seen: int = 1


class NewEntity(NamedTuple):
    """A mention, hashtag, URL, emoji or number in a segment."""

    entity_id: str
    segment_id: str
    entity_type: str
    value: str
    normalized_value: str


class Segment(NamedTuple):
    """A row of `segments`."""

    segment_id: str
    video_id: str
    owner_id: str
    team_id: str | None
    t_start: int
    t_end: int
    text: str
    normalized_text: str
    text_hash: str
    confidence: float
    bounding_box: Box
    language: str | None
    is_merged: bool
    seen: int


class Entity(NamedTuple):
    """A row of `entities`, with the start and end of its segment."""

    entity_id: str
    segment_id: str
    video_id: str
    entity_type: str
    value: str
    normalized_value: str
    t_start: int
    t_end: int


class Clip(NamedTuple):
    """A row of `clips`. The fields `actual_*` are None before the clip is cut. It is deleted after `expires_at`."""

    clip_id: str
    video_id: str
    owner_id: str
    team_id: str | None
    job_id: str
    t_start: int
    t_end: int
    padding_ms: int
    s3_path: str
    actual_start: int | None = None
    actual_end: int | None = None
    created_at: int = 0
    expires_at: int | None = None


class VideoPage(NamedTuple):
    """A request for a page of videos, newest first; `before` is the last id of the previous page."""

    limit: int = 50
    before: str | None = None
    status: VideoStatus | None = None
    text: str = ""


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
    content = json.loads(text)
    sides = content if isinstance(content, dict) else {}
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
