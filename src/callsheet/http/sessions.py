"""Browser sessions: an API key, sent once, becomes a cookie that scripts cannot read and other sites cannot use.

The cookie is random; the store holds its hash and the id of its key. Each request checks both in the store, so that
revoking a key, its expiry or a lost scope ends or limits its sessions immediately, on every process. Open streams of an
ended session close immediately in the process that ended the session, elsewhere within 15 s (`sse.py`). A second
document lists the sessions of each key: their number is limited, and a new session replaces the oldest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import DocumentConflict
from callsheet.store.clock import TOLERANCE_MS
from callsheet.store.protocol import Document

from .hosts import SAFE, is_origin
from .keys import ApiKey, ApiKeys, Principal, principal_of
from .problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

    from callsheet.store.protocol import Store

KIND = "studio_session"
OF_KEY = "studio_sessions_of"
MOST_OF_KEY = 100  # concurrent sessions per key; also sign-ins per minute, except for operators
MINUTE_MS = 60_000
COOKIE = "callsheet_studio"
PROOF = "X-Callsheet-Studio"
LIFE_S = 7 * 86_400
SWEEP = 0.05  # share of sign-ins that also delete expired sessions
StartTimes = dict[str, int]  # start times of a key's sessions by id, by the store's clock
ROLES = (("admin", "admin"), ("jobs:write", "operator"), ("jobs:read", "viewer"))


class Session(NamedTuple):
    """A signed-in browser; `who` is the key's owner with the key's present scopes."""

    who: Principal
    key_name: str
    expires_at: int | None


class Sessions:
    """The browser sessions of a store. `keys` None: the server requires no keys, and has no sessions."""

    def __init__(self, store: Store, keys: ApiKeys | None) -> None:
        self._store = store
        self._keys = keys
        self.on_end: list[Callable[[str], None]] = []  # called with the id of each session ended here

    async def begin(self, keys: ApiKeys, text: str, count: Callable[[Principal], None]) -> tuple[str, Session]:
        """Sign in with a key. Returns the cookie's value and the session; raises Problem `unauthorized` or `forbidden`.

        `count` counts the request against the key's rate before anything is stored.
        """
        key = await keys.present(text)
        if key is None:
            raise Problem("unauthorized", "this key is not known, or not any more")
        if role_of(_principal(key)) is None:
            raise Problem("forbidden", "this key may not read jobs; sign in with one that has the scope jobs:read")
        count(_principal(key))
        now, value = await self._store.now(), secrets.token_urlsafe(32)
        if random.random() < SWEEP:  # noqa: S311 - not each time: it reads all sessions
            await self._sweep(now)
        expires_at = now + LIFE_S * 1000
        body = {"key_id": key.key_id, "key_hash": keys.digest(text), "expires_at": expires_at}
        await self._store.put_document(Document(KIND, _digest(value), json.dumps(body), 0))
        try:
            await self._enlist(_principal(key, value), now)
        except Problem:
            await self._store.delete_document(KIND, _digest(value))
            raise
        return value, Session(_principal(key, value), key.name, expires_at)

    async def find(self, value: str) -> Session | None:
        """Return the session of a cookie, or None if the session is unknown or expired, or its key invalid."""
        documents = await self._store.documents(KIND, _digest(value)) if value and self._keys is not None else []
        if not documents or self._keys is None:
            return None
        body = json.loads(documents[0].body)
        if not is_good(body["expires_at"], await self._store.now(), LIFE_S):
            return None
        key = await self._keys.current(body["key_id"], body["key_hash"])
        return None if key is None else Session(_principal(key, value), key.name, body["expires_at"])

    async def end(self, value: str) -> None:
        """Sign out: delete the session, even an expired session."""
        session_id = _digest(value)
        for document in await self._store.documents(KIND, session_id):
            await self._change_list(json.loads(document.body)["key_id"], lambda starts: _without(starts, session_id))
        await self._end(session_id)

    async def holds(self, who: Principal) -> bool:
        """Return whether the caller's session is still valid; True for a caller with a key."""
        if not who.session_id:
            return True
        documents = await self._store.documents(KIND, who.session_id)
        now = await self._store.now()
        return bool(documents) and is_good(json.loads(documents[0].body)["expires_at"], now, LIFE_S)

    async def _end(self, session_id: str) -> None:
        await self._store.delete_document(KIND, session_id)
        for listener in self.on_end:
            listener(session_id)

    async def _enlist(self, who: Principal, now: int) -> None:
        """Add a session to its key's list; a full list loses its oldest session. Raises Problem `too_many_requests`."""

        def with_another(starts: StartTimes) -> StartTimes:
            good = {one: at for one, at in starts.items() if now - at < LIFE_S * 1000}
            if not who.admin and sum(abs(now - at) < MINUTE_MS for at in good.values()) >= MOST_OF_KEY:
                detail = f"this key has signed in {MOST_OF_KEY} times within a minute; come back in a minute"
                raise Problem("too_many_requests", detail, headers={"Retry-After": str(MINUTE_MS // 1000)})
            youngest = sorted(good.items(), key=lambda item: item[1])[1 - MOST_OF_KEY :]
            return {**dict(youngest), who.session_id: now}

        for session_id in await self._change_list(who.key_id, with_another):
            await self._end(session_id)

    async def _change_list(self, key_id: str, change: Callable[[StartTimes], StartTimes]) -> set[str]:
        """Rewrite a key's list of sessions with `change`. Returns the ids of sessions that the change removed."""
        while True:
            documents = await self._store.documents(OF_KEY, key_id)
            starts: StartTimes = json.loads(documents[0].body) if documents else {}
            remaining = change(starts)
            body = Document(OF_KEY, key_id, json.dumps(remaining), documents[0].version if documents else 0)
            with contextlib.suppress(DocumentConflict):  # a concurrent sign-in or sign-out
                await self._store.put_document(body)
                return starts.keys() - remaining.keys()

    async def _sweep(self, now: int) -> None:
        for old in await self._store.documents(KIND):
            if json.loads(old.body)["expires_at"] <= now:
                await self._store.delete_document(KIND, old.id)
        for document in await self._store.documents(OF_KEY):
            if all(now - at >= LIFE_S * 1000 for at in json.loads(document.body).values()):
                await self._store.delete_document(OF_KEY, document.id)


def role_of(who: Principal) -> str | None:
    """Return the caller's studio role: admin, operator or viewer; None if the caller may not read jobs."""
    return next((role for scope, role in ROLES if who.may(scope)), None)


def check_proof(request: Request) -> None:
    """Refuse requests that another site could make a browser send with our cookie; raises Problem `forbidden`.

    A form of another site cannot set the header; a script would need a CORS permission, which this server never grants.
    """
    if request.method in SAFE:
        return
    if request.headers.get(PROOF) != "1" or not _same_origin(request):
        detail = (
            f"a request with a session comes from the studio's own page, with the header {PROOF}: 1; else send a key"
        )
        raise Problem("forbidden", detail)


def _same_origin(request: Request) -> bool:
    """Return whether the browser reports the same origin.

    Browsers send `Sec-Fetch-Site` over TLS and on localhost, `Origin` everywhere.
    """
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    return is_origin(request.headers.get("origin", ""), request.headers.get("host", ""))


def _principal(key: ApiKey, value: str = "") -> Principal:
    return principal_of(key)._replace(session_id=_digest(value) if value else "")


def _without(starts: StartTimes, session_id: str) -> StartTimes:
    return {one: at for one, at in starts.items() if one != session_id}


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()


def is_good(expires_at: int, now: int, life_s: float) -> bool:
    """Return whether a session or ticket is valid at `now`.

    A remaining time above one lifetime means that its creator's clock was ahead: such a session or ticket is expired.
    """
    return now < expires_at <= now + round(life_s * 1000) + TOLERANCE_MS
