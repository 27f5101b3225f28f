"""API keys: create, find, check and revoke. The store holds a keyed hash of each key, never the key itself.

A key is `cs_live_` + 10 characters to find it by + 32 random ones (190 bits) + 6 characters of checksum: a text with a
wrong form or checksum causes no store lookup.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import InvalidInput
from callsheet.store.protocol import Document

from .buckets import RecentCache

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

KIND = "api_key"
BOOTSTRAP = "bootstrap"  # the id of the key that lives in the environment
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
HEAD = "cs_live_"
FIND, SECRET, SUM = 10, 32, 6
SCOPES = ("jobs:read", "jobs:write", "worker", "worker:all", "admin")
DEFAULT_SCOPES = SCOPES[:2]
IMPLIED_BY = {"worker": "worker:all"}  # a right for all tenants includes each single tenant
KEPT_S = 30.0  # how long store lookups are cached: a revoked key works no longer than this
LEAST_LETTERS, LEAST_VARIETY = 16, 8  # of a key that a person chose
NOBODY = hashlib.sha256(b"nobody").hexdigest()


class Principal(NamedTuple):
    """The authenticated caller. `requester_id` is its tenant; an admin sees all tenants. `teams` share their videos.

    `worker_id` identifies an enrolled worker; `queues` and `tenants` limit its work, and None means all of them.
    `session_id` identifies a browser session, '' for a caller with a key.
    """

    key_id: str
    requester_id: str
    scopes: frozenset[str]
    rate: float | None = None
    worker_id: str | None = None
    queues: frozenset[str] | None = None
    tenants: frozenset[str] | None = None
    draining: bool = False
    teams: tuple[str, ...] = ()
    session_id: str = ""

    @property
    def admin(self) -> bool:
        """Whether the caller has the scope `admin`, which makes it an operator."""
        return "admin" in self.scopes

    @property
    def sees(self) -> str | None:
        """The tenant whose jobs the caller sees; None means all tenants."""
        return None if self.admin else self.requester_id

    def may(self, scope: str) -> bool:
        """Return whether the caller has a scope, directly or implied by another scope."""
        return scope in self.scopes or "admin" in self.scopes or IMPLIED_BY.get(scope) in self.scopes


class ApiKey(NamedTuple):
    """A stored API key. Times are milliseconds of the store's clock."""

    key_id: str
    name: str
    requester_id: str
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    rate: float | None
    teams: tuple[str, ...] = ()


class ApiKeys:
    """The API keys of a store. `bootstrap` is an additional admin key that exists only in the environment."""

    def __init__(self, store: Store, *, bootstrap: str = "", pepper: str | None = None) -> None:
        self._store = store
        self._pepper = os.environ.get("CALLSHEET_KEY_PEPPER", "") if pepper is None else pepper
        self._principals: RecentCache[Principal] = RecentCache()
        self._unknown: RecentCache[bool] = RecentCache()  # separate, so that guesses evict no valid keys
        self._bootstrap = self._hash(strong(bootstrap)) if bootstrap else ""
        self.on_revoke: list[Callable[[str], None]] = []  # called with the id of each key revoked here

    async def create(  # noqa: PLR0913 - what a key has
        self,
        name: str,
        *,
        requester_id: str = "",
        scopes: Sequence[str] = DEFAULT_SCOPES,
        ttl_s: float | None = None,
        rate: float | None = None,
        teams: Sequence[str] = (),
    ) -> tuple[str, ApiKey]:
        """Create a key. Returns its text, which is stored nowhere, and its record. Raises InvalidInput."""
        if unknown := set(scopes) - set(SCOPES):
            raise InvalidInput(f"no scope {', '.join(sorted(unknown))}; there are {', '.join(SCOPES)}")
        if rate is not None and rate <= 0:
            raise InvalidInput("a rate is a number of requests in a second, above 0")
        now = await self._store.now()
        text = new_key()
        expires_at = None if ttl_s is None else now + round(ttl_s * 1000)
        key = ApiKey(lookup_id(text), name, requester_id, tuple(scopes), now, expires_at, None, rate, tuple(teams))
        body = {**key._asdict(), "hash": self._hash(text)}
        await self._store.put_document(Document(KIND, key.key_id, json.dumps(body), 0))
        return text, key

    async def list(self) -> list[ApiKey]:
        """Return all keys, including revoked keys."""
        return [_read(json.loads(document.body)) for document in await self._store.documents(KIND)]

    async def revoke(self, key_id: str) -> bool:
        """Revoke a key; returns False for an unknown key.

        Other servers accept the key for up to KEPT_S seconds more.
        """
        for document in await self._store.documents(KIND, key_id):
            body = {**json.loads(document.body), "revoked_at": await self._store.now()}
            await self._store.put_document(document._replace(body=json.dumps(body)))
            self._principals.clear()
            for listener in self.on_revoke:
                listener(key_id)
            return True
        return False

    async def principal(self, text: str) -> Principal | None:
        """Return the Principal of a key, or None, in the same time, for an unknown, revoked or expired key."""
        digest = self._hash(text)
        if self._bootstrap and hmac.compare_digest(digest, self._bootstrap):
            return Principal(BOOTSTRAP, "", frozenset({"admin"}))
        principal = self._principals.get(digest, KEPT_S)
        if principal is not None or self._unknown.get(digest, KEPT_S):
            return principal
        principal = await self._look_up(text, digest)
        if principal is None:
            self._unknown.put(digest, value=True)
        else:
            self._principals.put(digest, principal)
        return principal

    async def present(self, text: str) -> ApiKey | None:
        """Return the stored record of a key, bypassing the cache; None for an unknown, revoked or expired key."""
        digest = self._hash(text)
        if self._bootstrap and hmac.compare_digest(digest, self._bootstrap):
            return await self.current(BOOTSTRAP, digest)
        return await self.current(lookup_id(text), digest) if is_well_formed(text) else None

    async def current(self, key_id: str, digest: str) -> ApiKey | None:
        """Return the stored record of a key by id and hash, bypassing the cache; None for an invalid key."""
        if key_id == BOOTSTRAP:
            same = bool(self._bootstrap) and hmac.compare_digest(digest, self._bootstrap)
            return ApiKey(BOOTSTRAP, "the server's own key", "", ("admin",), 0, None, None, None) if same else None
        documents = await self._store.documents(KIND, key_id)
        body = json.loads(documents[0].body) if documents else {"hash": NOBODY}
        if not hmac.compare_digest(digest, body["hash"]) or not documents:
            return None
        key = _read(body)
        return key if await self._good(key) else None

    def digest(self, text: str) -> str:
        """Return the keyed hash of a key, which is safe to store."""
        return self._hash(text)

    async def holds(self, who: Principal) -> bool:
        """Return whether the caller's key is still valid. Open streams check this periodically."""
        if who.key_id == BOOTSTRAP:
            return True
        documents = await self._store.documents(KIND, who.key_id)
        return bool(documents) and await self._good(_read(json.loads(documents[0].body)))

    async def _good(self, key: ApiKey) -> bool:
        return key.revoked_at is None and (key.expires_at is None or key.expires_at > await self._store.now())

    async def _look_up(self, text: str, digest: str) -> Principal | None:
        key = await self.current(lookup_id(text), digest) if is_well_formed(text) else None
        return None if key is None else principal_of(key)

    def _hash(self, text: str) -> str:
        return keyed_hash(text, self._pepper)


def strong(text: str) -> str:
    """Return a key that a person chose, if it is hard to guess; raises InvalidInput, without the key in its message."""
    if len(text) < LEAST_LETTERS or len(set(text)) < LEAST_VARIETY:
        detail = f"CALLSHEET_API_KEY needs at least {LEAST_LETTERS} characters, {LEAST_VARIETY} of them different"
        raise InvalidInput(f"{detail}; make one with: openssl rand -hex 24")
    return text


def new_key(head: str = HEAD, letters: str = "") -> str:
    """Return the text of a new key. `letters` are the characters to find it by, random if empty."""
    body = head + (letters or new_letters(FIND)) + new_letters(SECRET)
    return body + _sum(body)


def new_letters(count: int) -> str:
    """Return `count` random letters and digits."""
    return "".join(secrets.choice(LETTERS) for _ in range(count))


def is_well_formed(text: str, head: str = HEAD) -> bool:
    """Return whether a text has the form and checksum of a key; other texts need no store lookup."""
    return (
        len(text) == len(head) + FIND + SECRET + SUM
        and text.isascii()
        and text.startswith(head)
        and text[-SUM:] == _sum(text[:-SUM])
    )


def _sum(text: str) -> str:
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(SUM):
        number, digit = divmod(number, len(LETTERS))
        digits = LETTERS[digit] + digits
    return digits


def lookup_id(text: str, head: str = HEAD) -> str:
    """Return the characters of a key by which the store finds it."""
    return text[len(head) : len(head) + FIND]


def keyed_hash(text: str, pepper: str | None = None) -> str:
    """Return the keyed hash of a secret for the store.

    The pepper comes from the environment, so a copy of the store alone verifies no guessed secret.
    """
    secret = (os.environ.get("CALLSHEET_KEY_PEPPER", "") if pepper is None else pepper).encode()
    return hmac.new(b"callsheet-key\0" + secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def principal_of(key: ApiKey) -> Principal:
    """Return the Principal that holds a key."""
    return Principal(key.key_id, key.requester_id, frozenset(key.scopes), key.rate, teams=key.teams)


def _read(body: dict[str, object]) -> ApiKey:
    values = {name: body.get(name) for name in ApiKey._fields}
    values["scopes"] = tuple(body["scopes"])  # type: ignore[arg-type] # our own document
    values["teams"] = tuple(body.get("teams") or ())  # type: ignore[arg-type]
    return ApiKey(**values)  # type: ignore[arg-type]
