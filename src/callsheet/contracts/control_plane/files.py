"""Files of attempts over HTTP: uploads by signed URLs, artifacts of succeeded jobs, and attempt logs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from callsheet.http import attempt_files, object_access, problems
from callsheet.http.attempt_files import UNSAID_BYTES, AttemptFiles, File, artifacts_of
from callsheet.http.auth import requires
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.keys import Principal
from callsheet.http.problems import Problem
from callsheet.http.routing import RawRoute
from callsheet.http.state import state_of
from callsheet.http.upload_records import SWEEP
from callsheet.kernel.job import Status
from callsheet.objects import Objects, Upload
from callsheet.objects.folders import key_of
from callsheet.objects.keys import checked

from . import logs
from .artifacts import SIGNED_S, check_unchanged, objects_of, signed_request
from .binding import WorkerIdentity, worker_of
from .leases import Lease, Proof, prove_one
from .models import STRICT, Name
from .routes import ALWAYS, PROVEN

PART_BYTES = 16 * 1024 * 1024
MOST_PARTS = 1_000  # part URLs in one answer
worker_router = APIRouter(prefix="/internal/worker", tags=["workers"], route_class=RawRoute)
router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Reader = Annotated[Principal, Depends(requires("jobs:read"))]
FileName = Annotated[str, Field(min_length=1, max_length=255)]


class UploadBody(BaseModel):
    """A worker wants to upload a file of its attempt. With `upload_id`, parts of an open upload are signed again."""

    model_config = STRICT
    worker_id: Name
    job_id: str
    lease_token: str
    name: FileName
    content_type: str | None = Field(default=None, max_length=200)
    bytes: int | None = Field(default=None, ge=0, le=5 * 1024**4)
    upload_id: str | None = Field(default=None, max_length=2000)
    first_part: int = Field(default=1, ge=1, le=10_000)


class SignedUrl(BaseModel):
    """A signed request: send exactly this method with these headers. Keep the URL secret until it expires."""

    method: str
    url: str
    headers: dict[str, str]
    expires_at: int


class SignedPart(SignedUrl):
    """A signed URL for one part of a large file."""

    number: int


class UploadAnswer(BaseModel):
    """Where to send a file: one signed request, or signed parts of `part_bytes` each."""

    ok: bool
    key: str
    whole: SignedUrl | None = None
    upload_id: str | None = None
    part_bytes: int | None = None
    parts: list[SignedPart] | None = None


class UploadedBody(BaseModel):
    """The worker has sent all parts of a large file."""

    model_config = STRICT
    worker_id: Name
    job_id: str
    lease_token: str
    name: FileName
    upload_id: str = Field(max_length=2000)


class Uploaded(BaseModel):
    """All parts of a large file have been joined into one object."""

    ok: bool
    key: str
    bytes: int


class ArtifactShown(BaseModel):
    """A file that a succeeded job produced."""

    name: str
    bytes: int
    content_type: str
    sha256: str | None


class ArtifactList(BaseModel):
    """The files that a succeeded job produced."""

    artifacts: list[ArtifactShown]


async def _live(request: Request, who: WorkerIdentity, body: UploadBody | UploadedBody) -> Lease:
    proof = Proof(body.job_id, body.lease_token)
    lease = await prove_one(state_of(request).engine, who.holder(body.worker_id), proof)
    if not lease.live:
        raise lease.lost_problem()
    return lease


@worker_router.post(
    "/uploads",
    summary="Ask where to upload a file",
    response_model=UploadAnswer,
    openapi_extra=request_body(UploadBody),
    responses=problems.responses(*PROVEN, "not_found", "quota_exceeded", "refused", "upload_not_found"),
)
async def uploads(request: Request) -> JsonAnswer:
    """Get a signed URL for a file of this attempt, or signed parts for a large file. Ask again when the URLs expire."""
    who = await worker_of(request)
    body = await read(request, UploadBody)
    if body.bytes is None and body.upload_id is not None:
        raise Problem("validation_failed", "bytes: say how long the file is, so that its parts can be signed")
    lease, objects = await _live(request, who, body), objects_of(state_of(request))
    key = checked(key_of(body.job_id, lease.claim_version, body.name))
    binding = object_access.of_attempt(body.job_id, lease.claim_version, body.worker_id)
    if random.random() < SWEEP:  # noqa: S311 - not each time: it lists what came in
        await object_access.sweep(state_of(request).engine.store, objects)
    if body.upload_id is None and (body.bytes or 0) <= PART_BYTES:
        most = UNSAID_BYTES if body.bytes is None else body.bytes
        await _reserve(request, lease, body.name, lambda file: file.with_whole(most, is_said=body.bytes is not None))
        waits, kind, size = object_access.key_of(binding, body.name), body.content_type, body.bytes
        request_to_sign = await objects.sign_put(
            waits, SIGNED_S, content_type=kind, size_bytes=size, bound_to=str(binding)
        )
        return JsonAnswer({"ok": True, "key": key, "whole": signed_request(request_to_sign)})
    if body.bytes is None:
        raise Problem("validation_failed", "bytes: say how long the file is, so that its parts can be signed")
    upload = await _begin(request, lease, body) if body.upload_id is None else await _open(request, lease, body)
    parts = await _parts(objects, upload, body, str(binding))
    return JsonAnswer(
        {"ok": True, "key": key, "upload_id": upload.upload_id, "part_bytes": upload.part_bytes, "parts": parts}
    )


async def _reserve(request: Request, lease: Lease, name: str, how: Callable[[File], File]) -> AttemptFiles:
    """Change a file's reserved bytes and return the attempt's previous record. Raises QuotaExceeded."""
    state = state_of(request)
    return await attempt_files.change(state.quotas, state.engine.store, _attempt(lease), name, how)


def _attempt(lease: Lease) -> AttemptFiles:
    return attempt_files.of(lease.job, lease.claim_version)


async def _begin(request: Request, lease: Lease, body: UploadBody) -> Upload:
    """Start a multipart upload with quota for all parts, and abort an earlier upload of the same file name."""
    objects, size = objects_of(state_of(request)), body.bytes or 0
    part_bytes = max(PART_BYTES, -(-size // 10_000))
    key = key_of(body.job_id, lease.claim_version, body.name)
    upload = await objects.begin_multipart(key, part_bytes=part_bytes, content_type=body.content_type)
    try:
        before = await _reserve(
            request,
            lease,
            body.name,
            lambda file: file._replace(parts=size, upload_id=upload.upload_id, part_bytes=part_bytes),
        )
    except BaseException:
        await objects.abort_multipart(upload)
        raise
    if (earlier := before.upload_of(body.name)) is not None:
        await objects.abort_multipart(earlier)
    return upload


async def _open(request: Request, lease: Lease, body: UploadBody | UploadedBody) -> Upload:
    """Return this attempt's open multipart upload of the file; raises Problem if its name, id or length differ."""
    record = await attempt_files.read(state_of(request).engine.store, _attempt(lease))
    upload = record.upload_of(body.name)
    if upload is None or upload.upload_id != body.upload_id:
        raise Problem("upload_not_found", "this attempt has no such upload of this file; ask without upload_id")
    if isinstance(body, UploadBody) and body.bytes != (part_count := record.files[body.name].parts):
        raise Problem("validation_failed", f"bytes: this upload was begun for {part_count}; ask without upload_id")
    return upload


async def _parts(objects: Objects, upload: Upload, body: UploadBody, binding: str) -> list[dict[str, Any]]:
    """Return signed URLs for the next parts of an upload."""
    whole, each = body.bytes or 0, upload.part_bytes
    parts: list[dict[str, Any]] = []
    for number in range(body.first_part, min(-(-whole // each), body.first_part + MOST_PARTS - 1) + 1):
        size = min(each, whole - (number - 1) * each)
        part = await objects.sign_part(upload, number, SIGNED_S, size_bytes=size, bound_to=binding)
        parts.append({"number": number, **signed_request(part)})
    return parts


@worker_router.post(
    "/uploads/complete",
    summary="Put the parts of a file together",
    response_model=Uploaded,
    openapi_extra=request_body(UploadedBody),
    responses=problems.responses(*PROVEN, "not_found", "object_exists", "upload_not_found"),
)
async def uploaded(request: Request) -> JsonAnswer:
    """Join the parts of a large file. The file becomes visible when the attempt completes and names it."""
    who = await worker_of(request)
    body = await read(request, UploadedBody)
    lease, objects = await _live(request, who, body), objects_of(state_of(request))
    key = key_of(body.job_id, lease.claim_version, body.name)
    upload = await _open(request, lease, body)
    info = await objects.complete_multipart(upload, only_if_absent=True)
    await _reserve(request, lease, body.name, lambda file: _put_together(file, upload.upload_id, info.size_bytes))
    return JsonAnswer({"ok": True, "key": key, "bytes": info.size_bytes})


def _put_together(file: File, upload_id: str, size: int) -> File:
    """Return the file's record after its parts became one object; a newer upload of the same name stays reserved."""
    whole = file._replace(assembled_bytes=file.assembled_bytes + size)
    return whole._replace(parts=0, upload_id="") if file.upload_id == upload_id else whole


@router.get("/{job_id}/artifacts", summary="List a job's files", responses=problems.responses(*ALWAYS, "job_not_found"))
async def artifacts(request: Request, job_id: str, who: Reader) -> ArtifactList:
    """List the files of the attempt that succeeded; the list is empty before."""
    engine = state_of(request).engine
    job = await engine.get(job_id, requester_id=who.sees)
    files = await artifacts_of(engine.store, job.job_id) if job.status is Status.SUCCEEDED else []
    return ArtifactList(artifacts=[ArtifactShown(**_public(file)) for file in files])


def _public(file: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in file.items() if name in ArtifactShown.model_fields}


@router.get(
    "/{job_id}/artifacts/{name:path}",
    summary="Fetch a file of a job",
    status_code=307,
    response_class=RedirectResponse,
    responses=problems.responses(*ALWAYS, "job_not_found", "not_found", "object_changed"),
)
async def artifact(request: Request, job_id: str, name: str, who: Reader) -> Response:
    """Redirect to a signed URL that is valid for an hour."""
    state = state_of(request)
    job = await state.engine.get(job_id, requester_id=who.sees)
    for file in await artifacts_of(state.engine.store, job.job_id) if job.status is Status.SUCCEEDED else ():
        if file["name"] == name:
            await check_unchanged(objects_of(state), file)
            url = await objects_of(state).sign_get(file["key"], SIGNED_S, download_name=name.rpartition("/")[2])
            return RedirectResponse(url.url, headers={"Cache-Control": "no-store"})
    raise Problem("not_found", f"job {job_id} has no file of this name")


@router.get(
    "/{job_id}/log",
    summary="Read an attempt's log",
    response_class=Response,
    responses={**problems.responses(*ALWAYS, "job_not_found"), 200: {"content": {"text/plain": {}}}},
)
async def log(request: Request, job_id: str, who: Reader, attempt: int | None = None) -> Response:
    """Return the log text of an attempt; without `attempt`, of the present or last attempt."""
    engine = state_of(request).engine
    job = await engine.get(job_id, requester_id=who.sees)
    text = await logs.read(engine, job.job_id, job.claim_version if attempt is None else attempt)
    return Response(text, media_type="text/plain; charset=utf-8", headers={"X-Content-Type-Options": "nosniff"})
