"""`Transport`: Redis Streams beside a SQL store. The database is the truth; a message is a hint.

A message stands for one period of a job in its queue, and may be lost, doubled or late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Self

from callsheet.kernel.job import Job, NewJob, Status
from callsheet.kernel.settlement import Settlement
from callsheet.store.hints import Hints
from callsheet.store.protocol import ClaimRequest, Enqueued, Hint, Settled, Store
from callsheet.store.tasks import end

from .maintenance import Maintenance, Pace
from .messages import Judge, Place, ended_stay, enqueue_id_of, enqueue_id_of_claimed
from .reader import Reader
from .sender import MOST, Kind, Sender, Step
from .wire import Wire

TAKE_S = 0.25
GOODBYE_S = 1.0


class Transport:
    """The background part of one engine: `async with Transport(store, "redis://…")`. The engine never waits for it.

    The engine reports its commits (`enqueued`, `claimed`, `settled`, `requeued`).
    """

    def __init__(self, store: Store, redis_url: str, pace: Pace | None = None) -> None:
        self.wire = Wire(redis_url)
        self._hints = Hints()
        self._places: dict[str, Place] = {}
        self._sender = Sender(self.wire, self._on_answer)
        judge = Judge(self.wire, store)
        self._reader = Reader(self.wire, judge, self._hints)
        self.maintenance = Maintenance(self.wire, store, judge, self._hints, pace or Pace())
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(part.run()) for part in (self._sender, self._reader, self.maintenance)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Send the waiting steps, if Redis accepts them, and close. May be called twice."""
        if self._tasks:
            await self.flush(GOODBYE_S)
            self.wire.stopping.set()
            tasks, self._tasks = self._tasks, []
            for task in tasks:
                task.cancel()
            await self.wire.close()  # also ends a read that the driver continued
            await end(*tasks)

    async def flush(self, patience_s: float) -> None:
        """Wait up to `patience_s` until Redis has all reported commits; return at once while Redis is away."""
        await self._sender.caught_up(patience_s)

    def hints(self) -> AsyncIterator[Hint]:
        """Yield wake-ups from messages."""
        return self._hints.receive()

    def on_enqueue(self, batch: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Publish committed new jobs; the relay publishes jobs that may have to wait."""
        self._publish(new for new, answer in zip(batch, answers, strict=True) if answer.created)

    def on_claim(self, request: ClaimRequest, jobs: Sequence[Job]) -> None:
        """Make the messages of claimed jobs pending for this process."""
        if len(jobs) < request.limit:
            self._reader.want(request.queues)
        else:
            self._reader.leave(request.queues)
        if jobs:
            self._sender.put(_takes(jobs))

    def on_settle(self, settlements: Sequence[Settlement], answers: Sequence[Settled]) -> None:
        """Acknowledge and delete messages whose period in the queue ended with these moves."""
        stays = [
            stay
            for settlement, answer in zip(settlements, answers, strict=True)
            if answer is not Settled.STALE and (stay := ended_stay(settlement)) is not None
        ]
        for stay in stays:
            self._places.pop(stay, None)
        self._sender.put(Step(Kind.ACK, stay) for stay in stays)
        self._publish(
            new
            for settlement, answer in zip(settlements, answers, strict=True)
            if answer is Settled.APPLIED
            for new in settlement.follow_ups
            if new.unique_key is None and new.idempotency is None
        )

    def on_requeue(self, jobs: Iterable[Job | None]) -> None:
        """Send a new message for each returned job that is ready."""
        self._sender.put(
            Step(Kind.PUBLISH, enqueue_id_of(job.job_id, job.claim_version), job.job_id, job.queue)
            for job in jobs
            if job is not None and job.status is Status.QUEUED and job.held is None
        )

    def queue_of(self, name: str) -> str:
        """Return the queue of a stream's name: workers receive the stream's name, and may send either name."""
        return self.wire.queue(name)

    async def places_of(self, jobs: Sequence[Job]) -> dict[str, Place | None]:
        """Return where each claimed job's message is pending, by job id; None if Redis does not answer in 0.25 s."""
        clock = asyncio.get_running_loop().time
        until = clock() + TAKE_S
        await self._sender.caught_up(TAKE_S)
        missing = [job for job in jobs if enqueue_id_of_claimed(job) not in self._places]
        if missing and not self.wire.away and clock() < until:  # another process claimed them
            self._sender.put(_takes(missing))
            await self._sender.caught_up(until - clock())
        return {job.job_id: self._places.get(enqueue_id_of_claimed(job)) for job in jobs}

    def _publish(self, new_jobs: Iterable[NewJob]) -> None:
        self._sender.put(
            Step(Kind.PUBLISH, enqueue_id_of(new.job_id, 0), new.job_id, new.queue)
            for new in new_jobs
            if not (new.delay_ms or new.run_at is not None or new.depends_on or new.concurrency_key)
        )

    def _on_answer(self, step: Step, message_id: str) -> None:
        if step.kind is Kind.TAKE and message_id:
            if len(self._places) >= MOST:
                del self._places[next(iter(self._places))]
            self._places[step.enqueue_id] = self.wire.place(step.queue, message_id)


def _takes(jobs: Sequence[Job]) -> list[Step]:
    return [Step(Kind.TAKE, enqueue_id_of_claimed(job), job.job_id, job.queue) for job in jobs]
