"""The catalogue's records. Times within a video and of the clock are milliseconds; JSON is text."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

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
