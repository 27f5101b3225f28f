"""Sessions of browsers: an API key, sent once, becomes a cookie that scripts cannot read and other sites cannot use.

The cookie is random; the store holds its hash, and which key it came from. Each request asks the store for both, so
that a key that was revoked, has expired or lost a scope ends or changes its sessions at once, on every process. Open
streams of a session that ends are closed at once in the process that ends it, elsewhere within 15 s (`sse.py`).
"""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from callsheet.store.protocol import Document

from .hosts import SAFE, is_origin
from .keys import ApiKey, ApiKeys, Principal, principal_of
from .problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

    from callsheet.store.protocol import Store

KIND = "studio_session"
COOKIE = "callsheet_studio"
PROOF = "X-Callsheet-Studio"
LIFE_S = 7 * 86_400
SWEEP = 0.05  # the share of new sessions at which those that are over are removed
ROLES = (("admin", "admin"), ("jobs:write", "operator"), ("jobs:read", "viewer"))


class Session(NamedTuple):
    """Somebody who signed in; `who` is the key's owner with the scopes that the key has now."""

    who: Principal
    key_name: str
    expires_at: int | None


class Sessions:
    """The sessions of a store. `keys` None: everybody is let in, and nobody signs in."""

    def __init__(self, store: Store, keys: ApiKeys | None) -> None:
        self._store = store
        self._keys = keys
        self.on_end: list[Callable[[str], None]] = []  # told the id of each session that ends here

    async def begin(self, keys: ApiKeys, text: str, count: Callable[[Principal], None]) -> tuple[str, Session]:
        """Sign in with a key: the cookie's value and the session; raises Problem `unauthorized` or `forbidden`.

        `count` counts the request against its key's rate, before anything is written.
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
        return value, Session(_principal(key, value), key.name, expires_at)

    async def find(self, value: str) -> Session | None:
        """The session of a cookie; None when it is unknown, over, or its key is not good any more."""
        documents = await self._store.documents(KIND, _digest(value)) if value and self._keys is not None else []
        if not documents or self._keys is None:
            return None
        body = json.loads(documents[0].body)
        if body["expires_at"] <= await self._store.now():
            return None
        key = await self._keys.current(body["key_id"], body["key_hash"])
        return None if key is None else Session(_principal(key, value), key.name, body["expires_at"])

    async def end(self, value: str) -> None:
        """Sign out; of a session that is over already, too."""
        await self._store.delete_document(KIND, _digest(value))
        for told in self.on_end:
            told(_digest(value))

    async def holds(self, who: Principal) -> bool:
        """Whether the session that somebody came by is not over; True for whoever came by a key."""
        if not who.session_id:
            return True
        documents = await self._store.documents(KIND, who.session_id)
        return bool(documents) and json.loads(documents[0].body)["expires_at"] > await self._store.now()

    async def _sweep(self, now: int) -> None:
        for old in await self._store.documents(KIND):
            if json.loads(old.body)["expires_at"] <= now:
                await self._store.delete_document(KIND, old.id)


def role_of(who: Principal) -> str | None:
    """One word for what somebody may do in the studio: admin, operator or viewer; None for nothing."""
    return next((role for scope, role in ROLES if who.may(scope)), None)


def check_proof(request: Request) -> None:
    """Refuse what another site could have made a browser send with our cookie; raises Problem `forbidden`.

    A form cannot send the header, a script of another origin would have to ask first, and nobody here says yes.
    """
    if request.method in SAFE:
        return
    if request.headers.get(PROOF) != "1" or not _same_origin(request):
        told = f"a request with a session comes from the studio's own page, with the header {PROOF}: 1; else send a key"
        raise Problem("forbidden", told)


def _same_origin(request: Request) -> bool:
    """What the browser itself says; it tells `Sec-Fetch-Site` over TLS and on localhost, `Origin` everywhere."""
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    return is_origin(request.headers.get("origin", ""), request.headers.get("host", ""))


def _principal(key: ApiKey, value: str = "") -> Principal:
    return principal_of(key)._replace(session_id=_digest(value) if value else "")


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()
