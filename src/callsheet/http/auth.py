"""Authentication by API key, worker token or session, and authorization by scope.

Each route names its scope: `Depends(allowed("jobs:read"))`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache

from starlette.requests import Request

from .connections import admit
from .keys import Principal
from .problems import Problem
from .sessions import COOKIE, check_proof
from .state import ServerState, state_of
from .worker_registry import WORKER_HEAD

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="callsheet"'}
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key; `callsheet keys create` makes one."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "`POST /studio/session` gives it."},
}
NOBODY = Principal("", "", frozenset({"admin"}))


@cache
def requires(scope: str) -> Callable[[Request], Awaitable[Principal]]:
    """Return a dependency that authenticates the caller, checks its scope and returns its Principal."""

    async def dependency(request: Request) -> Principal:
        return await check(request, scope)

    return dependency


async def check(request: Request, scope: str) -> Principal:
    """Return the caller's Principal.

    Raises Problem for a missing or unknown key, an exceeded rate or a missing scope.
    """
    state, text = state_of(request), key_of(request)
    who = await (authenticate(state, text) if text or COOKIE not in request.cookies else _signed_in(state, request))
    admit(request.scope, who.key_id)
    request.scope["callsheet.principal"] = who
    if state.quotas.are_old:
        await state.quotas.refresh()
    state.rates.check(who, quota=state.quotas.limits_of(who.requester_id))
    if not who.may(scope):
        raise Problem("forbidden", f"this key lacks the scope {scope}")
    state.audit.note_use(request, who)
    return who


async def authenticate(state: ServerState, text: str) -> Principal:
    """Return the Principal of an API key or worker token; raises Problem `unauthorized`."""
    if state.keys is None:
        return NOBODY
    if text.startswith(WORKER_HEAD):
        return await state.workers.principal(text)
    who = await state.keys.principal(text) if text else None
    if who is None:
        detail = "this key is not known, or not any more" if text else "send an API key: Authorization: Bearer KEY"
        raise Problem("unauthorized", detail, headers=CHALLENGE)
    return who


async def _signed_in(state: ServerState, request: Request) -> Principal:
    """Return the Principal of the request's session cookie.

    Raises Problem `unauthorized` without a valid session, and `forbidden` without the studio's header and origin.
    """
    if state.keys is None:
        return NOBODY
    session = await state.sessions.find(request.cookies[COOKIE])
    if session is None:
        raise Problem("unauthorized", "your session is over, or its key was revoked; sign in again", headers=CHALLENGE)
    check_proof(request)
    return session.who


def key_of(request: Request) -> str:
    """Return the API key that a request carries, '' if there is none."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and text:
        return text.strip()
    return request.headers.get("x-api-key", "").strip()
