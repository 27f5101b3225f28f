"""The register of tasks: which tasks the workers of a store serve, with their options and JSON schemas.

A record is a document of the store. A worker writes its tasks at its start and renews them from time to time; a task
that no worker has renewed for FORGET_MS is left out. A worker that is bound to tenants registers its tasks for these
tenants alone.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from callsheet.kernel.errors import DocumentConflict, PayloadTooLarge
from callsheet.kernel.wire import decode, encode
from callsheet.store.protocol import Document

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from callsheet.store.protocol import Store

KIND = "task"
RENEW_MS = 10 * 60_000
FORGET_MS = 30 * 86_400_000
SCHEMA_BYTES = 32 * 1024
MAX_TASKS = 1_000  # of one worker
RECORD_BYTES = 100 * 1024
EVERYBODY = ""  # the tenant of tasks that every tenant may call


class TaskRecord(NamedTuple):
    """One registered task. `arguments` and `result` are JSON schemas; None means that the worker gave none."""

    name: str
    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    timeout_s: float | None = None
    retry: str = ""
    ttl_s: int | None = None
    contract: str = ""
    description: str = ""
    version: str = ""
    language: str = "python"
    arguments: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    tenant: str = EVERYBODY
    seen_at: int = 0

    @property
    def document_id(self) -> str:
        """The id of the record's document: the name, below the tenant's own prefix if the record has a tenant."""
        return f"@{quote(self.tenant, safe='')}/{self.name}" if self.tenant else self.name


async def register(
    store: Store, records: Iterable[TaskRecord], *, tenants: Collection[str] | None = None, now: int | None = None
) -> int:
    """Write records that are new, changed, or due for renewal; return how many. `tenants` None: for all tenants."""
    at = await store.now() if now is None else now
    owners = [EVERYBODY] if tenants is None else sorted(tenants)
    records_to_write = [record._replace(tenant=owner) for record in records for owner in owners]
    before = {document.id: document for document in await store.documents(KIND)}
    return sum([await _write(store, r, before.get(r.document_id), at) for r in records_to_write[:MAX_TASKS]])


async def task_records(store: Store, *, now: int | None = None) -> list[TaskRecord]:
    """Return all records of tasks that a worker has renewed within FORGET_MS, ordered by name."""
    at = await store.now() if now is None else now
    records = [record_of(document) for document in await store.documents(KIND)]
    return sorted((r for r in records if r.seen_at > at - FORGET_MS), key=lambda r: (r.name, r.tenant))


async def forget_old(store: Store, *, now: int | None = None) -> int:
    """Delete the records of tasks that no worker has renewed within FORGET_MS; return how many."""
    at = await store.now() if now is None else now
    old = [d.id for d in await store.documents(KIND) if record_of(d).seen_at <= at - FORGET_MS]
    return sum([await store.delete_document(KIND, document_id) for document_id in old])


def visible_to(records: Iterable[TaskRecord], requester_id: str | None) -> list[TaskRecord]:
    """Return the tasks that a requester may call: its own and the shared ones. None, an operator, sees all."""
    return [r for r in records if requester_id is None or r.tenant in (EVERYBODY, requester_id)]


def near_names(name: str, records: Iterable[TaskRecord]) -> list[str]:
    """Return up to three registered names that resemble an unknown one, most similar first."""
    return get_close_matches(name, sorted({record.name for record in records}), n=3, cutoff=0.5)


def record_of(document: Document) -> TaskRecord:
    """Return the record in a document; fields that a later version wrote are left out."""
    body: dict[str, Any] = decode(document.body)
    return TaskRecord(**{name: value for name, value in body.items() if name in TaskRecord._fields})


async def _write(store: Store, record: TaskRecord, before: Document | None, at: int) -> bool:
    """Write one record unless the stored one says the same and was renewed lately."""
    if before is not None:
        before_record = record_of(before)
        if (
            before_record._replace(seen_at=0) == record._replace(seen_at=0)
            and abs(at - before_record.seen_at) < RENEW_MS
        ):
            return False
    body = _body(record._replace(seen_at=at))
    try:
        await store.put_document(Document(KIND, record.document_id, body, before.version if before else 0))
    except DocumentConflict:
        return False  # another worker with this task was faster
    return True


def _body(record: TaskRecord) -> str:
    """Return a record as JSON; schemas over SCHEMA_BYTES are left out, so that arguments are then not checked."""
    fields = record._asdict()
    for name in ("arguments", "result"):
        if fields[name] is not None:
            try:
                encode(fields[name], limit_bytes=SCHEMA_BYTES)
            except PayloadTooLarge:
                fields[name] = None
    return encode(fields, limit_bytes=RECORD_BYTES)
