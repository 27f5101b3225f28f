"""Enqueues new jobs in batches: while the store writes one batch, jobs of other requests gather for the next batch.

The store writes all jobs of a batch or none. A refused batch is retried job by job, so that each request gets its own
result.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING

from callsheet.engine.quotas import slot_of
from callsheet.engine.telemetry import quota_refused
from callsheet.kernel.contracts import TASKS, lifecycle_of
from callsheet.kernel.errors import CallsheetError, QueueFull, QuotaExceeded, StoreError

from .problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from callsheet.engine.quotas import Quotas
    from callsheet.kernel.job import NewJob
    from callsheet.store.protocol import Store


if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.engine import Engine
    from callsheet.engine.quotas import Quotas
    from callsheet.kernel.job import NewJob
    from callsheet.store.protocol import Backlog, Enqueued

    Waiting = tuple[NewJob, asyncio.Future[Enqueued]]

MOST = 200
ESTIMATE_S = 1.0
LOOK_S = 0.5
FEW = 500
MAX_WAIT_S = 60


def reserved_task_problem(task: str, contract_name: str = "") -> Problem:
    """Return Problem `task_reserved` for a task that only its contract's own route may enqueue."""
    contract = lifecycle_of(TASKS.get(task) or contract_name)
    detail = f"{task} is a task of the contract {contract.name}: {contract.route} creates its jobs"
    return Problem("task_reserved", detail)


def check_not_reserved(new: NewJob) -> None:
    """Raise Problem `task_reserved` if the job's task belongs to another contract."""
    if TASKS.get(new.kind, new.contract) != new.contract:
        raise reserved_task_problem(new.kind)


class EnqueueBatcher:
    """Enqueues all jobs of one process."""

    def __init__(self, engine: Engine, depth_limit: int, quotas: Quotas) -> None:
        self._engine = engine
        self._quotas = quotas
        self._estimates = QueuedEstimates(engine.store, quotas)
        self._depth_limit = depth_limit or None
        self._waiting: deque[Waiting] = deque()
        self._flight: asyncio.Task[None] | None = None
        self._backlog: tuple[float, dict[str, Backlog]] = (float("-inf"), {})
        self._spare: tuple[float, int] = (float("-inf"), 0)

    async def enqueue(self, new: NewJob) -> Enqueued:
        """Enqueue one job.

        Raises the engine's errors, Problem `task_reserved`, and Problem `queue_full` with an estimated wait.
        """
        check_not_reserved(new)
        new = self.in_slot(new)
        try:
            if new.idempotency is not None:
                return (await self._write([new]))[0]
            answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
            self._waiting.append((new, answer))
            if self._flight is None:
                self._flight = asyncio.create_task(self._fly())
            return await answer
        except QueueFull as full:
            raise await self._full(full) from full
        except QuotaExceeded as error:
            quota_refused(error.quota)
            raise

    async def enqueue_all(self, batch: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue a batch, all or none; raises what `enqueue` raises."""
        for new in batch:
            check_not_reserved(new)
        jobs = [self.in_slot(new) for new in batch]
        try:
            return await self._write(jobs)
        except QueueFull as full:
            raise await self._full(full) from full
        except QuotaExceeded as error:
            self._estimates.forget(error.requester_id)
            quota_refused(error.quota)
            raise

    def in_slot(self, new: NewJob) -> NewJob:
        """Return the job with its tenant's concurrency slot if the tenant has a limit on running jobs.

        A job whose task has a concurrency key of its own keeps that key.
        """
        running = self._quotas.limits_of(new.requester_id).running
        if not running or new.concurrency_key is not None:
            return new
        return new._replace(concurrency_key=slot_of(new.requester_id), concurrency_limit=running)

    async def _write(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue jobs, all or none, within the depth of their queues and the quotas of their tenants."""
        limit, quotas = await self._limit(len(jobs)), await self._estimates.limits(jobs)
        return await self._engine.enqueue(jobs, depth_limit=limit, quotas=quotas)

    async def _limit(self, count: int) -> int | None:
        """Return the depth limit to check, or None while the queues are far below it: counting a long queue takes time.

        Queues are far below the limit if they were less than nine tenths full when last counted, at most LOOK_S ago,
        and the jobs added since then fill no more than a tenth of the places that were free.
        """
        if self._depth_limit is None:
            return None
        if time.monotonic() - self._spare[0] > LOOK_S:
            self._spare = (time.monotonic(), 0)  # concurrent batches are checked meanwhile
            longest = max((b.ready + b.held for b in (await self._engine.backlog()).values()), default=0)
            left = self._depth_limit - longest
            self._spare = (time.monotonic(), left // 10 if left > max(FEW, self._depth_limit // 10) else 0)
        at, spare = self._spare
        if spare < count:
            self._spare = (at, 0)
            return self._depth_limit
        self._spare = (at, spare - count)
        return None

    async def _fly(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
                await self._send([pair for pair in batch if not pair[1].done()])
        finally:
            self._flight = None

    async def _send(self, batch: list[Waiting]) -> None:
        try:
            answers = await self._write([new for new, _ in batch])
        except QuotaExceeded as error:
            await self._send_others(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - it is handed to those who asked
            apart = isinstance(error, CallsheetError) and not isinstance(error, StoreError) and len(batch) > 1
            for new, future in batch:
                if apart:
                    await self._send([(new, future)])
                elif not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    async def _send_others(self, batch: list[Waiting], error: QuotaExceeded) -> None:
        """Enqueue other tenants' jobs, then as many of the refused tenant's jobs as its quota allows; fail the rest."""
        self._estimates.forget(error.requester_id)
        others = [pair for pair in batch if pair[0].requester_id != error.requester_id]
        own = [pair for pair in batch if pair[0].requester_id == error.requester_id]
        if others:
            await self._send(others)
        fitting = min(max(0, error.limit - error.used), len(own) - 1)
        if fitting:
            await self._send(own[:fitting])
            await self._send(own[fitting:])
            return
        for new, future in own:
            if new.unique_key is not None and len(own) > 1:  # the unique key may match an existing job
                await self._send([(new, future)])
            elif not future.done():
                future.set_exception(error)

    async def _full(self, full: QueueFull) -> Problem:
        """Return Problem `queue_full` with an estimated wait.

        The oldest job's age divided by the queue's depth estimates the seconds until one place is free.
        """
        at, backlog = self._backlog
        if time.monotonic() - at > ESTIMATE_S:
            backlog = await self._engine.backlog()
            self._backlog = (time.monotonic(), backlog)
        queue = backlog.get(full.queue)
        depth = max(1, queue.ready if queue else full.limit)
        oldest_s = (queue.oldest_ms or 0) / 1000 if queue else 0.0
        wait_s = min(MAX_WAIT_S, max(1, math.ceil(oldest_s / depth)))
        return Problem(
            "queue_full",
            f"queue {full.queue!r} is full with {full.limit} jobs; come back in about {wait_s} s",
            headers={"Retry-After": str(wait_s)},
            depth=depth,
            estimated_wait_s=round(oldest_s, 1),
        )


SOON_S = 0.05
MOST_QUEUES = 10_000


class QueuedEstimates:
    """This process's estimate of the tenants' queued jobs.

    A tenant is far below its quota if less than nine tenths were used when the store was last asked, at most LOOK_S
    ago, and jobs added since fill no more than a tenth of the remaining places. Thus up to ten processes together
    respect a quota; an eleventh could exceed the quota by a tenth of the remaining places.
    """

    def __init__(self, store: Store, quotas: Quotas) -> None:
        self._store = store
        self._quotas = quotas
        self._spare: OrderedDict[str, tuple[float, int]] = OrderedDict()

    async def limits(self, batch: Iterable[NewJob]) -> dict[str, int] | None:
        """Return the quotas that the store must check for a batch, or None if there are none."""
        counts = Counter(new.requester_id for new in batch)
        quotas = {name: limit for name in counts if (limit := self._quotas.limits_of(name).queued)}
        if not quotas:
            return None
        await self._look(quotas, counts)
        return {name: limit for name, limit in quotas.items() if not self._takes(name, counts[name])} or None

    def forget(self, requester_id: str) -> None:
        """Record that a tenant was refused: its quota is checked until the store is asked again."""
        self._keep(requester_id, 0)

    async def _look(self, quotas: dict[str, int], counts: Counter[str]) -> None:
        """Ask the store for the queued jobs of tenants with outdated estimates.

        Small quotas are always checked instead.
        """
        now = time.monotonic()
        old = [name for name, limit in quotas.items() if limit > FEW and self._is_old(name, counts[name], now)]
        if not old:
            return
        for name in old:
            self._keep(name, 0)  # concurrent batches are checked meanwhile
        queue_lengths = await self._store.queued_of(old, most=max(quotas[name] for name in old))
        for name, used in zip(old, queue_lengths, strict=True):
            left = quotas[name] - used
            self._keep(name, left // 10 if left > max(FEW, quotas[name] // 10) else 0)

    def _is_old(self, requester_id: str, count: int, now: float) -> bool:
        """Return whether a tenant's estimate is outdated.

        An estimate is outdated after LOOK_S, or after SOON_S if some free places remain, but too few for `count` jobs.
        """
        at, spare = self._spare.get(requester_id, (float("-inf"), 0))
        return now - at > (LOOK_S if spare == 0 or spare >= count else SOON_S)

    def _takes(self, requester_id: str, count: int) -> bool:
        """Take `count` places from a tenant's estimate. Returns False if too few places are known to be free."""
        at, spare = self._spare.get(requester_id, (float("-inf"), 0))
        if spare < count:
            return False
        self._spare[requester_id] = (at, spare - count)
        return True

    def _keep(self, requester_id: str, spare: int) -> None:
        self._spare[requester_id] = (time.monotonic(), spare)
        self._spare.move_to_end(requester_id)
        if len(self._spare) > MOST_QUEUES:
            self._spare.popitem(last=False)  # an evicted tenant is checked again
