"""`/v1/audit`: security-relevant actions, newest first. A tenant reads its own entries, operators read all entries."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from callsheet.http import problems
from callsheet.http.auth import requires
from callsheet.http.json_bodies import JsonAnswer
from callsheet.http.keys import Principal
from callsheet.http.parameters import NO_NUL
from callsheet.http.problems import Problem
from callsheet.http.state import state_of
from callsheet.kernel.audit import ACTIONS, AuditEntry
from callsheet.store.audit import AuditQuery

ALWAYS = ("unauthorized", "forbidden", "too_many_requests", "quota_exceeded", "store_unavailable")
LATEST_MS = 253_402_300_799_999
Reader = Annotated[Principal, Depends(requires("jobs:write"))]
Moment = Annotated[int | None, Query(ge=0, le=LATEST_MS, description="Milliseconds since the epoch.")]
router = APIRouter(prefix="/v1/audit", tags=["audit"])


class AuditBody(BaseModel):
    """One action. A tenant sees an operator's action, but neither the operator's identity nor the address."""

    id: str
    at: int = Field(description="Milliseconds since the epoch, by the store's clock.")
    tenant: str
    actor: str = Field(description="A key's id, a worker's id, `cli`, or `operator`; '' for somebody unknown.")
    action: str
    target: str
    outcome: str = Field(description="done or refused")
    address: str
    request_id: str
    details: dict[str, Any]


class AuditList(BaseModel):
    """A page of audit entries."""

    entries: list[AuditBody]
    next: str | None = Field(description="The cursor of the next page.")


@router.get(
    "",
    summary="Read the audit log",
    response_model=AuditList,
    responses=problems.responses(*ALWAYS, "validation_failed"),
)
async def list_acts(  # noqa: PLR0913, PLR0917 - each is a filter
    request: Request,
    who: Reader,
    action: Annotated[str | None, Query(max_length=64, description="One action, or a family such as `key.`")] = None,
    actor: Annotated[str | None, Query(max_length=255, pattern=NO_NUL)] = None,
    tenant: Annotated[
        str | None, Query(max_length=255, pattern=NO_NUL, description="Only this tenant's; for operators.")
    ] = None,
    since: Moment = None,
    until: Moment = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,15}-[0-9]{1,18}$", description="`next` of a page.")] = None,
) -> JsonAnswer:
    """List audit entries. Needs the scope jobs:write. A key without a tenant sees none, unless it is an operator's."""
    if action is not None and action not in ACTIONS and not any(name.startswith(action) for name in FAMILIES):
        raise Problem("validation_failed", f"action: there is no {action[:64]!r}; see the actions in the guide")
    if who.sees is not None and (not who.requester_id or tenant not in (None, who.requester_id)):
        raise Problem("forbidden", "tenant: this key sees the audit log of its own tenant alone, if it has one")
    requester_id = tenant if who.sees is None else who.sees
    state = state_of(request)
    await state.audit.flush()
    page = await state.engine.store.audit_find(AuditQuery(requester_id, action, actor, since, until, limit, cursor))
    bodies = [audit_body(entry, who) for entry in page.entries]
    if who.sees is not None and actor is not None:  # filtering by actor must not reveal a hidden operator
        bodies = [body for body in bodies if body["actor"] == actor]
        return JsonAnswer({"entries": bodies, "next": page.cursor if bodies else None})
    return JsonAnswer({"entries": bodies, "next": page.cursor})


OPERATOR = "operator"
FAMILIES = {f"{action.partition('.')[0]}." for action in ACTIONS}


def audit_body(entry: AuditEntry, who: Principal | None = None) -> dict[str, Any]:
    """Return an audit entry as JSON, with operators hidden from tenants. An operator reads if `who` is None."""
    details = json.loads(entry.details)
    hides_operator = who is not None and who.sees is not None and details.get("operator")
    return {
        "id": entry.entry_id,
        "at": entry.at,
        "tenant": entry.requester_id,
        "actor": OPERATOR if hides_operator else entry.actor,
        "action": entry.action,
        "target": entry.target,
        "outcome": entry.outcome,
        "address": "" if hides_operator else entry.address,
        "request_id": "" if hides_operator else entry.request_id,
        "details": details,
    }
