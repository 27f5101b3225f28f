"""`/clips`: cut a part of a video, and download the clip."""

from __future__ import annotations

import contextlib
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from callsheet.api.objects import object_response
from callsheet.catalog.records import Clip
from callsheet.engine.ids import new_id
from callsheet.http import problems
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.keys import Principal
from callsheet.http.object_access import objects_of
from callsheet.http.problems import Problem, of_faults
from callsheet.http.state import ServerState, state_of
from callsheet.kernel.contracts import CORTANA
from callsheet.kernel.errors import DuplicateJob, JobNotFound
from callsheet.kernel.job import NewJob

from . import paths
from .jobs import clip_job
from .models import ClipBody, ClipList, ClipReceipt, ClipRequest, clip_body
from .visibility import ALWAYS, BODY, MayRead, VideoId, catalog_of, reader_of, video_of

router = APIRouter(tags=["clips"])
ClipId = Annotated[str, Path(description="The clip's id.")]


@router.post(
    "/clips",
    status_code=202,
    summary="Cut a clip",
    response_model=ClipReceipt,
    openapi_extra=request_body(ClipRequest),
    responses=problems.responses(*ALWAYS, *BODY, "video_not_found", "invalid_range", "refused", "queue_full"),
)
async def create(request: Request) -> JsonAnswer:
    """Cut a clip, exact to the frame. A repeated `clip_id` returns the existing clip."""
    state, who = state_of(request), await check(request, "jobs:write")
    body = await _request_of(request)
    video = await video_of(state, body.video_id, who)
    if video.duration_ms is not None and body.t_start >= video.duration_ms:
        raise Problem("invalid_range", f"the video lasts {video.duration_ms} ms only")
    clip_id = body.clip_id or new_id()
    new = clip_job(video.video_id, clip_id, (body.t_start, body.t_end), body.padding_ms, who.requester_id)
    clip = await catalog_of(state).add_clip(
        Clip(
            clip_id,
            video.video_id,
            video.owner_id,
            video.team_id,
            new.job_id,
            body.t_start,
            body.t_end,
            body.padding_ms,
            paths.clip(video.video_id, clip_id),
        )
    )
    if (clip.video_id, clip.owner_id) != (video.video_id, video.owner_id):
        raise Problem("refused", "this clip_id is taken; choose another one, or leave it out")
    status = await _status(state, clip)
    if status is None:  # a new clip, or its job was never written or is pruned
        await _start(state, clip, new._replace(job_id=clip.job_id))
    elif status == "failed":
        await state.quotas.check_queued((await state.engine.get(clip.job_id)).requester_id)
        await state.engine.requeue(clip.job_id)
    word = "queued" if status in (None, "failed") else status
    return JsonAnswer({"clip_id": clip_id, "status": word, "job_id": clip.job_id}, 202)


async def _start(state: ServerState, clip: Clip, new: NewJob) -> None:
    """Enqueue the clip's job, unless a concurrent request with the same `clip_id` enqueues it."""
    try:
        await state.batcher.enqueue(new)
    except DuplicateJob:
        if await _status(state, clip) is None:  # the whole enqueue batch was refused because of another job
            with contextlib.suppress(DuplicateJob):
                await state.batcher.enqueue(new)


async def _request_of(request: Request) -> ClipRequest:
    """Return the request body, or the query without a body: the contract's own function has plain arguments."""
    if not request.query_params or await request.body():
        return await read(request, ClipRequest)
    try:
        return ClipRequest.model_validate_strings(dict(request.query_params))
    except ValidationError as error:
        raise of_faults(error.errors(include_url=False, include_input=False, include_context=False)) from None


@router.get(
    "/clips/{clip_id}",
    summary="Read a clip",
    response_model=ClipBody,
    responses=problems.responses(*ALWAYS, "clip_not_found"),
)
async def get(request: Request, clip_id: ClipId, who: MayRead) -> JsonAnswer:
    """Read a clip's status and URL."""
    state = state_of(request)
    clip = await _clip_of(state, clip_id, who)
    return JsonAnswer(clip_body(clip, await _status_word(state, clip)))


@router.get(
    "/clips/{clip_id}/file",
    summary="Fetch a clip",
    response_class=Response,
    responses=problems.responses(*ALWAYS, "clip_not_found", "object_not_found", "objects_unavailable"),
)
async def fetch(request: Request, clip_id: ClipId, who: MayRead) -> Response:
    """Download the clip as MP4; `?download=1` sets a file name for saving."""
    state = state_of(request)
    clip = await _clip_of(state, clip_id, who)
    name = f"{clip_id}.mp4" if request.query_params.get("download") else ""
    return await object_response(request, objects_of(state), clip.s3_path, name)


@router.get(
    "/videos/{video_id}/clips",
    summary="The clips of a video",
    response_model=ClipList,
    responses=problems.responses(*ALWAYS, "video_not_found"),
)
async def of_video(request: Request, video_id: VideoId, who: MayRead) -> JsonAnswer:
    """List a video's clips, newest first."""
    state = state_of(request)
    await video_of(state, video_id, who)
    clips = await catalog_of(state).clips_of(video_id, reader_of(who))
    return JsonAnswer({"clips": [clip_body(clip, await _status_word(state, clip)) for clip in clips]})


async def _clip_of(state: ServerState, clip_id: str, who: Principal) -> Clip:
    clip = await catalog_of(state).clip(clip_id, reader_of(who))
    if clip is None:
        raise Problem("clip_not_found", "no such clip of yours, or not any more: clips are kept for 30 days")
    return clip


async def _status_word(state: ServerState, clip: Clip) -> str:
    """Return the status word of the clip's job; a finished clip stays done after its job was pruned."""
    status = await _status(state, clip)
    return status or ("done" if clip.actual_end is not None else "failed")


async def _status(state: ServerState, clip: Clip) -> str | None:
    try:
        return CORTANA.word_of(await state.engine.get(clip.job_id))
    except JobNotFound:
        return None
