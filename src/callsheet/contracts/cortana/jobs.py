"""New jobs of the contract. Routes, the scanner and the command line enqueue them without importing the stages."""

from __future__ import annotations

from collections.abc import Mapping

from callsheet.engine.ids import new_id
from callsheet.kernel.job import NewJob
from callsheet.kernel.wire import encode

from . import paths
from .parts import CONTRACT

NAME = "video"
PIPELINE = ("transcode", "sample", "ocr", "segment_index")
CLIP = "clip_generate"
PADDING_MS = 2000


def start_job(video_id: str, owner_id: str, correlation_id: str = "") -> NewJob:
    """Return the first job of the pipeline. Enqueuing it again while it is queued or running returns the same job."""
    payload = {"video_id": video_id, "s3_original_path": paths.original(video_id)}
    return stage_job("transcode", video_id, owner_id, payload, correlation_id)


def stage_job(
    stage: str, video_id: str, owner_id: str, payload: Mapping[str, object], correlation_id: str = ""
) -> NewJob:
    """Return the job of one stage; the pipeline continues with the later stages."""
    return NewJob(
        new_id(),
        f"{NAME}.{stage}",
        encode(payload),
        requester_id=owner_id,
        contract=CONTRACT,
        retry=CONTRACT,
        unique_key=f"{NAME}:{video_id}:{stage}",
        correlation_id=correlation_id or video_id,
    )


def clip_job(video_id: str, clip_id: str, span: tuple[int, int], padding_ms: int, owner_id: str) -> NewJob:
    """Return the job of a clip. Several clips of one video may be cut in parallel."""
    payload = {
        "video_id": video_id,
        "clip_id": clip_id,
        "t_start": span[0],
        "t_end": span[1],
        "padding_ms": padding_ms,
        "s3_original_path": paths.original(video_id),
    }
    return NewJob(
        new_id(),
        f"{NAME}.{CLIP}",
        encode(payload),
        requester_id=owner_id,
        contract=CONTRACT,
        retry=CONTRACT,
        correlation_id=video_id,
    )
