"""Endpoints: where a requester's events go, and the secrets that sign them. They are documents; secrets are sealed.

A requester has one more set of secrets, of its own, for URLs that its jobs carry (`status_webhook_url`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from typing import TYPE_CHECKING, NamedTuple, Protocol

from callsheet.kernel.errors import CallsheetError, InvalidInput, Refused
from callsheet.store.protocol import Document

from .guard import Rules, target_of
from .signing import new_secret

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

KIND = "webhook_endpoint"
HEAD = "whe_"
OWN = "own_"
OVERLAP_MS = 24 * 3_600_000
MOST_ENDPOINTS = 100
MAX_TEXT = 255


class EndpointNotFound(CallsheetError):
    """No such endpoint for this requester."""

    code = "endpoint_not_found"


class TooManyEndpoints(Refused):
    """A requester has as many endpoints as it may."""

    code = "too_many_endpoints"


class Sealer(Protocol):
    """Seals the secrets that the store keeps. What is sealed opens for the same owner and requester only."""

    async def seal(self, plain: str, *, owner: str, requester_id: str) -> str:
        """The sealed text."""
        ...

    async def open(self, sealed: str, *, owner: str, requester_id: str) -> str:
        """What was sealed."""
        ...


class SealedSecret(NamedTuple):
    """One secret of an endpoint; `expires_at` None: it is the present one."""

    secret_id: str
    sealed: str
    created_at: int
    expires_at: int | None = None


class Endpoint(NamedTuple):
    """Where events go. `url` '' stands for the URLs that the requester's jobs carry. `version` guards changes."""

    endpoint_id: str
    requester_id: str
    url: str
    description: str
    created_at: int
    disabled_at: int | None
    disabled_reason: str
    secrets: tuple[SealedSecret, ...]
    version: int = 0

    def good(self, now: int) -> list[SealedSecret]:
        """The secrets that sign now, the newest first."""
        found = [secret for secret in self.secrets if secret.expires_at is None or secret.expires_at > now]
        return sorted(found, key=lambda secret: -secret.created_at)


class Endpoints:
    """The endpoints of a store. `requester_id` None sees all of them, for operators."""

    def __init__(self, store: Store, sealer: Sealer, rules: Rules | None = None) -> None:
        self._store = store
        self._sealer = sealer
        self.rules = rules or Rules()
        self._line = asyncio.Lock()  # of those who create endpoints: each is counted before the next one

    async def create(self, requester_id: str, url: str, description: str = "") -> tuple[Endpoint, str]:
        """A new endpoint and its secret, which is told once; raises InvalidTarget, TooManyEndpoints."""
        target_of(url, self.rules)
        async with self._line:
            if len(await self.list(requester_id)) >= MOST_ENDPOINTS:
                raise TooManyEndpoints(f"there are {MOST_ENDPOINTS} endpoints already; delete one")
            return await self._make(HEAD + secrets.token_hex(10), requester_id, url, description)

    async def list(self, requester_id: str | None) -> list[Endpoint]:
        """All endpoints of a requester, the oldest first."""
        found = [_read(document) for document in await self._store.documents(KIND)]
        mine = [e for e in found if requester_id in (None, e.requester_id) and e.url]
        return sorted(mine, key=lambda e: (e.created_at, e.endpoint_id))

    async def get(self, endpoint_id: str, requester_id: str | None) -> Endpoint:
        """One endpoint; raises EndpointNotFound also for another requester's."""
        found = await self._store.documents(KIND, endpoint_id) if endpoint_id.startswith((HEAD, OWN)) else []
        endpoint = _read(found[0]) if found else None
        if endpoint is None or requester_id not in (None, endpoint.requester_id):
            raise EndpointNotFound(f"no endpoint {endpoint_id[:64]}")
        return endpoint

    async def change(
        self, endpoint_id: str, requester_id: str | None, *, url: str | None = None, description: str | None = None
    ) -> Endpoint:
        """Another URL or description."""
        endpoint = await self.get(endpoint_id, requester_id)
        if url is not None:
            target_of(url, self.rules)
            endpoint = endpoint._replace(url=url)
        if description is not None:
            endpoint = endpoint._replace(description=_short(description))
        return await self._save(endpoint)

    async def rotate(
        self, endpoint_id: str, requester_id: str | None, *, overlap_ms: int = OVERLAP_MS
    ) -> tuple[Endpoint, str]:
        """A new secret, told once. The old ones sign beside it for `overlap_ms`; 0 ends them at once."""
        endpoint, now = await self.get(endpoint_id, requester_id), await self._store.now()
        ends = now + max(0, min(overlap_ms, OVERLAP_MS))
        old = [s._replace(expires_at=min(s.expires_at or ends, ends)) for s in endpoint.good(now)]
        text, sealed = await self._new_secret(endpoint.endpoint_id, endpoint.requester_id, now)
        kept = tuple(s for s in old if s.expires_at is not None and s.expires_at > now)[:1]  # two sign at most
        return await self._save(endpoint._replace(secrets=(sealed, *kept))), text

    async def disable(self, endpoint_id: str, requester_id: str | None, reason: str) -> Endpoint:
        """Send nothing more there; its events become dead letters."""
        endpoint = await self.get(endpoint_id, requester_id)
        if endpoint.disabled_at is not None:
            return endpoint
        return await self._save(endpoint._replace(disabled_at=await self._store.now(), disabled_reason=reason))

    async def enable(self, endpoint_id: str, requester_id: str | None) -> Endpoint:
        """Send again from now on."""
        endpoint = await self.get(endpoint_id, requester_id)
        return await self._save(endpoint._replace(disabled_at=None, disabled_reason=""))

    async def delete(self, endpoint_id: str, requester_id: str | None) -> None:
        """Forget an endpoint and its secrets."""
        endpoint = await self.get(endpoint_id, requester_id)
        await self._store.delete_document(KIND, endpoint.endpoint_id)

    async def own(self, requester_id: str) -> Endpoint:
        """The requester's own secrets, for URLs that its jobs carry; raises EndpointNotFound."""
        return await self.get(own_id(requester_id), requester_id)

    async def new_own_secret(self, requester_id: str, *, overlap_ms: int = OVERLAP_MS) -> tuple[Endpoint, str]:
        """Make the requester's own secret, or rotate it."""
        try:
            return await self.rotate(own_id(requester_id), requester_id, overlap_ms=overlap_ms)
        except EndpointNotFound:
            return await self._make(own_id(requester_id), requester_id, "", "")

    async def open(self, endpoint: Endpoint, now: int) -> tuple[str, ...]:
        """The secrets that sign now, in the clear."""
        name, requester_id = endpoint.endpoint_id, endpoint.requester_id
        good = endpoint.good(now)
        return tuple(
            [
                await self._sealer.open(
                    secret.sealed, owner=owner_of(name, secret.secret_id), requester_id=requester_id
                )
                for secret in good
            ]
        )

    async def _make(self, endpoint_id: str, requester_id: str, url: str, description: str) -> tuple[Endpoint, str]:
        now = await self._store.now()
        text, sealed = await self._new_secret(endpoint_id, requester_id, now)
        endpoint = Endpoint(endpoint_id, requester_id, url, _short(description), now, None, "", (sealed,))
        return await self._save(endpoint), text

    async def _new_secret(self, endpoint_id: str, requester_id: str, now: int) -> tuple[str, SealedSecret]:
        text, secret_id = new_secret(), f"whs_{secrets.token_hex(6)}"
        sealed = await self._sealer.seal(text, owner=owner_of(endpoint_id, secret_id), requester_id=requester_id)
        return text, SealedSecret(secret_id, sealed, now)

    async def _save(self, endpoint: Endpoint) -> Endpoint:
        return await save(self._store, endpoint)


async def every(store: Store, endpoint_id: str | None = None) -> list[Endpoint]:
    """All endpoints of a store, with the requesters' own secrets; or the one of an id."""
    return [_read(document) for document in await store.documents(KIND, endpoint_id)]


async def save(store: Store, endpoint: Endpoint) -> Endpoint:
    """Write an endpoint as it is here; raises DocumentConflict when it was changed since it was read."""
    body = {**endpoint._asdict(), "secrets": [secret._asdict() for secret in endpoint.secrets]}
    document = Document(KIND, endpoint.endpoint_id, json.dumps(body), endpoint.version)
    return endpoint._replace(version=(await store.put_document(document)).version)


def owner_of(endpoint_id: str, secret_id: str) -> str:
    """What a secret is sealed for, beside its requester."""
    return f"{endpoint_id}/{secret_id}"


def own_id(requester_id: str) -> str:
    """Under which a requester's own secrets are kept."""
    return OWN + hashlib.sha256(requester_id.encode()).hexdigest()[:32]


def _short(description: str) -> str:
    if len(description) > MAX_TEXT or not description.isprintable():
        raise InvalidInput(f"a description has at most {MAX_TEXT} printable characters")
    return description


def _read(document: Document) -> Endpoint:
    body = json.loads(document.body)
    body |= {"secrets": tuple(SealedSecret(**secret) for secret in body["secrets"]), "version": document.version}
    return Endpoint(**body)
