"""`/transcode`: create a job, read its status, replace its credentials. Transcoding itself is in `tasks`."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from callsheet.engine.resuming import named_by
from callsheet.http import idempotency, problems
from callsheet.http.auth import check, requires
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.keys import Principal
from callsheet.http.object_access import objects_owned_by
from callsheet.http.problems import Problem
from callsheet.http.routing import RawRoute
from callsheet.http.state import PerServer, ServerState, state_of
from callsheet.kernel.contracts import EUTERPE
from callsheet.kernel.contracts.euterpe import error_for_clients
from callsheet.kernel.errors import JobNotFound
from callsheet.kernel.job import Idempotency, Job, NewJob, Status
from callsheet.kernel.wire import decode, encode
from callsheet.net.guard import InvalidTarget, Rules
from callsheet.net.guard import target_of as guarded
from callsheet.objects.folders import outputs_of
from callsheet.outbox import Endpoints
from callsheet.outbox.endpoints import EndpointNotFound
from callsheet.vault import Secret, Vault, keyring_from

from .ids import JobIds, ids_of
from .locations import OWN, URL, Place, source_of, target_of, without_signature
from .models import CredentialsReceipt, CredentialsRequest, TranscodeReceipt, TranscodeRequest, TranscodeStatus
from .tasks import NAME, QUEUE

SIGNED_S = 3_600
OPENED_BY = "; an operator opens more by --storage-http, --storage-networks and --storage-ports"
ALWAYS = ("unauthorized", "forbidden", "too_many_requests", "store_unavailable")
BODY = ("unsupported_media_type", "validation_failed", "body_too_large")
SEALS = ("no_keyring", "key_service_unavailable")
Reader = Annotated[Principal, Depends(requires("jobs:read"))]
Writer = Annotated[Principal, Depends(requires("jobs:write"))]
JobId = Annotated[str, Path(description="The job's id.", examples=["0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"])]
KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    "description": "The same request with the same key answers with the first job; credentials do not count.",
}
router = APIRouter(tags=["transcode"])
direct = APIRouter(tags=["transcode"], route_class=RawRoute)
VAULT = PerServer(lambda state: Vault(state.engine.store, keyring_from(os.environ)))
JOB_IDS: PerServer[JobIds | None] = PerServer(lambda _: None)


@direct.post(
    "/transcode",
    status_code=202,
    summary="Transcode a source",
    response_model=TranscodeReceipt,
    openapi_extra={**request_body(TranscodeRequest), "parameters": [KEY_HEADER]},
    responses=problems.responses(
        *ALWAYS,
        *BODY,
        *SEALS,
        "bad_request",
        "idempotency_conflict",
        "webhook_secret_missing",
        "webhooks_off",
        "invalid_target",
        "queue_full",
    ),
)
async def create(request: Request) -> Response:
    """Create a job; the answer is sent once the job and its encrypted credentials are stored durably."""
    state, who = state_of(request), await check(request, "jobs:write")
    body = await read(request, TranscodeRequest)
    await _check_own(state, body, who)
    await _check_urls(state, body, who.requester_id)
    job_id = (await _ids(state)).new(who.requester_id)
    output = body.output_place
    target = (
        Place(OWN, "", outputs_of(who.requester_id)).below((output if body.output else output.below(job_id)).path)
        if output.kind == OWN
        else output
    )
    new = NewJob(
        job_id,
        NAME,
        encode(body.payload(target)),
        QUEUE,
        body.priority,
        requester_id=who.requester_id,
        contract=EUTERPE.name,
        max_attempts=body.max_attempts,
        correlation_id=request.scope["callsheet.request_id"],
    )
    answer = json.dumps({"job_id": job_id, "status": "queued", "status_url": _status_url(job_id)})
    if (key := idempotency.key_of(request)) is not None:
        new = new._replace(idempotency=Idempotency(key, _same(request, body), answer))
    if secrets := body.sealed_parts:
        secret = Secret(json.dumps(secrets))
        new = new._replace(credentials=await _vault(state).seal(secret, job_id, who.requester_id))
    enqueue_result = await state.batcher.enqueue(new)
    headers = {"Location": _status_url(enqueue_result.job_id)}
    if not enqueue_result.created:
        headers["Idempotency-Replayed"] = "true"
    return Response(enqueue_result.response or answer, 202, headers, media_type="application/json")


@router.get(
    "/transcode/status",
    summary="How a transcoding job stands",
    response_model=TranscodeStatus,
    responses=problems.responses(*ALWAYS, "job_not_found", "job_gone", "validation_failed"),
)
async def status(request: Request, who: Reader, job_id: Annotated[str, Query(max_length=64)]) -> Response:
    """Read the job's status in the contract's words, with its outputs or its error."""
    state = state_of(request)
    job = await _job(state, job_id, who)
    (credentials,) = await state.engine.store.credentials([job.job_id])
    return JsonAnswer(
        {
            "job_id": job.job_id,
            "replay_of": await named_by(state.engine.store, job.job_id),
            "status": EUTERPE.word_of(job),
            "progress": job.progress,
            "attempt_count": job.attempt_count,
            "max_attempts": job.max_attempts,
            "refresh_count": job.refresh_count,
            "credential_version": credentials.envelope.credential_version if credentials is not None else 0,
            "created_at": job.created_at,
            "updated_at": job.updated_at,
            "started_at": job.started_at,
            "ended_at": job.ended_at,
            "metadata": decode(job.payload).get("metadata", {}),
            "outputs": await _outputs(state, job),
            "error": error_for_clients(job.error) if job.error else None,
        }
    )


@router.put(
    "/transcode/{job_id}/credentials",
    summary="Give a job newer credentials",
    response_model=CredentialsReceipt,
    openapi_extra=request_body(CredentialsRequest),
    responses=problems.responses(
        *ALWAYS,
        *BODY,
        *SEALS,
        "job_not_found",
        "job_gone",
        "credentials_gone",
        "credentials_conflict",
        "invalid_target",
        "webhooks_off",
    ),
)
async def replace_credentials(request: Request, job_id: JobId, who: Writer) -> Response:
    """Replace a job's credentials at once, even while the job runs; the credential version rises by one."""
    state = state_of(request)
    body = await read(request, CredentialsRequest)
    job = await _job(state, job_id, who)
    payload = decode(job.payload)
    try:
        parts = body.parts(source_of(payload["source"]), target_of(payload["output"]))
    except ValueError as error:
        raise _at_fault(*str(error).removeprefix("credentials.").split(": ", 1)) from None
    if body.source_url is not None:
        _check_place(state, "source_url", body.source_url.get_secret_value(), "source")
    version = await _vault(state).replace(
        job.job_id, job.requester_id, Secret(json.dumps(parts)), expected_version=body.expected_version
    )
    return JsonAnswer({"job_id": job.job_id, "credential_version": version})


async def _job(state: ServerState, job_id: str, who: Principal) -> Job:
    """Return a transcoding job; raises JobNotFound, and Problem `job_gone` for a pruned job."""
    try:
        job = await state.engine.get(job_id, requester_id=who.sees)
    except JobNotFound:
        if (await _ids(state)).was_given(job_id, who.requester_id):
            raise Problem("job_gone", "this job has ended, and its time to be kept is over") from None
        raise
    if job.contract != EUTERPE.name or job.kind != NAME:
        raise JobNotFound(f"no transcoding job {job_id}")
    return job


async def _outputs(state: ServerState, job: Job) -> list[dict[str, Any]]:
    """Return the outputs of a succeeded job; outputs in our own storage have URLs signed for an hour.

    Workers write the result, so only objects of the job's own tenant get a URL.
    """
    if job.status is not Status.SUCCEEDED or not job.result:
        return []
    result = decode(job.result)
    value = result.get("outputs") if isinstance(result, dict) else None
    outputs = [output for output in value if isinstance(output, dict)] if isinstance(value, list) else []
    return [{**output, "url": await _url(state, job, str(output.get("location")))} for output in outputs]


async def _url(state: ServerState, job: Job, location: str) -> str | None:
    """Return a signed URL for an output in our own storage, None for other locations and other tenants' objects."""
    try:
        place = target_of(location)
    except ValueError:
        return None
    objects = objects_owned_by(state, job.requester_id)
    if place.kind != OWN or state.objects is None or not place.path or not await objects.may_read(place.path):
        return None
    return (await objects.sign_get(place.path, SIGNED_S)).url


async def _check_own(state: ServerState, body: TranscodeRequest, who: Principal) -> None:
    """Raise Problem unless the source belongs to the tenant; another tenant's object is reported as missing."""
    place = body.source_place
    if place.kind == OWN and not await objects_owned_by(state, who.requester_id).may_read(place.path):
        raise _at_fault("source", "no such object of yours; use the `key` that an upload answers with")


async def _check_urls(state: ServerState, body: TranscodeRequest, requester_id: str) -> None:
    """Raise Problem for a forbidden URL, or if the tenant has no secret for signing callbacks."""
    storages = {"source_storage.endpoint": body.source_storage, "output_storage.endpoint": body.output_storage}
    for field, storage in storages.items():
        if storage is not None and storage.endpoint:
            _check_place(state, field, storage.endpoint, "storage")
    if body.source_place.kind == URL:
        _check_place(state, "source", body.source.get_secret_value(), "source")
    callbacks = {"refresh_url": body.refresh_url, "status_webhook_url": body.status_webhook_url}
    if urls := {field: url for field, url in callbacks.items() if url}:
        endpoints = _endpoints(state)
        for field, url in urls.items():
            _check_url(field, url, endpoints.rules, "callback")
        try:
            await endpoints.own(requester_id)
        except EndpointNotFound:
            message = "make the secret that signs your callbacks first: POST /v1/webhooks/secret"
            raise Problem("webhook_secret_missing", message) from None


def _check_place(state: ServerState, field: str, url: str, what: str) -> None:
    """Raise Problem for a forbidden storage or source URL; without StorageRules, the webhook rules apply."""
    own = state.storage_rules
    _check_url(field, url, own.rules if own is not None else _endpoints(state).rules, what, OPENED_BY)


def _endpoints(state: ServerState) -> Endpoints:
    if state.endpoints is None:
        raise Problem("webhooks_off", "this server calls nobody; leave out all URLs, or ask its operator for webhooks")
    return state.endpoints


def _check_url(field: str, url: str, rules: Rules, what: str, advice: str = "") -> None:
    try:
        guarded(url, rules, what)
    except InvalidTarget as error:
        raise _at_fault(field, f"{error}{advice}", error.code) from None


def _at_fault(field: str, what: str, code: str = "validation_failed") -> Problem:
    """Return the Problem for one field of the request."""
    return Problem(code, f"{field}: {what}", errors=[{"where": field, "what": what}])


def _same(request: Request, new_job: TranscodeRequest) -> str:
    """Return the request's hash for idempotency, without credentials and URL signatures, which differ each time."""
    body = new_job.model_dump(mode="json", exclude={"credentials", "source"})
    return idempotency.request_hash(request, {**body, "source": without_signature(new_job.source.get_secret_value())})


def _vault(state: ServerState) -> Vault:
    """Return the process's vault, created on first use; raises NoKeyring."""
    return VAULT.of(state)


async def _ids(state: ServerState) -> JobIds:
    """Return the process's id maker, created on first use."""
    if (ids := JOB_IDS.get(state)) is None:
        ids = await ids_of(state.engine.store, state.engine.sealer())
        JOB_IDS.put(state, ids)
    return ids


def _status_url(job_id: str) -> str:
    return f"/transcode/status?job_id={job_id}"


router.include_router(direct)
