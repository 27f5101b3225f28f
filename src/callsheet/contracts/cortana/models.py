"""Request and answer models of the video routes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from callsheet.api.uploads import UploadBody
from callsheet.catalog.records import Clip, Segment, Video
from callsheet.catalog.search.records import Found, Hit
from callsheet.kernel.contracts import CORTANA
from callsheet.kernel.job import Job, Status
from callsheet.media.ocr.tessdata import is_known

from . import paths
from .outcomes import type_of

Milliseconds = Annotated[int, Field(ge=0, le=10**10, strict=True)]


def _error_code(code: str) -> str:
    if not is_known(code):
        raise ValueError(f"{code!r} is no language of Tesseract; its codes are like eng, deu, fra or chi_sim")
    return code


Language = Annotated[str, Field(pattern=r"^[A-Za-z_]{2,20}$"), AfterValidator(_error_code)]
Export = Literal["vtt", "srt", "csv", "json"]


class Options(BaseModel):
    """Stage options of a video; missing options use the contract's defaults."""

    model_config = ConfigDict(extra="forbid")

    languages: Annotated[list[Language], Field(min_length=1, max_length=10)] | None = None
    min_confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    target_fps: Annotated[int | float, Field(gt=0, le=60)] | None = None
    dedupe_threshold: Annotated[float, Field(ge=0.5, le=1)] | None = None


class NewVideo(BaseModel):
    """A new video: `size` and `name` of the file to upload, or `upload_id` of a completed upload."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"title": "Launch", "name": "launch.mp4", "size": 48_000_000}]},
    )

    title: Annotated[str, Field(max_length=500)] = ""
    name: Annotated[str, Field(max_length=255)] = "master.mp4"
    size: Annotated[int, Field(ge=1, le=1024**4, strict=True)] | None = None
    upload_id: Annotated[str, Field(max_length=64)] | None = None
    content_type: Annotated[str, Field(max_length=255)] = "video/mp4"
    team_id: Annotated[str, Field(max_length=255)] | None = None
    options: Options = Field(default_factory=Options)

    @model_validator(mode="after")
    def _one_of_both(self) -> NewVideo:
        if (self.size is None) == (self.upload_id is None):
            raise ValueError("give either `size`, to upload the file now, or the `upload_id` of one that is complete")
        return self


class Again(BaseModel):
    """The first stage to run again."""

    model_config = ConfigDict(extra="forbid")

    stage: Literal["transcode", "sample", "ocr", "segment_index"] = "segment_index"


class ClipRequest(BaseModel):
    """A part of a video, in milliseconds. `padding_ms` extends both sides. Send the fields as body or as query."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"video_id": "…", "t_start": 1500, "t_end": 3000}]}
    )

    video_id: Annotated[
        str, StringConstraints(pattern=r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$", to_lower=True)
    ]
    t_start: Milliseconds
    t_end: Milliseconds
    padding_ms: Annotated[int, Field(ge=0, le=600_000, strict=True)] = 2000
    clip_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")] | None = None
    s3_original_path: Annotated[str, Field(description="As in the job's payload; there is only this one.")] | None = (
        None
    )

    @model_validator(mode="after")
    def _in_order(self) -> ClipRequest:
        if self.s3_original_path not in (None, paths.original(self.video_id)):
            raise ValueError("s3_original_path is that of the video, or left out")
        if self.t_end <= self.t_start:
            raise ValueError("t_end must be after t_start")
        return self


class VideoBody(BaseModel):
    """A video. `jobs` names the latest job of each stage; the URLs are paths on this server."""

    video_id: str
    title: str
    status: Literal["uploading", "queued", "processing", "ready", "failed"]
    owner_id: str
    team_id: str | None
    s3_original_path: str
    s3_proxy_path: str | None
    s3_thumb_path: str | None
    size_bytes: int | None
    duration_ms: int | None
    width: int | None
    height: int | None
    fps: float | None
    coverage: dict[str, Any]
    options: dict[str, Any]
    jobs: dict[str, str]
    error: dict[str, Any] | None
    created_at: int
    updated_at: int
    playlist_url: str | None
    poster_url: str | None


class VideoList(BaseModel):
    """A page of videos, newest first."""

    videos: list[VideoBody]
    next: str | None = Field(description="Send it as `before` for the next page.")


class Added(BaseModel):
    """The new video, with the upload of its file or the job already processing it."""

    video: VideoBody
    upload: UploadBody | None = None
    job_id: str | None = None


class Started(BaseModel):
    """The newly started job, or the existing one."""

    video_id: str
    job_id: str
    status: Literal["queued", "processing", "done", "failed"] = "queued"


class SegmentBody(BaseModel):
    """A text and its time on screen."""

    segment_id: str
    t_start: int
    t_end: int
    text: str
    confidence: float
    bounding_box: dict[str, int]
    language: str | None


class SegmentList(BaseModel):
    """All texts of a video by time."""

    video_id: str
    segments: list[SegmentBody]


class EntityBody(BaseModel):
    """A mention, hashtag, URL, emoji or number."""

    entity_id: str
    segment_id: str
    entity_type: str
    value: str
    normalized_value: str
    t_start: int
    t_end: int


class EntityList(BaseModel):
    """All entities of a video by time."""

    video_id: str
    entities: list[EntityBody]


class MarkBody(BaseModel):
    """Matched characters of the text. `matched_as` is exact, folded, fuzzy, prefix or substring."""

    start: int
    end: int
    matched_as: str


class HitBody(BaseModel):
    """A matching text. `play_url` opens the video at that time; `thumbnail_url` is the text's key frame."""

    segment_id: str
    video_id: str
    title: str
    t_start: int
    t_end: int
    text: str
    marks: list[MarkBody]
    bounding_box: dict[str, int]
    confidence: float
    language: str | None
    score: float
    play_url: str
    thumbnail_url: str


class FoundBody(BaseModel):
    """A page of hits, best first."""

    hits: list[HitBody]
    next: str | None = Field(description="Send it as `cursor` for the next page.")
    total: int
    total_is_exact: bool
    per_video: dict[str, int]
    expanded: dict[str, list[str]] = Field(description="What each word was taken for beside itself.")


class SuggestionBody(BaseModel):
    """A word and the number of texts containing it."""

    word: str
    segments: int


class SuggestionList(BaseModel):
    """Words with the requested prefix."""

    suggestions: list[SuggestionBody]


class ClipReceipt(BaseModel):
    """The requested clip and its job."""

    clip_id: str
    status: str
    job_id: str


class ClipBody(BaseModel):
    """A clip. `status` is the job's status in the contract's words; `url` is null until the clip is done."""

    clip_id: str
    video_id: str
    job_id: str
    status: str
    t_start: int
    t_end: int
    padding_ms: int
    actual_start: int | None
    actual_end: int | None
    s3_path: str
    url: str | None
    expires_at: int | None


class ClipList(BaseModel):
    """The clips of a video, newest first."""

    clips: list[ClipBody]


class PipelineJob(BaseModel):
    """A job in the contract's words. For a failed job, `payload` holds the error and the original payload."""

    id: str
    video_id: str | None
    job_type: str
    status: Literal["queued", "processing", "done", "failed"]
    payload: dict[str, Any]
    retry_count: int
    created_at: str
    updated_at: str


class PipelineJobs(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[PipelineJob]
    next: str | None


def video_body(video: Video) -> dict[str, Any]:
    """Return a video as the JSON of an answer."""
    body = {
        **video._asdict(),
        "coverage": json.loads(video.coverage),
        "options": json.loads(video.options),
        "jobs": json.loads(video.jobs),
        "error": json.loads(video.error) if video.error else None,
    }
    base = f"/videos/{video.video_id}"
    body["playlist_url"] = f"{base}/hls/index.m3u8" if video.s3_proxy_path else None
    body["poster_url"] = f"{base}/poster.jpg" if video.s3_thumb_path else None
    return body


def segment_body(segment: Segment) -> dict[str, Any]:
    """Return a segment as the JSON of an answer."""
    return {
        "segment_id": segment.segment_id,
        "t_start": segment.t_start,
        "t_end": segment.t_end,
        "text": segment.text,
        "confidence": round(segment.confidence, 4),
        "bounding_box": segment.bounding_box._asdict(),
        "language": segment.language,
    }


def found_body(results: Found) -> dict[str, Any]:
    """Return search results as the JSON of an answer."""
    return {
        "hits": [_hit_body(hit) for hit in results.hits],
        "next": results.cursor,
        "total": results.total,
        "total_is_exact": results.total_is_exact,
        "per_video": results.per_video,
        "expanded": {word: list(words) for word, words in results.expanded.items()},
    }


def _hit_body(hit: Hit) -> dict[str, Any]:
    return {
        "segment_id": hit.segment_id,
        "video_id": hit.video_id,
        "title": hit.title,
        "t_start": hit.t_start,
        "t_end": hit.t_end,
        "text": hit.text,
        "marks": [mark._asdict() for mark in hit.marks],
        "bounding_box": hit.box._asdict(),
        "confidence": round(hit.confidence, 4),
        "language": hit.language,
        "score": hit.score,
        "play_url": f"/studio/videos/{hit.video_id}?t={hit.t_start}",
        "thumbnail_url": f"/videos/{hit.video_id}/frames/at/{hit.t_start}.jpg",
    }


def clip_body(clip: Clip, status: str) -> dict[str, Any]:
    """Return a clip as the JSON of an answer."""
    body: dict[str, Any] = {name: getattr(clip, name, None) for name in ClipBody.model_fields}
    return {**body, "status": status, "url": f"/clips/{clip.clip_id}/file" if status == "done" else None}


def pipeline_job(job: Job) -> dict[str, Any]:
    """Return a job in the contract's words; a failed job's error is placed inside `payload`, as in the contract."""
    payload: dict[str, Any] = json.loads(job.payload)
    shown, retries = payload, retries_of(job)
    status = CORTANA.word_of(job)
    if status == "failed":
        error = json.loads(job.error or "{}")
        if job.status is Status.CANCELED:
            error = {"code": "canceled", "message": job.cancel_reason or ""}
        by_sql = _by_sql(error)
        retries = by_sql.get("retry_count", retries)
        about = {
            "type": type_of(str(error.get("code", "error"))),
            "message": error.get("message", ""),
            "timestamp": _iso(job.ended_at or job.updated_at),
            "retry_count": retries_of(job),
            **by_sql.get("sql", {}),
        }
        shown = {"error": about, "original_payload": payload}
    return {
        "id": job.job_id,
        "video_id": payload.get("video_id"),
        "job_type": job.kind.rpartition(".")[2],
        "status": status,
        "payload": shown,
        "retry_count": retries,
        "created_at": _iso(job.created_at),
        "updated_at": _iso(job.updated_at),
    }


def _by_sql(error: dict[str, Any]) -> dict[str, Any]:
    """Return error details from a worker that writes by SQL: `sql` is its error verbatim, `retry_count` its count."""
    details = error.get("details")
    return details if isinstance(details, dict) and isinstance(details.get("sql"), dict) else {}


def retries_of(job: Job) -> int:
    """Return the number of retries, without the first attempt; a queued job's next attempt counts."""
    attempts = job.attempt_count if job.status is not Status.QUEUED else job.attempt_count + 1
    return max(0, attempts - 1)


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
