"""New jobs of the contract, for those who start the work without running it: routes, the scanner, the command line."""

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
    """The first job of the pipeline. While one is queued or runs, asking again gives that one."""
    payload = {"video_id": video_id, "s3_original_path": paths.original(video_id)}
    return stage_job("transcode", video_id, owner_id, payload, correlation_id)


def stage_job(
    stage: str, video_id: str, owner_id: str, payload: Mapping[str, object], correlation_id: str = ""
) -> NewJob:
    """The job of one stage, from which the pipeline goes on."""
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
    """A clip. Several of one video may be made at once."""
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
