"""`/v1/quotas`: a tenant's limits and usage. Operators see all tenants, and can change one tenant's limits."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from callsheet.engine.quotas import MOST, Quota
from callsheet.engine.stored import STORED_BYTES
from callsheet.http import problems
from callsheet.http.audit import act
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.parameters import NO_NUL, Admin, Reader
from callsheet.http.problems import Problem
from callsheet.http.state import ServerState, state_of

ALWAYS = ("unauthorized", "forbidden", "too_many_requests", "quota_exceeded", "store_unavailable")
NOBODY = "~"  # how a path names the operators' own jobs, which have no tenant
PAGE, LONGEST = 50, 200
EVERYWHERE, HERE = "all servers", "per server process"
SCOPE = {
    "queued": EVERYWHERE,
    "running": EVERYWHERE,
    "bytes": EVERYWHERE,
    "streams": HERE,
    "rate": HERE,
    "uploads": EVERYWHERE,
}
Tenant = Annotated[str, Path(description="A tenant's name; `~` for jobs without one.", max_length=255, min_length=1)]
Number = Annotated[int, Field(ge=0, le=MOST, strict=True)] | None
router = APIRouter(prefix="/v1/quotas", tags=["quotas"])


class QuotaChange(BaseModel):
    """Limits to set. 0 means unlimited, null the server's default; omitted limits stay unchanged."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"queued": 1000, "bytes": 0}]})

    queued: Number = None
    running: Number = None
    bytes: Number = None
    streams: Number = None
    rate: Number = None
    uploads: Number = None


class QuotaNumbers(BaseModel):
    """A number per quota; null: unlimited, or not counted."""

    queued: int | None
    running: int | None
    bytes: int | None
    streams: int | None
    rate: int | None
    uploads: int | None


class QuotaBody(BaseModel):
    """A tenant's limits and usage. `own` lists limits that override the server's defaults."""

    tenant: str
    limits: QuotaNumbers
    used: QuotaNumbers
    own: dict[str, int] = Field(description="Limits that an operator has set for this tenant; 0 is any number.")
    scope: dict[str, str] = Field(description="Where a limit holds; N processes allow N times as much of some.")


class QuotaList(BaseModel):
    """A page of tenants, ordered by name. A tenant's key gets only its own tenant."""

    quotas: list[QuotaBody]
    next: str | None = Field(description="The cursor of the next page.")


@router.get(
    "",
    summary="Read quotas and their use",
    response_model=QuotaList,
    responses=problems.responses(*ALWAYS, "validation_failed"),
)
async def list_quotas(
    request: Request,
    who: Reader,
    tenant: Annotated[
        str | None, Query(description="Only this tenant; for operators.", max_length=255, pattern=NO_NUL)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=LONGEST)] = PAGE,
    cursor: Annotated[str | None, Query(max_length=255)] = None,
) -> JsonAnswer:
    """List limits and usage: for operators all tenants that have keys, files or own limits, else the key's tenant."""
    state = state_of(request)
    own = await state.quotas.own()
    if who.sees is not None:
        if tenant not in (None, who.requester_id):
            raise Problem("forbidden", "tenant: this key sees the quotas of its own tenant alone")
        names, after = [who.requester_id], None
    else:
        names, after = await _page(state, own, tenant, (limit, cursor))
    return JsonAnswer({"quotas": [await _body(state, name, own.get(name)) for name in names], "next": after})


@router.put(
    "/{tenant:path}",
    summary="Set a tenant's quotas",
    response_model=QuotaBody,
    openapi_extra=request_body(QuotaChange),
    responses=problems.responses(
        *ALWAYS, "validation_failed", "unsupported_media_type", "body_too_large", "document_conflict"
    ),
)
async def set_quotas(request: Request, tenant: Tenant) -> JsonAnswer:
    """Set limits for one tenant. This server applies them immediately, other servers within 5 seconds."""
    await check(request, "admin")
    name = _tenant_name(tenant)
    body = await read(request, QuotaChange)
    state, changes = state_of(request), body.model_dump(include=body.model_fields_set)
    own = await state.quotas.set(name, changes)
    await act(request, "quota.changed", target=name, requester_id=name, **changes)
    return JsonAnswer(await _body(state, name, own))


@router.delete(
    "/{tenant:path}",
    status_code=204,
    summary="Give a tenant the default quotas",
    response_class=Response,
    responses=problems.responses(*ALWAYS, "not_found", "validation_failed"),
)
async def remove_quotas(request: Request, tenant: Tenant, _who: Admin) -> Response:
    """Restore the default limits for one tenant: immediately on this server, within 5 seconds on other servers."""
    name = _tenant_name(tenant)
    if not await state_of(request).quotas.remove(name):
        raise Problem("not_found", "this tenant has no quotas of its own")
    await act(request, "quota.removed", target=name, requester_id=name)
    return Response(status_code=204)


def _tenant_name(tenant: str) -> str:
    if not tenant.isprintable():
        raise Problem("validation_failed", "tenant: a name has printable characters alone")
    return "" if tenant == NOBODY else tenant


async def _page(
    state: ServerState, own: dict[str, Quota], tenant: str | None, part: tuple[int, str | None]
) -> tuple[list[str], str | None]:
    """Return a page of tenant names in order, and the cursor of the next page."""
    if tenant is not None:
        return ["" if tenant == NOBODY else tenant], None
    limit, cursor = part
    keys = await state.keys.list() if state.keys is not None else []
    documents = await state.engine.store.documents(STORED_BYTES)
    names = sorted({*own, *(key.requester_id for key in keys), *(document.id for document in documents)} - {""})
    names = [name for name in ["", *names] if cursor is None or name > cursor]
    return names[:limit], names[limit - 1] if len(names) > limit else None


async def _body(state: ServerState, tenant: str, own: Quota | None) -> dict[str, Any]:
    limits = state.quotas.limits_of(tenant)
    used = {**await state.quotas.used(tenant), "streams": state.streams.of_tenant(tenant), "rate": None}
    set_ = {name: value for name, value in (own or Quota())._asdict().items() if value is not None}
    visible_limits = {name: value or None for name, value in limits._asdict().items()}
    return {"tenant": tenant, "limits": visible_limits, "used": used, "own": set_, "scope": SCOPE}
