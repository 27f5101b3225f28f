"""Long operations on many jobs: documents with a filter, a cursor, counts, and a lease for the working process.

The operation document names a batch before the work, and clears the batch afterwards. If a process dies in between,
the next process repeats the batch, which changes nothing that was done already, and counts each job once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from callsheet.kernel.errors import DocumentConflict, IdempotencyConflict, StoreError
from callsheet.kernel.job import Claim
from callsheet.kernel.wire import decode, encode
from callsheet.store.clock import TOLERANCE_MS
from callsheet.store.protocol import Document, Store
from callsheet.store.tasks import end, wait

from . import dead_letters
from .dead_letters import Done, Wanted
from .ids import new_id
from .quotas import Quotas

if TYPE_CHECKING:
    from .engine import Engine

log = logging.getLogger("callsheet.operations")
KIND = "operation"
ACTIONS: dict[str, Callable[[Engine, Sequence[Claim], Quotas | None], Awaitable[Done]]] = {
    "replay": dead_letters.replay,
    "purge": dead_letters.purge,
}
ACT_OF = {"replay": "dead_letters.replayed", "purge": "dead_letters.purged"}  # in the audit log
BATCH = 100
LEASE_MS = 3_000
IDLE_S = 2.0
FULL_MS = 1_000  # the pause before a replay checks its tenant's quota again
KEPT_MS = 7 * 86_400_000
MOST_OPEN, MOST_OF_TENANT = 20, 1_000  # a tenant's open operations, and all its stored operations
RUNNING, DONE, STOPPED = "running", "done", "stopped"


class Operation(NamedTuple):
    """The stored state of an operation.

    `rate` is jobs per second, `limit` the maximum number of jobs; None is unlimited.
    """

    operation_id: str
    action: str
    wanted: Wanted
    rate: float | None = None
    limit: int | None = None
    status: str = RUNNING
    done: int = 0
    refused: int = 0
    why: str = ""
    cursor: str | None = None
    batch: tuple[Claim, ...] = ()
    after_batch: str | None = None
    owner: str = ""
    leased_until: int = 0
    next_at: int = 0
    created_at: int = 0
    updated_at: int = 0
    ended_at: int | None = None
    request_hash: str = ""
    actor: str = ""

    @property
    def size(self) -> int:
        """The maximum size of the next batch: half a second's worth of jobs, within the limit."""
        most = BATCH if self.rate is None else min(BATCH, max(1, round(self.rate / 2)))
        return most if self.limit is None else max(0, min(most, self.limit - self.done))


async def begin(store: Store, operation: Operation) -> Operation:
    """Store a new operation; repeating the request returns the first operation, a different request raises.

    The error for a different request with the same id is IdempotencyConflict.
    """
    now = await store.now()
    recorded_operation = operation._replace(created_at=now, updated_at=now, next_at=now)
    try:
        await store.put_document(_document(recorded_operation, 0))
    except DocumentConflict:
        first = await get(store, operation.operation_id)
        if first is None or first.request_hash != operation.request_hash:
            raise IdempotencyConflict("this key was used before with another request; use a new one") from None
        return first
    return recorded_operation


async def make_room(store: Store, requester_id: str) -> bool:
    """Delete a tenant's oldest ended operations to admit another; return False if MOST_OPEN are still open."""
    operations = [_read(document) for document in await store.documents(KIND)]
    mine = [one for one in operations if one.wanted.requester_id == requester_id]
    ended_operations = sorted((one.ended_at, one.operation_id) for one in mine if one.ended_at is not None)
    if len(mine) - len(ended_operations) >= MOST_OPEN:
        return False
    for _, operation_id in ended_operations[: max(0, len(mine) + 1 - MOST_OF_TENANT)]:
        await store.delete_document(KIND, operation_id)
    return True


async def get(store: Store, operation_id: str) -> Operation | None:
    """Return an operation by its id; None for an unknown id."""
    for document in await store.documents(KIND, operation_id):
        return _read(document)
    return None


async def stop(store: Store, operation_id: str) -> Operation | None:
    """Stop an operation after its present batch; return None for an unknown id."""
    while True:
        documents = await store.documents(KIND, operation_id)
        if not documents or _read(documents[0]).ended_at is not None:
            return _read(documents[0]) if documents else None
        now = await store.now()
        ended_operation = _read(documents[0])._replace(status=STOPPED, updated_at=now, ended_at=now)
        with contextlib.suppress(DocumentConflict):
            await store.put_document(_document(ended_operation, documents[0].version))
            return ended_operation


class Operations:
    """Run open operations. Any number of processes may run this class; one process at a time works on an operation."""

    def __init__(self, engine: Engine, quotas: Quotas | None = None) -> None:
        """With `quotas`, a tenant's replay waits while the tenant's queued jobs have reached their quota."""
        self._engine = engine
        self._quotas = quotas
        self._me = new_id()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            await end(self._task)  # possibly in the middle of a batch, which is safe: see above

    def wake(self) -> None:
        """Wake the loop for a new operation."""
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._wake.clear()
            pause_s = IDLE_S
            try:
                pause_s = await self.sweep()
            except StoreError as error:
                log.warning("operations wait for the store: %s", error)
            except Exception:
                log.exception("an operation failed; the next sweep tries again")
            await wait(self._wake, pause_s)

    async def sweep(self) -> float:
        """Work one batch of each open operation; return the seconds until the next sweep."""
        store, pause_s = self._engine.store, IDLE_S
        for document in await store.documents(KIND):
            operation, now = _read(document), await store.now()
            if operation.ended_at is not None:
                if operation.ended_at + KEPT_MS < now:
                    await store.delete_document(KIND, document.id)
            elif operation.updated_at > now + TOLERANCE_MS:  # written by a clock that was ahead, like its other times
                with contextlib.suppress(DocumentConflict):
                    await self._catch_up(document, operation, now)
            elif operation.owner not in ("", self._me) and operation.leased_until > now:
                pause_s = min(pause_s, (operation.leased_until - now) / 1000)
            elif operation.next_at > now:
                pause_s = min(pause_s, (operation.next_at - now) / 1000)
            else:
                with contextlib.suppress(DocumentConflict):  # another process works on it, or a user stopped it
                    await self._step(document, operation, now)
                pause_s = 0.0
        return pause_s

    async def _catch_up(self, document: Document, operation: Operation, now: int) -> None:
        """Correct an operation's times after the clock stepped back; its remaining waits stay the same."""
        behind_ms = operation.updated_at - now
        leased_until, next_at = operation.leased_until - behind_ms, operation.next_at - behind_ms
        leased_operation = operation._replace(updated_at=now, leased_until=leased_until, next_at=next_at)
        await self._engine.store.put_document(_document(leased_operation, document.version))

    async def _step(self, document: Document, operation: Operation, now: int) -> None:
        room = await self._room(operation)
        if room == 0 and not operation.batch:
            waits = operation._replace(next_at=now + FULL_MS, updated_at=now)
            await self._engine.store.put_document(_document(waits, document.version))
            return
        with_batch = operation if operation.batch else await self._plan(operation, room)
        held = with_batch._replace(owner=self._me, leased_until=now + LEASE_MS, updated_at=now)
        document = await self._engine.store.put_document(_document(held, document.version))
        result = await ACTIONS[held.action](self._engine, held.batch, self._quotas) if held.batch else Done()
        after = await self._cross_out(held, result)
        try:
            await self._engine.store.put_document(_document(after, document.version))
        except DocumentConflict:
            await self._count_late(held, result)

    async def _room(self, operation: Operation) -> int | None:
        """Return how many jobs a tenant's replay may enqueue now; None is unlimited, for operators and deletions."""
        requester_id = operation.wanted.requester_id
        if self._quotas is None or requester_id is None or operation.action != "replay":
            return None
        await self._quotas.refresh()
        return await self._quotas.room(requester_id)

    async def _plan(self, operation: Operation, room: int | None) -> Operation:
        """Choose the next batch."""
        if not operation.size:
            return operation._replace(after_batch=None)
        size = operation.size if room is None else min(room, operation.size)
        page = await dead_letters.find(self._engine, operation.wanted, size, operation.cursor)
        return operation._replace(batch=tuple(job.claim for job in page.jobs), after_batch=page.cursor)

    async def _cross_out(self, held: Operation, result: Done) -> Operation:
        now = await self._engine.store.now()
        with_counts = _with_counts(held, result)._replace(cursor=held.after_batch, after_batch=None, updated_at=now)
        if held.rate is not None:
            with_counts = with_counts._replace(
                next_at=max(now, held.next_at) + round(len(held.batch) / held.rate * 1000)
            )
        if held.after_batch is None or with_counts.size == 0:
            return with_counts._replace(status=DONE, ended_at=now)
        return with_counts

    async def _count_late(self, held: Operation, result: Done) -> None:
        """Add a batch's counts to an operation that was stopped during the batch."""
        for document in await self._engine.store.documents(KIND, held.operation_id):
            operation = _read(document)
            if operation.status == STOPPED and operation.owner == self._me and operation.batch == held.batch:
                await self._engine.store.put_document(_document(_with_counts(operation, result), document.version))


def _with_counts(operation: Operation, result: Done) -> Operation:
    return operation._replace(
        done=operation.done + result.done,
        refused=operation.refused + result.refused,
        why=result.why or operation.why,
        batch=(),
    )


def _document(operation: Operation, version: int) -> Document:
    body = {**operation._asdict(), "wanted": operation.wanted._asdict()}
    return Document(KIND, operation.operation_id, encode(body), version)


def _read(document: Document) -> Operation:
    body: dict[str, Any] = decode(document.body)
    body["wanted"] = Wanted(**body["wanted"])
    body["batch"] = tuple(Claim(*pair) for pair in body["batch"])
    return Operation(**{name: value for name, value in body.items() if name in Operation._fields})
