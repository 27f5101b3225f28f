"""`POST /v1/jobs/batch`: up to 10,000 new jobs in one request, all or none, or each on its own.

`http/middleware.py` bounds the body.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import pydantic
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from callsheet.http import idempotency, problems
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, json_text
from callsheet.http.parameters import ALWAYS
from callsheet.http.problems import Problem
from callsheet.http.state import state_of
from callsheet.kernel.errors import CallsheetError, StoreError
from callsheet.kernel.job import Idempotency, NewJob

from .creation import Creation
from .new_jobs import CreateJob

if TYPE_CHECKING:
    from callsheet.store.protocol import Enqueued

MOST = 10_000
CHUNK = 500  # jobs that are tried together before each is tried on its own
KEY_TTL_S = Idempotency("", "").ttl_s
KEY_ROOM = 240  # characters of a batch's idempotency key; each job's key has its number behind it
NDJSON = ("application/x-ndjson", "application/jsonl", "application/ndjson")
router = APIRouter(tags=["jobs"])


class Batch(BaseModel):
    """New jobs. A member of `jobs` is what `POST /v1/jobs` takes."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    jobs: list[CreateJob] = Field(min_length=1, max_length=MOST)


class LooseBatch(BaseModel):
    """New jobs of which each is judged on its own."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    jobs: list[JsonValue] = Field(min_length=1, max_length=MOST)


class BatchJob(BaseModel):
    """What became of one job: `created` is false if a key belongs to an earlier job. `error` stands alone."""

    job_id: str | None = None
    task: str | None = None
    created: bool | None = None
    error: JsonValue = None


class BatchReceipt(BaseModel):
    """The answers in the order of the request."""

    created: int
    existing: int
    refused: int
    jobs: list[BatchJob]


class _Line(NamedTuple):
    """One job of the request: what was asked for and the new job, or the reason why it is refused."""

    body: CreateJob | None = None
    new: NewJob | None = None
    refusal: dict[str, Any] | None = None


@router.post(
    "/v1/jobs/batch",
    status_code=202,
    summary="Create many jobs",
    response_model=BatchReceipt,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": Batch.model_json_schema()},
                NDJSON[0]: {"schema": {"type": "string", "description": "A job on each line."}},
            },
        },
    },
    responses=problems.responses(
        *ALWAYS,
        "bad_request",
        "idempotency_conflict",
        "payload_too_large",
        "body_too_large",
        "unsupported_media_type",
        "validation_failed",
        "queue_full",
        "task_reserved",
    ),
)
async def create_batch(
    request: Request,
    mode: Annotated[
        Literal["all", "each"],
        Query(description="`all`: all jobs or none. `each`: every job on its own, with an answer for each."),
    ] = "all",
) -> Response:
    """Create up to 10,000 jobs; the answer is sent once they are stored durably. NDJSON is answered with NDJSON."""
    who = await check(request, "jobs:write")
    creation = Creation(state_of(request), who, request.scope["callsheet.request_id"])
    key = _key_of(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if mode == "all":
        body = await _all_of(request, kind)
        lines = [_Line(one, await _job_of_number(creation, number, one)) for number, one in enumerate(body)]
        lines = [_with_key(line, number, key, request) for number, line in enumerate(lines)]
        answers = [
            _receipt_of(line, a) for line, a in zip(lines, await creation.enqueue_all(_jobs(lines)), strict=True)
        ]
    else:
        lines = [await _line(creation, text) for text in await _texts_of(request, kind)]
        lines = [_with_key(line, number, key, request) for number, line in enumerate(lines)]
        answers = [answer async for answer in _each(creation, lines)]
    if kind in NDJSON:
        return Response("".join(f"{json_text(a)}\n" for a in answers), 202, media_type=NDJSON[0])
    return JsonAnswer({**_totals(answers), "jobs": answers}, 202)


def _key_of(request: Request) -> str | None:
    key = idempotency.key_of(request)
    if key is not None and len(key) > KEY_ROOM:
        raise Problem("bad_request", f"the Idempotency-Key of a batch has at most {KEY_ROOM} characters")
    return key


async def _all_of(request: Request, kind: str) -> list[CreateJob]:
    """Return the checked jobs of a body; raises the Problem that names each fault's job by its number."""
    try:
        if kind in NDJSON:
            return [CreateJob.model_validate_json(line) for line in await _lines_of(request)]
        _check_kind(kind)
        return Batch.model_validate_json(await request.body()).jobs
    except pydantic.ValidationError as error:
        raise _of_faults(error) from None


async def _texts_of(request: Request, kind: str) -> list[bytes]:
    """Return the JSON text of each job, unchecked."""
    if kind in NDJSON:
        return await _lines_of(request)
    _check_kind(kind)
    try:
        loose = LooseBatch.model_validate_json(await request.body())
    except pydantic.ValidationError as error:
        raise _of_faults(error) from None
    return [json.dumps(one).encode() for one in loose.jobs]


async def _lines_of(request: Request) -> list[bytes]:
    lines = [line for line in (await request.body()).splitlines() if line.strip()]
    if not 1 <= len(lines) <= MOST:
        raise Problem("validation_failed", f"body: send 1 to {MOST} lines, each with a job; there are {len(lines)}")
    return lines


def _check_kind(kind: str) -> None:
    if kind != "application/json" and not kind.endswith("+json"):
        advice = f"send JSON or NDJSON, and say so: Content-Type: application/json, or {NDJSON[0]}"
        raise Problem("unsupported_media_type", advice)


def _of_faults(error: pydantic.ValidationError) -> Problem:
    return problems.of_faults(error.errors(include_url=False, include_input=False, include_context=False))


async def _job_of_number(creation: Creation, number: int, body: CreateJob) -> NewJob:
    """Return one job of an all-or-none batch; a Problem says which job it is about."""
    try:
        return await creation.new_job(body)
    except (Problem, CallsheetError) as error:
        problem = _problem_of(error)
        problem.detail = f"jobs.{number}: {problem.detail}"
        raise problem from None


async def _line(creation: Creation, text: bytes) -> _Line:
    """Return one job of a batch whose jobs are judged one by one."""
    try:
        body = CreateJob.model_validate_json(text)
        return _Line(body, await creation.new_job(body))
    except pydantic.ValidationError as error:
        return _refusal_of(_of_faults(error))
    except (Problem, CallsheetError) as error:
        return _refusal_of(_problem_of(error))


def _problem_of(error: Problem | CallsheetError) -> Problem:
    """Return the Problem of an error about a job; raises errors about the store, which are about no job."""
    if isinstance(error, StoreError):
        raise error
    return error if isinstance(error, Problem) else problems.of_error(error)


def _refusal_of(problem: Problem) -> _Line:
    return _Line(refusal={"code": problem.code, "status": problem.status, "detail": problem.detail, **problem.more})


def _with_key(line: _Line, number: int, key: str | None, request: Request) -> _Line:
    """Give a job an idempotency key made of the batch's key and the job's number, if the batch has a key."""
    if key is None or line.new is None or line.body is None:
        return line
    same = idempotency.request_hash(request, line.body.model_dump(exclude_none=True))
    ttl_s = max(line.new.ttl_s or 0, KEY_TTL_S)
    return line._replace(new=line.new._replace(idempotency=Idempotency(f"{key}#{number}", same, ttl_s=ttl_s)))


def _jobs(lines: Sequence[_Line]) -> list[NewJob]:
    return [line.new for line in lines if line.new is not None]


async def _each(creation: Creation, lines: Sequence[_Line]) -> AsyncIterator[dict[str, Any]]:
    """Enqueue the jobs in chunks, and the jobs of a refused chunk one by one; yield an answer for each line."""
    for start in range(0, len(lines), CHUNK):
        chunk = lines[start : start + CHUNK]
        jobs = _jobs(chunk)
        try:
            answers: list[Enqueued | dict[str, Any]] = [*await creation.enqueue_all(jobs)] if jobs else []
        except (Problem, CallsheetError) as error:
            _problem_of(error)
            answers = [await _alone(creation, new) for new in jobs]
        left = iter(answers)
        for line in chunk:
            yield {"error": line.refusal} if line.new is None else _receipt_of(line, next(left))


async def _alone(creation: Creation, new: NewJob) -> Enqueued | dict[str, Any]:
    try:
        (answer,) = await creation.enqueue_all([new])
    except (Problem, CallsheetError) as error:
        return _refusal_of(_problem_of(error)).refusal or {}
    return answer


def _receipt_of(line: _Line, answer: Enqueued | dict[str, Any]) -> dict[str, Any]:
    if isinstance(answer, dict):
        return {"error": answer}
    assert line.new is not None  # noqa: S101 - only jobs have answers
    return {"job_id": answer.job_id, "task": line.new.kind, "created": answer.created}


def _totals(answers: Sequence[dict[str, Any]]) -> dict[str, int]:
    refusals = sum("error" in answer for answer in answers)
    new_jobs = sum(bool(answer.get("created")) for answer in answers)
    return {"created": new_jobs, "existing": len(answers) - new_jobs - refusals, "refused": refusals}
