"""`/v1/keys`: create, list and revoke API keys, for administrators."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from callsheet.http import problems
from callsheet.http.audit import act
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.keys import ApiKey, ApiKeys
from callsheet.http.parameters import ALWAYS, Admin
from callsheet.http.problems import Problem
from callsheet.http.state import ServerState, state_of

KeyId = Annotated[str, Path(description="The letters by which a key is found.", max_length=64)]
Scope = Literal["jobs:read", "jobs:write", "worker", "worker:all", "admin"]
Name = Annotated[str, Field(min_length=1, max_length=255)]
router = APIRouter(prefix="/v1/keys", tags=["keys"])


class NewKey(BaseModel):
    """An API key to create. The key sees only its requester's jobs; a key with the scope `admin` sees all jobs."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "Anna's laptop", "requester_id": "acme"}]}
    )

    name: Name
    requester_id: Annotated[str, Field(max_length=255)] = ""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=5)] = ["jobs:read", "jobs:write"]
    teams: Annotated[list[Name], Field(max_length=50)] = []
    ttl_s: Annotated[int, Field(ge=1, le=10 * 366 * 86_400, strict=True)] | None = None
    rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = None


class KeyBody(BaseModel):
    """An API key without its secret. Times are milliseconds of the store's clock."""

    key_id: str
    name: str
    requester_id: str
    scopes: list[str]
    teams: list[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    rate: float | None


class KeyMade(KeyBody):
    """A new API key with its secret."""

    key: str = Field(description="Shown this once, and kept nowhere.")


class KeyList(BaseModel):
    """All API keys, newest first."""

    keys: list[KeyBody]


@router.post(
    "",
    status_code=201,
    summary="Make a key",
    response_model=KeyMade,
    openapi_extra=request_body(NewKey),
    responses=problems.responses(*ALWAYS, "validation_failed", "unsupported_media_type", "body_too_large", "auth_off"),
)
async def create(request: Request) -> JsonAnswer:
    """Create an API key. Only this response contains the key's text."""
    await check(request, "admin")
    body = await read(request, NewKey)
    text, key = await _keys(state_of(request)).create(
        body.name,
        requester_id=body.requester_id,
        scopes=body.scopes,
        ttl_s=body.ttl_s,
        rate=body.rate,
        teams=body.teams,
    )
    about = {"name": key.name, "scopes": " ".join(key.scopes)}
    await act(request, "key.created", target=key.key_id, requester_id=key.requester_id, **about)
    return JsonAnswer({"key": text, **_body(key)}, 201, headers={"Cache-Control": "no-store"})


@router.get("", summary="List keys", response_model=KeyList, responses=problems.responses(*ALWAYS, "auth_off"))
async def list_keys(request: Request, _who: Admin) -> JsonAnswer:
    """List all API keys, including revoked and expired keys."""
    keys = await _keys(state_of(request)).list()
    return JsonAnswer({"keys": [_body(key) for key in sorted(keys, key=lambda key: -key.created_at)]})


@router.delete(
    "/{key_id}",
    status_code=204,
    summary="Revoke a key",
    response_class=Response,
    responses=problems.responses(*ALWAYS, "not_found", "auth_off"),
)
async def revoke(request: Request, key_id: KeyId, _who: Admin) -> Response:
    """Revoke an API key. Servers refuse it within 30 seconds at the latest; its sessions end immediately."""
    keys = _keys(state_of(request))
    owner = next((key.requester_id for key in await keys.list() if key.key_id == key_id), "")
    if not await keys.revoke(key_id):
        raise Problem("not_found", "no such key")
    await act(request, "key.revoked", target=key_id, requester_id=owner)
    return Response(status_code=204)


def _keys(state: ServerState) -> ApiKeys:
    if state.keys is None:
        raise Problem("auth_off", "this server asks nobody for a key")
    return state.keys


def _body(key: ApiKey) -> dict[str, Any]:
    return {**key._asdict(), "scopes": list(key.scopes), "teams": list(key.teams)}
