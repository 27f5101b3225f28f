"""Errors as `application/problem+json` (RFC 9457), each with a stable `code`. STATUSES maps codes to HTTP statuses."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from callsheet.kernel.errors import CallsheetError, QuotaExceeded
from callsheet.kernel.new_jobs import IS_UUID

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import Scope

log = logging.getLogger("callsheet.http")
MEDIA_TYPE = "application/problem+json"
STATUSES: dict[str, int] = {
    "error": 500,
    "invalid_input": 422,
    "invalid_job": 422,
    "payload_too_large": 413,
    "not_json": 422,
    "invalid_payload": 422,
    "dependency_not_found": 422,
    "dependency_cycle": 422,
    "invalid_task": 422,
    "unknown_task": 422,
    "unknown_store": 500,
    "missing_extra": 500,
    "refused": 409,
    "illegal_move": 409,
    "stale_claim": 409,
    "lease_lost": 409,
    "log_incomplete": 409,
    "not_resumable": 409,
    "artifact_missing": 409,
    "duplicate_job": 409,
    "queue_full": 429,
    "task_reserved": 403,
    "quota_exceeded": 429,
    "idempotency_conflict": 409,
    "document_conflict": 409,
    "job_not_found": 404,
    "job_gone": 410,
    "job_failed": 409,
    "job_canceled": 409,
    "result_timeout": 504,
    "store_error": 503,
    "schema_mismatch": 503,
    "store_unavailable": 503,
    "store_refused": 503,
    "outage": 503,
    "disk_full": 503,
    "objects_error": 502,
    "invalid_key": 422,
    "key_conflict": 409,
    "unknown_objects": 500,
    "object_not_found": 404,
    "object_exists": 409,
    "object_changed": 412,
    "object_too_large": 413,
    "upload_not_found": 404,
    "upload_incomplete": 409,
    "upload_busy": 409,
    "video_not_found": 404,
    "clip_not_found": 404,
    "invalid_range": 422,
    "catalog_off": 503,
    "auth_off": 409,
    "link_refused": 403,
    "link_expired": 403,
    "objects_forbidden": 502,
    "object_not_owned": 403,
    "credentials_expired": 502,
    "clock_skewed": 502,
    "objects_unavailable": 503,
    "no_keyring": 503,
    "key_service_unavailable": 503,
    "invalid_target": 422,
    "webhook_secret_missing": 409,
    "credentials_gone": 409,
    "credentials_conflict": 409,
    "endpoint_not_found": 404,
    "too_many_endpoints": 409,
    "delivery_not_found": 404,
    # codes that exist only in HTTP
    "bad_request": 400,
    "unauthorized": 401,
    "worker_revoked": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "request_timeout": 408,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "range_not_satisfiable": 416,
    "unsupported_encoding": 415,
    "host_not_allowed": 421,
    "validation_failed": 422,
    "upgrade_required": 426,
    "too_many_requests": 429,
    "too_many_streams": 429,
    "internal": 500,
    "shutting_down": 503,
    "too_many_connections": 503,
    "webhooks_off": 503,
}
_OF_STATUS = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "body_too_large",
}


TURNED_AWAY = (401, 403)
OURS = "something broke on our side; it was logged"


class Problem(Exception):
    """An error response. `more` holds additional members of its body."""

    def __init__(self, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more

    @property
    def status(self) -> int:
        """The HTTP status of the problem's code."""
        return STATUSES[self.code]


class ProblemBody(BaseModel):
    """An error; `code` is stable and safe to match on."""

    type: str = Field(examples=["https://callsheet.invalid/problems/job_not_found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["no job 0199f0c2-…"])
    code: str = Field(examples=["job_not_found"])
    request_id: str = Field(default="", examples=["0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"])


_PREFIX = re.compile(r"^(Value error|Assertion failed), ")
_FIELD_PREFIX = re.compile(r"([a-z_][a-z0-9_]*(?:\.[a-z0-9_]+)*): ")
_SCHEMA = ProblemBody.model_json_schema()  # made once: 500 times cost a third of the start of `callsheet serve`


def answer(problem: Problem, request_id: str = "") -> Response:
    """Return the response for a problem."""
    body = {
        "type": f"https://callsheet.invalid/problems/{problem.code}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "request_id": request_id,
        **problem.more,
    }
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def of_error(error: CallsheetError) -> Problem:
    """Return the Problem for a CallsheetError.

    Statuses 429 and 503 carry Retry-After, except for an exhausted storage quota.
    """
    if isinstance(error, QuotaExceeded):
        return of_quota(error, 0 if error.quota == "bytes" else 5)
    if error.code not in STATUSES:  # the message was not reviewed for clients
        return Problem("error", error.public or OURS)
    headers = {"Retry-After": "2"} if STATUSES[error.code] in (429, 503) else {}
    return Problem(error.code, error.for_clients, headers=headers)


def of_quota(error: QuotaExceeded, wait_s: int) -> Problem:
    """Return the Problem for an exhausted quota.

    `wait_s` 0: no Retry-After header, since waiting alone does not help.
    """
    headers = {"Retry-After": str(wait_s)} if wait_s else {}
    return Problem(
        error.code, str(error), headers=headers, quota=error.quota, limit=error.limit, used=min(error.used, error.limit)
    )


def responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return a route's error responses for OpenAPI, by status.

    Routes that read a JSON body also list `bad_request`, for bodies that are not JSON.
    """
    by_status: dict[int | str, dict[str, Any]] = {}
    takes_body = "unsupported_media_type" in codes and "bad_request" not in codes
    for code in (*codes, "bad_request") if takes_body else codes:
        status = STATUSES[code]
        description = f"{by_status[status]['description']}, {code}" if status in by_status else code
        by_status[status] = {"description": description, "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
    return by_status


def install(app: FastAPI) -> None:
    """Register exception handlers that convert every error of the app to a problem response."""

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 - registered for it
        if error.status in TURNED_AWAY:
            app.state.server_state.audit.note_refusal(request, error)
        return answer(error, _id(request))

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, CallsheetError)  # noqa: S101
        if STATUSES.get(error.code, 500) >= 500:  # noqa: PLR2004
            log.warning("%s: %s", path_of(request.scope), error)
        return answer(of_error(error), _id(request))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101
        return answer(of_faults(error.errors()), _id(request))

    async def plain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101
        code = _OF_STATUS.get(error.status_code, "bad_request" if error.status_code < 500 else "internal")  # noqa: PLR2004
        headers = {**(error.headers or {}), **_allow_header(app, request, code)}
        return answer(Problem(code, str(error.detail), headers=headers), _id(request))

    async def client_left(request: Request, error: Exception) -> Response:  # noqa: ARG001 - nobody reads this answer
        return answer(Problem("bad_request", "the body has no end"), _id(request))

    async def unknown(request: Request, error: Exception) -> Response:
        log.error("%s broke", path_of(request.scope), exc_info=error)
        return answer(Problem("internal", OURS), _id(request))

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(CallsheetError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(ClientDisconnect, client_left)
    app.add_exception_handler(Exception, unknown)


def of_faults(faults: Any) -> Problem:
    """Return the Problem for a schema's validation errors, or `bad_request` for a body with invalid JSON.

    The errors name fields, never the rejected values, which may be secrets.
    """
    if faults and faults[0]["type"] == "json_invalid":
        what = str(faults[0]["msg"]).removeprefix("Invalid JSON: ")
        return Problem("bad_request", f"the body is not JSON: {what}")
    errors = [_fault(f["loc"], str(f["msg"])) for f in list(faults)[:20]]
    detail = "; ".join(f"{fault['where']}: {fault['what']}" for fault in errors[:5])
    return Problem("validation_failed", detail or "the request does not match its schema", errors=errors)


def _fault(place: Sequence[int | str], message: str) -> dict[str, str]:
    """Return one validation error: the invalid field, and the reason.

    The schema reports errors about several fields without naming a field: such a message starts with the field, `name:
    …`.
    """
    message = _PREFIX.sub("", message)
    parts = [str(part) for part in place]
    if (match := _FIELD_PREFIX.match(message)) is not None:
        parts, message = [*parts, match[1]], message[match.end() :]
    return {"where": ".".join(parts) or "body", "what": message}


def _allow_header(app: FastAPI, request: Request, code: str) -> dict[str, str]:
    """Return an Allow header with every method of the path; the router knows only the first matching route."""
    if code != "method_not_allowed":
        return {}
    documented = app.openapi()["paths"]
    exact = documented.get(request.url.path)
    paths = [(request.url.path, exact)] if exact is not None else list(documented.items())
    fitting = [methods for path, methods in paths if re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), request.url.path)]
    allowed_methods = {method.upper() for methods in fitting for method in methods}
    return {"Allow": ", ".join(sorted(allowed_methods))} if allowed_methods else {}


def _id(request: Request) -> str:
    return str(request.scope.get("callsheet.request_id", ""))


def path_of(scope: Scope) -> str:
    """Return the request's path for a log: the route's template with only our own ids filled in."""
    route = getattr(scope.get("route"), "path", "(no route)")
    ids = {name: text for name, text in scope.get("path_params", {}).items() if IS_UUID(str(text))}
    for name, text in ids.items():
        route = route.replace(f"{{{name}}}", text)
    return str(route)
