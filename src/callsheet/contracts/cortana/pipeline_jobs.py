"""`/pipeline/jobs`: list, read and retry the pipeline's jobs, in the contract's words."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request

from callsheet.http import problems
from callsheet.http.auth import requires
from callsheet.http.json_bodies import JsonAnswer
from callsheet.http.keys import Principal
from callsheet.http.parameters import CURSOR
from callsheet.http.problems import Problem
from callsheet.http.state import state_of
from callsheet.kernel.job import Status
from callsheet.store.protocol import JobQuery

from .jobs import NAME
from .models import PipelineJob, PipelineJobs, pipeline_job
from .parts import CONTRACT
from .visibility import ALWAYS, MayRead, catalog_of

STATUSES = {
    "queued": (Status.QUEUED,),
    "processing": (Status.RUNNING,),
    "done": (Status.SUCCEEDED,),
    "failed": (Status.FAILED, Status.DEAD_LETTER, Status.CANCELED),
}
router = APIRouter(prefix="/pipeline/jobs", tags=["pipeline"])
JobId = Annotated[str, Path(description="The job's id.")]
MayAdmin = Annotated[Principal, Depends(requires("admin"))]


@router.get(
    "",
    summary="List the pipeline's jobs",
    response_model=PipelineJobs,
    responses=problems.responses(*ALWAYS, "validation_failed"),
)
async def list_jobs(  # noqa: PLR0913 - what can be asked
    request: Request,
    who: MayRead,
    *,
    status: Annotated[Literal["queued", "processing", "done", "failed"] | None, Query()] = None,
    job_type: Annotated[Literal["transcode", "sample", "ocr", "segment_index", "clip_generate"] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(pattern=CURSOR)] = None,
) -> JsonAnswer:
    """List the pipeline's jobs, newest first."""
    kind = f"{NAME}.{job_type}" if job_type else None
    statuses = STATUSES[status] if status else ()
    query = JobQuery(who.sees, statuses, kind=kind, contract=CONTRACT, limit=limit, cursor=cursor)
    page = await state_of(request).engine.find(query)
    return JsonAnswer({"jobs": [pipeline_job(job) for job in page.jobs], "next": page.cursor})


@router.get(
    "/{job_id}",
    summary="Read a job of the pipeline",
    response_model=PipelineJob,
    responses=problems.responses(*ALWAYS, "job_not_found"),
)
async def get(request: Request, job_id: JobId, who: MayRead) -> JsonAnswer:
    """Read a pipeline job, including the error of a failed job."""
    job = await state_of(request).engine.get(job_id, requester_id=who.sees)
    if job.contract != CONTRACT:
        raise Problem("job_not_found", "this job is not the pipeline's")
    return JsonAnswer(pipeline_job(job))


@router.post(
    "/{job_id}/retry",
    status_code=202,
    summary="Try a failed job again",
    response_model=PipelineJob,
    responses=problems.responses(*ALWAYS, "job_not_found", "illegal_move", "refused"),
)
async def retry(request: Request, job_id: JobId, who: MayAdmin) -> JsonAnswer:
    """Retry a failed job with fresh attempts, once its cause is repaired. Administrators only."""
    state = state_of(request)
    job = await state.engine.get(job_id, requester_id=who.sees)
    if job.contract != CONTRACT:
        raise Problem("job_not_found", "this job is not the pipeline's")
    job = await state.engine.requeue(job_id, requester_id=who.sees)
    video_id = json.loads(job.payload).get("video_id")
    if video_id and state.catalog is not None:
        await catalog_of(state).queue(video_id)
    return JsonAnswer(pipeline_job(job), 202)
