"""Webhook endpoints of requesters: URLs and signing secrets, stored as documents with encrypted secrets.

Each requester also has its own secrets without a URL, which sign events to URLs given in jobs (`status_webhook_url`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from callsheet.engine.ids import new_id
from callsheet.kernel.errors import CallsheetError, InvalidInput, Refused
from callsheet.kernel.job import NewOutboxEvent
from callsheet.kernel.wire import encode
from callsheet.net.guard import Rules, target_of
from callsheet.store.protocol import Document

from .signing import new_secret

if TYPE_CHECKING:
    from callsheet.kernel.job import Job
    from callsheet.store.protocol import Store


KIND = "webhook_endpoint"
HEAD = "whe_"
OWN = "own_"
OVERLAP_MS = 24 * 3_600_000
MOST_ENDPOINTS = 100
MAX_TEXT = 255


class EndpointNotFound(CallsheetError):
    """The requester has no endpoint with the given id."""

    code = "endpoint_not_found"


class TooManyEndpoints(Refused):
    """The requester has reached the maximum of 100 endpoints."""

    code = "too_many_endpoints"


class Sealer(Protocol):
    """Encrypts secrets for the store. A sealed secret decrypts only with the same owner and requester id."""

    async def seal(self, plain: str, *, owner: str, requester_id: str) -> str:
        """Encrypt a secret and return the sealed text."""
        ...

    async def open(self, ciphertext: str, *, owner: str, requester_id: str) -> str:
        """Decrypt a sealed text and return the secret."""
        ...


class SealedSecret(NamedTuple):
    """One sealed secret of an endpoint; the current secret has `expires_at` None."""

    secret_id: str
    sealed: str
    created_at: int
    expires_at: int | None = None


class Endpoint(NamedTuple):
    """A webhook endpoint. With `url` '' its secrets sign events to URLs given in jobs. `version` is the document's."""

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
        """Return the unexpired secrets, newest first."""
        secrets = [secret for secret in self.secrets if secret.expires_at is None or secret.expires_at > now]
        return sorted(secrets, key=lambda secret: -secret.created_at)


class Endpoints:
    """Reads and writes the endpoints of a store. For operators `requester_id` None means every requester."""

    def __init__(self, store: Store, sealer: Sealer, rules: Rules | None = None) -> None:
        self._store = store
        self._sealer = sealer
        self.rules = rules or Rules()
        self._line = asyncio.Lock()  # serialises `create`, so that the count is current

    async def create(self, requester_id: str, url: str, description: str = "") -> tuple[Endpoint, str]:
        """Create an endpoint and a signing secret, returned only once; raises InvalidTarget, TooManyEndpoints."""
        target_of(url, self.rules)
        async with self._line:
            if len(await self.list(requester_id)) >= MOST_ENDPOINTS:
                raise TooManyEndpoints(f"there are {MOST_ENDPOINTS} endpoints already; delete one")
            return await self._make(HEAD + secrets.token_hex(10), requester_id, url, description)

    async def list(self, requester_id: str | None) -> list[Endpoint]:
        """Return all endpoints of a requester, oldest first."""
        endpoints = [_read(document) for document in await self._store.documents(KIND)]
        mine = [e for e in endpoints if requester_id in (None, e.requester_id) and e.url]
        return sorted(mine, key=lambda e: (e.created_at, e.endpoint_id))

    async def get(self, endpoint_id: str, requester_id: str | None) -> Endpoint:
        """Return an endpoint by id; raises EndpointNotFound, also for another requester's endpoint."""
        documents = await self._store.documents(KIND, endpoint_id) if endpoint_id.startswith((HEAD, OWN)) else []
        endpoint = _read(documents[0]) if documents else None
        if endpoint is None or requester_id not in (None, endpoint.requester_id):
            raise EndpointNotFound(f"no endpoint {endpoint_id[:64]}")
        return endpoint

    async def change(
        self, endpoint_id: str, requester_id: str | None, *, url: str | None = None, description: str | None = None
    ) -> Endpoint:
        """Change an endpoint's URL or description; raises EndpointNotFound, InvalidTarget."""
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
        """Create a new secret, returned only once. The previous secret also signs for `overlap_ms`; 0 revokes it."""
        endpoint, now = await self.get(endpoint_id, requester_id), await self._store.now()
        ends = now + max(0, min(overlap_ms, OVERLAP_MS))
        old = [s._replace(expires_at=min(s.expires_at or ends, ends)) for s in endpoint.good(now)]
        text, new_secret = await self._new_secret(endpoint.endpoint_id, endpoint.requester_id, now)
        old_secret = tuple(s for s in old if s.expires_at is not None and s.expires_at > now)[:1]  # two sign at most
        return await self._save(endpoint._replace(secrets=(new_secret, *old_secret))), text

    async def disable(self, endpoint_id: str, requester_id: str | None, reason: str) -> Endpoint:
        """Disable an endpoint: its undelivered events become dead letters."""
        endpoint = await self.get(endpoint_id, requester_id)
        if endpoint.disabled_at is not None:
            return endpoint
        return await self._save(endpoint._replace(disabled_at=await self._store.now(), disabled_reason=reason))

    async def enable(self, endpoint_id: str, requester_id: str | None) -> Endpoint:
        """Enable a disabled endpoint."""
        endpoint = await self.get(endpoint_id, requester_id)
        return await self._save(endpoint._replace(disabled_at=None, disabled_reason=""))

    async def delete(self, endpoint_id: str, requester_id: str | None) -> None:
        """Delete an endpoint and its secrets."""
        endpoint = await self.get(endpoint_id, requester_id)
        await self._store.delete_document(KIND, endpoint.endpoint_id)

    async def own(self, requester_id: str) -> Endpoint:
        """Return the requester's own secrets, which sign events to URLs given in jobs; raises EndpointNotFound."""
        return await self.get(own_id(requester_id), requester_id)

    async def new_own_secret(self, requester_id: str, *, overlap_ms: int = OVERLAP_MS) -> tuple[Endpoint, str]:
        """Create the requester's own secret, or rotate an existing secret."""
        try:
            return await self.rotate(own_id(requester_id), requester_id, overlap_ms=overlap_ms)
        except EndpointNotFound:
            return await self._make(own_id(requester_id), requester_id, "", "")

    async def open(self, endpoint: Endpoint, now: int) -> tuple[str, ...]:
        """Decrypt and return the unexpired secrets of an endpoint, newest first."""
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
        text, secret = await self._new_secret(endpoint_id, requester_id, now)
        endpoint = Endpoint(endpoint_id, requester_id, url, _short(description), now, None, "", (secret,))
        return await self._save(endpoint), text

    async def _new_secret(self, endpoint_id: str, requester_id: str, now: int) -> tuple[str, SealedSecret]:
        text, secret_id = new_secret(), f"whs_{secrets.token_hex(6)}"
        ciphertext = await self._sealer.seal(text, owner=owner_of(endpoint_id, secret_id), requester_id=requester_id)
        return text, SealedSecret(secret_id, ciphertext, now)

    async def _save(self, endpoint: Endpoint) -> Endpoint:
        return await save(self._store, endpoint)


async def every(store: Store, endpoint_id: str | None = None) -> list[Endpoint]:
    """Return all endpoints of a store including requesters' own secrets, or the endpoint of an id."""
    return [_read(document) for document in await store.documents(KIND, endpoint_id)]


async def save(store: Store, endpoint: Endpoint) -> Endpoint:
    """Write an endpoint's document; raises DocumentConflict if another process changed the document since the read."""
    body = {**endpoint._asdict(), "secrets": [secret._asdict() for secret in endpoint.secrets]}
    document = Document(KIND, endpoint.endpoint_id, json.dumps(body), endpoint.version)
    return endpoint._replace(version=(await store.put_document(document)).version)


def owner_of(endpoint_id: str, secret_id: str) -> str:
    """Return the owner text that binds a sealed secret to its endpoint."""
    return f"{endpoint_id}/{secret_id}"


def own_id(requester_id: str) -> str:
    """Return the document id of a requester's own secrets."""
    return OWN + hashlib.sha256(requester_id.encode()).hexdigest()[:32]


def _short(description: str) -> str:
    if len(description) > MAX_TEXT or not description.isprintable():
        raise InvalidInput(f"a description has at most {MAX_TEXT} printable characters")
    return description


def _read(document: Document) -> Endpoint:
    body = json.loads(document.body)
    body |= {"secrets": tuple(SealedSecret(**secret) for secret in body["secrets"]), "version": document.version}
    return Endpoint(**body)


RESERVED = frozenset({"event_id", "type", "job_id", "sequence"})


def job_event(job: Job, endpoint: str, type: str, data: Mapping[str, Any]) -> NewOutboxEvent:
    """Build the outbox event of a job's next state change, for the `outbox=` parameter of that command.

    `endpoint` is a registered endpoint's id, or a URL given in the job. `sequence` is the number of the job's next
    event, so that receivers can drop outdated events. Raises NotJson, and ValueError if `data` has a reserved member.
    """
    event_id = f"evt_{new_id().replace('-', '')}"
    ours = {"event_id": event_id, "type": type, "job_id": job.job_id, "sequence": job.event_seq + 1}
    if reserved_names := RESERVED & data.keys():
        raise ValueError(f"{', '.join(sorted(reserved_names))} cannot be given")
    return NewOutboxEvent(event_id, endpoint, encode({**ours, **data}))
