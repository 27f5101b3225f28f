"""`/studio/session`: sign in with an API key, read the current session, sign out."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from starlette.requests import Request
from starlette.responses import Response

from callsheet.http import problems
from callsheet.http.audit import act
from callsheet.http.auth import NOBODY
from callsheet.http.connections import admit
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.keys import is_well_formed
from callsheet.http.problems import Problem
from callsheet.http.sessions import COOKIE, LIFE_S, Session, check_proof, role_of
from callsheet.http.state import state_of

EVERYBODY = Session(NOBODY, "", None)
router = APIRouter(prefix="/studio/session", tags=["studio"])


class SignIn(BaseModel):
    """The API key to sign in with. The browser does not keep the key."""

    model_config = ConfigDict(strict=True, extra="forbid")
    key: SecretStr = Field(min_length=1, max_length=200)


class SessionBody(BaseModel):
    """The signed-in key. `teams` null: the key sees all teams. `auth` false: the server requires no API keys."""

    auth: bool
    key_id: str
    key_name: str
    role: str = Field(description="admin, operator or viewer")
    scopes: list[str]
    requester_id: str
    teams: list[str] | None
    expires_at: int | None = Field(description="Milliseconds since the epoch, by the store's clock.")


@router.post(
    "",
    status_code=201,
    summary="Sign in to the studio",
    response_model=SessionBody,
    openapi_extra=request_body(SignIn),
    responses=problems.responses(
        "unauthorized",
        "forbidden",
        "validation_failed",
        "unsupported_media_type",
        "body_too_large",
        "request_timeout",
        "too_many_requests",
    ),
)
async def sign_in(request: Request) -> Response:
    """Exchange an API key for a session cookie.

    Needs the header `X-Callsheet-Studio: 1` and a request from the studio's own origin.
    """
    check_proof(request)
    state = state_of(request)
    key = (await read(request, SignIn)).key.get_secret_value().strip()
    if state.keys is None:
        return JsonAnswer(_body(EVERYBODY), 201)
    with state.failed_sign_ins.count_failures(state.proxies.client_of(request), is_guessable=not is_well_formed(key)):
        value, session = await state.sessions.begin(state.keys, key, state.rates.check)
    if older := request.cookies.get(COOKIE):
        await state.sessions.end(older)
    admit(request.scope, session.who.key_id)
    request.scope["callsheet.principal"] = session.who
    await act(request, "session.signed_in", target=session.who.key_id)
    answer = JsonAnswer(_body(session), 201)
    answer.set_cookie(COOKIE, value, max_age=LIFE_S, **_cookie(request))
    return answer


@router.get(
    "",
    summary="Who is signed in",
    response_model=SessionBody,
    responses=problems.responses("unauthorized"),
)
async def who_am_i(request: Request) -> Response:
    """Read the name, role, scopes and teams of the signed-in key."""
    state = state_of(request)
    session = EVERYBODY if state.keys is None else await state.sessions.find(request.cookies.get(COOKIE, ""))
    if session is None:
        raise Problem("unauthorized", "nobody is signed in here; POST /studio/session with a key")
    admit(request.scope, session.who.key_id)
    return JsonAnswer(_body(session))


@router.delete(
    "", status_code=204, summary="Sign out", response_class=Response, responses=problems.responses("forbidden")
)
async def sign_out(request: Request) -> Response:
    """End the session. Its cookie is refused by every server process from now on."""
    check_proof(request)
    if value := request.cookies.get(COOKIE):
        sessions = state_of(request).sessions
        session = await sessions.find(value)
        await sessions.end(value)
        if session is not None:
            request.scope["callsheet.principal"] = session.who
            await act(request, "session.signed_out", target=session.who.key_id)
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, **_cookie(request))
    return answer


def _cookie(request: Request) -> dict[str, Any]:
    """Return the cookie's attributes: hidden from scripts and other sites; https only, if this request used https."""
    return {"path": "/", "httponly": True, "samesite": "strict", "secure": state_of(request).proxies.is_https(request)}


def _body(session: Session) -> dict[str, Any]:
    who = session.who
    return {
        "auth": session is not EVERYBODY,
        "key_id": who.key_id,
        "key_name": session.key_name,
        "role": role_of(who),
        "scopes": sorted(who.scopes),
        "requester_id": who.requester_id,
        "teams": None if who.admin else [who.requester_id],
        "expires_at": session.expires_at,
    }
