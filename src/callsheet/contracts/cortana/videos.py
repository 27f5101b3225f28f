"""`/videos`: add, list, read, process again, delete."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from callsheet.api.uploads import NewUpload
from callsheet.catalog.records import Video, VideoPage, VideoStatus
from callsheet.engine.ids import new_id
from callsheet.engine.stored import VIDEOS
from callsheet.http import problems, upload_records
from callsheet.http.audit import act
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.keys import Principal
from callsheet.http.object_access import objects_of
from callsheet.http.problems import Problem
from callsheet.http.state import ServerState, state_of
from callsheet.kernel.contracts import CORTANA
from callsheet.kernel.errors import JobNotFound
from callsheet.kernel.job import Job
from callsheet.objects.folders import parts_of
from callsheet.store.protocol import Document

from . import paths
from .jobs import PIPELINE, stage_job, start_job
from .models import Added, Again, NewVideo, Started, VideoBody, VideoList, video_body
from .visibility import ALWAYS, BODY, MayRead, MayWrite, VideoId, catalog_of, check_change, reader_of, video_of

UPLOAD = "video_upload"  # document kind: the upload that a video waits for
router = APIRouter(prefix="/videos", tags=["videos"])
STORAGE = ("objects_unavailable", "objects_forbidden")
IN_PIPELINE = (VideoStatus.PROCESSING, VideoStatus.READY)


@router.post(
    "",
    status_code=201,
    summary="Add a video",
    response_model=Added,
    openapi_extra=request_body(NewVideo),
    responses=problems.responses(*ALWAYS, *BODY, *STORAGE, "upload_not_found", "upload_incomplete", "queue_full"),
)
async def add(request: Request) -> JsonAnswer:
    """Add a video. With `size`, the answer has an upload: send its parts, then complete. `upload_id` starts at once."""
    state, who = state_of(request), await check(request, "jobs:write")
    body = await read(request, NewVideo)
    if body.team_id is not None and not who.admin and body.team_id not in who.teams:
        raise Problem("forbidden", f"this key is not of the team {body.team_id}")
    video_id = new_id()
    options = json.dumps(body.options.model_dump(exclude_none=True))
    video = Video(
        video_id,
        who.requester_id,
        body.team_id,
        body.title or body.name,
        VideoStatus.UPLOADING,
        paths.original(video_id),
        size_bytes=body.size,
        options=options,
    )
    if body.size is not None:
        new = NewUpload(name=paths.MASTER, size=body.size, content_type=body.content_type)
        upload = await upload_records.open_upload(state, who, new, video.s3_original_path)
        await catalog_of(state).add_video(video)
        await state.engine.store.put_document(Document(UPLOAD, video_id, json.dumps(upload.upload_id), 0))
        upload_body = await upload_records.upload_body(objects_of(state), upload)
        return JsonAnswer({"video": video_body(await video_of(state, video_id, who)), "upload": upload_body}, 201)
    upload_record = await upload_records.complete_upload(request, str(body.upload_id))
    await upload_records.charge(state, who.requester_id, upload_record.size, VIDEOS)
    await catalog_of(state).add_video(video._replace(size_bytes=upload_record.size))
    await objects_of(state).copy(upload_record.key, video.s3_original_path)
    job_id = await begin(state, video)
    return JsonAnswer({"video": video_body(await video_of(state, video_id, who)), "job_id": job_id}, 201)


async def begin(state: ServerState, video: Video) -> str:
    """Queue a video, whose original is stored, and enqueue its first job; returns the job's id."""
    await catalog_of(state).queue(video.video_id)
    return (await state.batcher.enqueue(start_job(video.video_id, video.owner_id))).job_id


@router.post(
    "/{video_id}/complete",
    status_code=202,
    summary="Complete a video's upload",
    response_model=Started,
    responses=problems.responses(
        *ALWAYS, *STORAGE, "video_not_found", "upload_not_found", "upload_incomplete", "upload_busy", "queue_full"
    ),
)
async def complete(request: Request, video_id: VideoId) -> JsonAnswer:
    """Complete the upload and start the pipeline. If the pipeline runs already, the answer names its first job."""
    state, who = state_of(request), await check(request, "jobs:write")
    video = await video_of(state, video_id, who)
    check_change(video, who)
    documents = await state.engine.store.documents(UPLOAD, video_id)
    if video.status is VideoStatus.UPLOADING and documents:
        await upload_records.complete_upload(request, json.loads(documents[0].body))
        await state.engine.store.delete_document(UPLOAD, video_id)
    if video.status in IN_PIPELINE and (job := await _first_job(state, video)) is not None:
        return JsonAnswer({"video_id": video_id, "job_id": job.job_id, "status": CORTANA.word_of(job)}, 202)
    return JsonAnswer({"video_id": video_id, "job_id": await begin(state, video), "status": "queued"}, 202)


async def _first_job(state: ServerState, video: Video) -> Job | None:
    """Return the first job of the video's pipeline, None if the job was pruned."""
    job_id = json.loads(video.jobs).get(PIPELINE[0])
    try:
        return await state.engine.get(job_id) if job_id else None
    except JobNotFound:
        return None


@router.get(
    "",
    summary="List videos",
    response_model=VideoList,
    responses=problems.responses(*ALWAYS, "validation_failed"),
)
async def list_videos(  # noqa: PLR0913 - what can be asked
    request: Request,
    who: MayRead,
    *,
    status: Annotated[Literal["uploading", "queued", "processing", "ready", "failed"] | None, Query()] = None,
    text: Annotated[str, Query(max_length=200, description="A part of the title.")] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
) -> JsonAnswer:
    """List videos of the key's owner and teams, newest first."""
    page = VideoPage(limit, before, VideoStatus(status) if status else None, text)
    videos = await catalog_of(state_of(request)).videos(page, reader_of(who))
    more = videos[-1].video_id if len(videos) == limit else None
    return JsonAnswer({"videos": [video_body(video) for video in videos], "next": more})


@router.get(
    "/{video_id}",
    summary="Read a video",
    response_model=VideoBody,
    responses=problems.responses(*ALWAYS, "video_not_found"),
)
async def get(request: Request, video_id: VideoId, who: MayRead) -> JsonAnswer:
    """Read a video: status, facts, and the latest job of each stage."""
    return JsonAnswer(video_body(await video_of(state_of(request), video_id, who)))


@router.post(
    "/{video_id}/again",
    status_code=202,
    summary="Do a part of the work again",
    response_model=Started,
    openapi_extra=request_body(Again),
    responses=problems.responses(*ALWAYS, *BODY, *STORAGE, "video_not_found", "refused", "queue_full"),
)
async def again(request: Request, video_id: VideoId) -> JsonAnswer:
    """Run the pipeline again from a stage: `ocr` reuses the sampled frames, `segment_index` reuses the detections."""
    state, who = state_of(request), await check(request, "jobs:write")
    body = await read(request, Again)
    video = await video_of(state, video_id, who)
    check_change(video, who)
    payload = await _payload(state, video, body.stage)
    enqueue_result = await state.batcher.enqueue(stage_job(body.stage, video_id, video.owner_id, payload))
    await catalog_of(state).queue(video_id)
    return JsonAnswer({"video_id": video_id, "job_id": enqueue_result.job_id, "status": "queued"}, 202)


async def _payload(state: ServerState, video: Video, stage: str) -> dict[str, object]:
    options: dict[str, Any] = json.loads(video.options)
    payload: dict[str, object] = {"video_id": video.video_id}
    if stage in ("transcode", "sample"):
        payload["s3_original_path"] = video.s3_original_path
    if stage == "sample":
        payload |= {"target_fps": options.get("target_fps", 10)}
        payload |= {"dedupe_threshold": options.get("dedupe_threshold", 0.95)}
    if stage == "ocr":
        payload |= {
            "frame_paths": [await _frames(state, video.video_id)],
            "languages": options.get("languages", ["eng"]),
        }
        payload |= {"min_confidence": options.get("min_confidence", 0.6)}
    return payload


async def _frames(state: ServerState, video_id: str) -> str:
    """Return the key of the frame manifest, or the frame folder if a sampler that works by SQL wrote no manifest."""
    if await objects_of(state).exists(paths.manifest(video_id)):
        return paths.manifest(video_id)
    async for _ in objects_of(state).list(paths.frames(video_id)):
        return f"{paths.frames(video_id)}/"
    raise Problem("refused", "there are no frames of this video yet; start with the stage `sample`")


@router.delete(
    "/{video_id}",
    status_code=204,
    summary="Delete a video",
    response_class=Response,
    responses=problems.responses(*ALWAYS, *STORAGE, "video_not_found"),
)
async def delete(request: Request, video_id: VideoId, who: MayWrite) -> Response:
    """Delete a video: first its catalogue entry, then its files. A job still running ends without a result."""
    video = await _delete(state_of(request), video_id, who)
    await act(request, "video.deleted", target=video_id, requester_id=video.owner_id)
    return Response(status_code=204)


async def _delete(state: ServerState, video_id: str, who: Principal) -> Video:
    video = await video_of(state, video_id, who)
    check_change(video, who)
    await catalog_of(state).delete_video(video_id)
    for link in await state.engine.store.documents(UPLOAD, video_id):
        await upload_records.forget(state, json.loads(link.body))
    await state.engine.store.delete_document(UPLOAD, video_id)
    await _remove_files(state, video)
    return video


async def _remove_files(state: ServerState, video: Video) -> None:
    """Delete a video's files and subtract their bytes from the owner's count; open uploads have no files here."""
    objects = objects_of(state)
    for folder in paths.folders(video.video_id):
        sizes = {info.key: -info.size_bytes async for info in objects.list(folder)}
        await objects.delete_prefix(folder)
        await state.quotas.bytes.add(video.owner_id, parts_of(sizes))
