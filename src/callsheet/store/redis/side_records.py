"""Verbs of the records beside the jobs in Redis: outbox events, credentials, documents, and the audit log.

Credentials are a hash per job and a set for each KEK; the audit log is a stream of all entries, and a stream for each
tenant with the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callsheet.kernel.audit import AuditEntry
from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.job import Claim, Credentials, Delivery, Envelope, OutboxEvent
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.store.audit import AuditPage, AuditQuery
from callsheet.store.outbox import ANY_EVENT, UNLIMITED, ClaimShares, OutboxFilter, Replay
from callsheet.store.protocol import Document, HeartbeatResult, Settled

from . import arguments
from .client import Client, translated
from .records import as_map, outbox_event_of

SETTLED = {1: Settled.APPLIED, 2: Settled.REPEATED, 3: Settled.STALE}
AUDIT_FIELDS = ("requester_id", "action", "actor", "target", "outcome", "address", "request_id", "details")
LOOK = 500  # rows that one script scans with a sparse filter: some 2 ms


class OutboxEvents:
    """The outbox verbs of the Redis store."""

    _client: Client

    async def outbox_claim(
        self, worker_id: str, *, limit: int, lease_ms: int, shares: ClaimShares = UNLIMITED, now: int | None = None
    ) -> list[OutboxEvent]:
        head = (worker_id, limit, lease_ms, shares.each, len(shares.limits), len(shares.without))
        limits = (part for row in shares.limits for part in row)
        rows = await self._client.run("outbox_claim", now, *head, *limits, *shares.without)
        return [outbox_event_of(as_map(flat)) for flat in rows]

    async def outbox_heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, now: int | None = None
    ) -> list[HeartbeatResult]:
        parts = (part for claim in claims for part in claim)
        return [
            HeartbeatResult(bool(held)) for held in await self._client.run("outbox_heartbeat", now, lease_ms, *parts)
        ]

    async def outbox_settle(self, settlements: Sequence[OutboxSettlement], *, now: int | None = None) -> list[Settled]:
        flat: list[arguments.Argument] = []
        for s in settlements:
            flat += (s.event_id, s.claim_version, s.status.value, s.delay_ms, int(s.counts), s.error or "")
        return [SETTLED[code] for code in await self._client.run("outbox_settle", now, *flat)]

    async def outbox_find(
        self,
        *,
        job_id: str | None = None,
        status: Delivery | None = None,
        limit: int = 50,
        where: OutboxFilter = ANY_EVENT,
    ) -> list[OutboxEvent]:
        if where.event_id is not None:
            return await self._outbox_event(where, job_id, status)
        events: list[OutboxEvent] = []
        cursor, more = "", arguments.of_filter(where)
        while len(events) < limit:
            head = (job_id or "", status.value if status else "", limit - len(events))
            *rows, cursor = await self._client.run("outbox_find", None, *head, cursor, LOOK, *more)
            events += [outbox_event_of(as_map(flat)) for flat in rows]
            if not cursor:
                break
        return events

    async def _outbox_event(
        self, where: OutboxFilter, job_id: str | None, status: Delivery | None
    ) -> list[OutboxEvent]:
        (row,) = await self._client.hashes([f"{self._client.keys.prefix}outbox:{where.event_id}"])
        event = outbox_event_of(row) if row else None
        return [event] if event is not None and arguments.matches(event, where, job_id, status) else []

    async def outbox_replay(self, replays: Sequence[Replay], *, now: int | None = None) -> list[bool]:
        parts = [part for replay in replays for part in replay]
        return [bool(code) for code in await self._client.run("outbox_replay", now, *parts)] if parts else []


class CredentialRecords:
    """The credential verbs of the Redis store."""

    _client: Client

    async def credentials(self, job_ids: Sequence[str]) -> list[Credentials | None]:
        client = self._client
        hashes = await client.hashes([client.keys.job(job_id, "credentials") for job_id in job_ids])
        return [_credentials_of(job_id, h) if h else None for job_id, h in zip(job_ids, hashes, strict=True)]

    async def replace_credentials(self, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
        flat: list[arguments.Argument] = []
        for was, becomes in changes:
            flat += (was.job_id, was.envelope.credential_version, was.envelope.storage_creds_dek_wrapped)
            flat += becomes.envelope
        return [bool(code) for code in await self._client.run("replace_credentials", None, *flat)] if flat else []

    async def credentials_under(self, kek_id: str, *, after: str = "", limit: int = 100) -> list[Credentials]:
        client = self._client
        key = client.keys.jobs(f"credentials:{kek_id}")
        page: list[Credentials] = []
        while len(page) < limit:
            rest = limit - len(page)
            with translated():
                ids = await client.redis.zrangebylex(key, f"({after}" if after else "-", "+", 0, rest)
            rows = await self.credentials(ids)
            page += [c for c in rows if c is not None and c.envelope.storage_creds_kek_id == kek_id]
            if len(ids) < rest:
                break
            after = ids[-1]
        return page

    async def credential_keks(self) -> dict[str, int]:
        client = self._client
        with translated():
            keks = sorted(await client.redis.smembers(client.keys.jobs("credentials")))
            pipe = client.redis.pipeline(transaction=False)
            for kek_id in keks:
                pipe.zcard(client.keys.jobs(f"credentials:{kek_id}"))
            counts = await pipe.execute() if keks else []
        return {kek_id: count for kek_id, count in zip(keks, counts, strict=True) if count}


def _credentials_of(job_id: str, h: Mapping[str, str]) -> Credentials:
    envelope = Envelope(
        int(h["credential_version"]),
        h["storage_creds_encrypted"],
        h["storage_creds_dek_wrapped"],
        h["storage_creds_kek_id"],
        int(h["storage_creds_encryption_version"]),
    )
    return Credentials(job_id, h["requester_id"], envelope)


class Documents:
    """The document verbs of the Redis store."""

    _client: Client

    async def put_document(self, document: Document) -> Document:
        d = document
        version = await self._client.run("put_document", None, d.kind, d.id, d.body, d.version)
        if not version:
            raise conflict(d)
        return d._replace(version=int(version))

    async def documents(self, kind: str, id: str | None = None) -> list[Document]:
        key = self._client.keys.document(kind)
        if id is None:
            (fields,) = await self._client.hashes([key])
            entries = sorted(fields.items())
        else:
            with translated():
                one = await self._client.redis.hget(key, id)
            entries = [(id, one)] if one is not None else []
        split = ((name, *text.partition(":")) for name, text in entries)
        return [Document(kind, name, body, int(version)) for name, version, _, body in split]

    async def delete_document(self, kind: str, id: str) -> bool:
        with translated():
            return bool(await self._client.redis.hdel(self._client.keys.document(kind), id))


def conflict(document: Document) -> DocumentConflict:
    """Return the error of a document that another writer changed first."""
    d = document
    return DocumentConflict(f"{d.kind} {d.id} is not at version {d.version} any more; read it and try again")


class AuditLog:
    """The audit log's verbs of the Redis store."""

    _client: Client

    async def audit_append(self, entries: Sequence[AuditEntry], *, now: int | None = None) -> list[str]:
        flat = [getattr(entry, name) for entry in entries for name in AUDIT_FIELDS]
        return list(await self._client.run("audit_append", now, *flat)) if entries else []

    async def audit_find(self, query: AuditQuery) -> AuditPage:
        """With a sparse filter, read on until the page is full."""
        client = self._client
        name = "audit:log" if query.requester_id is None else f"audit:of:{query.requester_id}"
        top = "+" if query.until is None else f"({query.until}-0"
        if (place := query.place) is not None and (query.until is None or place[0] < query.until):
            top = f"({place[0]}-{place[1]}"
        bottom = "-" if query.since is None else f"{query.since}-0"
        entries: list[AuditEntry] = []
        while len(entries) < query.limit:
            with translated():
                rows = await client.redis.xrevrange(client.keys.prefix + name, top, bottom, count=LOOK)
            entries += [entry for entry in map(_entry, rows) if query.matches(entry)]
            if len(rows) < LOOK:
                break
            top = f"({rows[-1][0]}"
        page = entries[: query.limit]
        return AuditPage(page, page[-1].entry_id if len(page) == query.limit else None)

    async def audit_prune(self, *, before: int, limit: int) -> int:
        return int(await self._client.run("audit_prune", None, before, limit))


def _entry(row: tuple[str, dict[str, str]]) -> AuditEntry:
    entry_id, fields = row
    return AuditEntry(**fields, at=int(entry_id.partition("-")[0]), entry_id=entry_id)
