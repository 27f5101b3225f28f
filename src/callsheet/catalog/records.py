"""The catalogue's records. Times within a video and of the clock are milliseconds; JSON is text."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

Json = str
ENTITY_TYPES = ("mention", "hashtag", "url", "emoji", "number")


class VideoStatus(StrEnum):
    """How far a video is."""

    UPLOADING = "uploading"
    QUEUED = "queued"
    PROCESSING = "processing"
    READY = "ready"
    FAILED = "failed"


class Reader(NamedTuple):
    """Who reads: his own rows and those of his teams. `sees_all` is for the service itself and for administrators."""

    owner_id: str = ""
    team_ids: tuple[str, ...] = ()
    sees_all: bool = False


SERVICE = Reader(sees_all=True)


class Writer(NamedTuple):
    """The attempt that writes. Of two of one job the later claim is the later writer.

    Of two jobs it is the one that the job store took later: `created_at` is that store's clock. Where one has none
    their ids decide, which grow with the clocks of those that made them.
    """

    job_id: str
    claim_version: int
    created_at: int = 0


class Box(NamedTuple):
    """Where a text is on the picture, in pixels of the original."""

    x: int
    y: int
    width: int
    height: int


class Video(NamedTuple):
    """A row of `videos`. `options` are what its owner chose for its stages (languages, target_fps and so on).

    `jobs` has for each stage the id of its latest job, from the moment it began.
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
    """What a stage found out about a video; None leaves a column as it is."""

    s3_proxy_path: str | None = None
    s3_thumb_path: str | None = None
    size_bytes: int | None = None
    duration_ms: int | None = None
    width: int | None = None
    height: int | None = None
    fps: float | None = None
    coverage: Json | None = None


class NewSegment(NamedTuple):
    """A text and when it is on screen: a raw detection of one frame, or a merged range."""

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
    """A row of `entities`, with when its segment is on screen."""

    entity_id: str
    segment_id: str
    video_id: str
    entity_type: str
    value: str
    normalized_value: str
    t_start: int
    t_end: int


class Clip(NamedTuple):
    """A clip somebody asked for. `expires_at` is when it is removed; `actual_*` are None until it was cut."""

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
    """Which videos are asked for, newest first; `before` is the last id of the page before."""

    limit: int = 50
    before: str | None = None
    status: VideoStatus | None = None
    text: str = ""
