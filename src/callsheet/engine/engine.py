"""The engine: a thin layer above a store that checks input, counts, and lets the kernel decide."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from callsheet.kernel import commands, new_jobs
from callsheet.kernel.apply import after_settlement
from callsheet.kernel.errors import JobNotFound, StaleClaim, StoreError
from callsheet.kernel.job import Claim, Event, Job, NewJob, Outcome, Status
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import PAYLOAD_LIMIT_BYTES
from callsheet.store import store_from_url
from callsheet.store.hints import together
from callsheet.store.protocol import (
    Backlog,
    ClaimRequest,
    Enqueued,
    HeartbeatResult,
    Hint,
    JobPage,
    JobQuery,
    Settled,
    Store,
)

from .lanes import Lanes, lane_name
from .resuming import Steps, resume, steps_of
from .silent_workers import silence_ms_of
from .system_secrets import Sealers
from .telemetry import count_ended, fact, verb
from .watch import Watch, Watcher

if TYPE_CHECKING:
    from .transport import Transport

SUCCEEDED, APPLIED = Status.SUCCEEDED, Settled.APPLIED  # read for every settlement, and slow to look up
RACES = 20  # attempts of an external command while other writers change the job


def _no_sealer() -> None:
    """Return None: an engine without a keyring."""


class Engine:
    """The verbs of a store, for workers and servers. `async with Engine(store)` opens and closes the store."""

    def __init__(
        self,
        store: Store,
        *,
        payload_limit_bytes: int = PAYLOAD_LIMIT_BYTES,
        fair_queues: Sequence[str] = (),
        redis_url: str | None = None,
    ) -> None:
        """In `fair_queues` every tenant has a separate lane, and claims serve the lanes in turn.

        `redis_url` adds Redis Streams to a SQL store; a Redis store ignores it.
        """
        self.store = store
        self.lanes = Lanes(self.backlog)
        self.transport: Transport | None = None
        self._redis_url = redis_url
        self.fair_queues = frozenset(fair_queues)
        self.sealer: Sealers = _no_sealer  # seals the system's secrets if there is a keyring
        self._payload_limit_bytes = payload_limit_bytes
        self._watch = Watch(store)

    @classmethod
    def from_url(
        cls, url: str, *, payload_limit_bytes: int = PAYLOAD_LIMIT_BYTES, redis_url: str | None = None
    ) -> Self:
        """Return an engine on the store of a URL, not yet open."""
        return cls(store_from_url(url), payload_limit_bytes=payload_limit_bytes, redis_url=redis_url)

    async def __aenter__(self) -> Self:
        transport = _transport(self.store, self._redis_url) if self._redis_url and not self.store.streams else None
        try:
            await self.store.open()
        except BaseException:
            await self.store.close()  # undo a partial open: callers retry until the store is up
            raise
        if transport is not None:
            self.transport = await transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._watch.stop()
        if self.transport is not None:
            await self.transport.stop()
        await self.store.close()

    async def enqueue(
        self,
        batch: Sequence[NewJob],
        *,
        depth_limit: int | None = None,
        quotas: Mapping[str, int] | None = None,
        now: int | None = None,
    ) -> list[Enqueued]:
        """Create jobs, all or none; raises InvalidJob or a related error before anything is written."""
        with verb("enqueue", len(batch)):
            new_jobs.check_batch(batch, payload_limit_bytes=self._payload_limit_bytes)
            if self.fair_queues:
                batch = [self._in_lane(new) for new in batch]
                self.lanes.note_work(new.queue for new in batch)
            answers = await self.store.enqueue(batch, depth_limit=depth_limit, quotas=quotas, now=now)
        if self.transport is not None:
            self.transport.on_enqueue(batch, answers)
        return answers

    def _in_lane(self, new: NewJob) -> NewJob:
        fair = new.queue in self.fair_queues and new.requester_id
        return new._replace(queue=lane_name(new.queue, tenant=new.requester_id)) if fair else new

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        """Claim jobs for a worker."""
        with verb("claim", request.limit):
            jobs = await self.store.claim(request, now=now)
        if self.transport is not None:
            self.transport.on_claim(request, jobs)
        return jobs

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, silence_ms: int | None = None, now: int | None = None
    ) -> list[HeartbeatResult]:
        """Extend leases; the answers name lost claims and jobs to cancel."""
        with verb("heartbeat", len(claims)):
            return await self.store.heartbeat(claims, lease_ms=lease_ms, silence_ms=silence_ms, now=now)

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """Apply moves; a stale move changes nothing, and its answer is STALE."""
        with verb("settle", len(settlements)):
            answers = await self.store.settle(settlements, now=now)
        if self.transport is not None:
            self.transport.on_settle(settlements, answers)
        applied_settlements = [
            s for s, answer in zip(settlements, answers, strict=True) if s.status is not SUCCEEDED and answer is APPLIED
        ]
        moves = answers.count(APPLIED)
        count_ended(SUCCEEDED, moves - len(applied_settlements))
        if moves < len(answers):
            fact("stale_claim", answers.count(Settled.STALE))
        if applied_settlements:
            _count(applied_settlements)
            await self._cancel_requeued([s.job_id for s in applied_settlements if s.status is Status.QUEUED], now)
        return answers

    async def settle_one(self, job: Job, settlement: Settlement, *, now: int | None = None) -> Job:
        """Apply one move of a claim; raises StaleClaim. Returns the job after the move, with its last event's times."""
        (answer,) = await self.settle([settlement], now=now)
        if answer is Settled.STALE:
            raise StaleClaim(f"claim {job.claim_version} of job {job.job_id} is not held any more; stop its work")
        return after_settlement(job, settlement, now if now is not None else job.event_ms)

    async def cancel(
        self, job_id: str, reason: str = "", *, requester_id: str | None = None, now: int | None = None
    ) -> Job:
        """Cancel a job at once if it is queued or its worker silent; otherwise set a flag that the worker sees.

        If the worker sends no heartbeat for two intervals afterwards, it loses the job and housekeeping ends the job.
        """
        at = await self.store.now() if now is None else now

        def decide(job: Job) -> Settlement:
            return commands.request_cancel(job, reason, now=at, silent_after_ms=silence_ms_of(job))

        return await self._command(job_id, decide, requester_id, now)

    async def requeue(self, job_id: str, *, requester_id: str | None = None, now: int | None = None) -> Job:
        """Return an ended job to the queue for an operator, if its contract allows that."""
        return await self._command(job_id, commands.requeue, requester_id, now)

    async def get(self, job_id: str, *, requester_id: str | None = None) -> Job:
        """Return a job; raises JobNotFound, also for another requester's job. `requester_id` None is for operators.

        Our ids are lower-case and match in any case; a foreign gateway's ids may be upper-case.
        """
        lower = job_id.lower()
        ids = [job_id] if lower == job_id else [job_id, lower]
        jobs = await self.store.get(ids) if new_jobs.IS_UUID(lower) else []
        job = next((job for job in jobs if job is not None), None)
        if job is None or requester_id not in (None, job.requester_id):
            raise JobNotFound(f"no job {job_id}")
        return job

    async def steps(self, job: Job) -> Steps:
        """Return the completed steps that a job may continue from: its own steps and those of resumed jobs."""
        return await steps_of(self.store, job)

    async def resume(self, job_id: str, *, requester_id: str | None = None) -> Job:
        """Return the one job that continues an ended job, also for repeated requests; raises IllegalMove."""
        job = await self.get(job_id, requester_id=requester_id)
        return await resume(self.store, job, lambda new: self.enqueue([new]))

    async def find(self, query: JobQuery) -> JobPage:
        """Return jobs by filter, newest first."""
        with verb("find", query.limit):
            return await self.store.find(query)

    async def backlog(self, *, now: int | None = None) -> dict[str, Backlog]:
        """Return waiting and running work by queue."""
        with verb("backlog"):
            return await self.store.backlog(now=now)

    async def watch(self, job_id: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield a job's events after a `seq`, past and future, until its end; raises JobNotFound."""
        job = await self.get(job_id)
        if job.status.terminal and job.event_seq <= after:
            return
        async for event in self._watch.events(job.job_id, min(after, job.event_seq)):
            yield event

    def hints(self) -> AsyncIterator[Hint]:
        """Yield wake-ups; hints may be lost, doubled or late."""
        if self.transport is None:
            return self.store.hints()
        return together(self.store.hints(), self.transport.hints())

    def follow(self, after: Mapping[str, int], *, open_ended: bool = False) -> Watcher:
        """Return a watcher of many jobs, each after a `seq`; missing jobs raise no error.

        The caller closes the watcher.
        """
        return self._watch.follow(after, open_ended=open_ended)

    async def _cancel_requeued(self, job_ids: Sequence[str], now: int | None) -> None:
        """Cancel returned jobs with a cancellation request that their workers may have missed."""
        jobs = await self.store.get(job_ids) if job_ids else []
        cancelled_jobs = [
            j for j in jobs if j is not None and j.status is Status.QUEUED and j.cancel_requested_at is not None
        ]
        if cancelled_jobs:
            settlements = [commands.cancel(job, job.cancel_reason or "") for job in cancelled_jobs]
            answers = await self.store.settle(settlements, now=now)
            count_ended(Status.CANCELED, answers.count(Settled.APPLIED))
        if self.transport is not None and job_ids:
            self.transport.on_requeue(job for job in jobs if job not in cancelled_jobs)

    async def _command(
        self,
        job_id: str,
        decide: Callable[[Job], Settlement],
        requester_id: str | None,
        now: int | None,
    ) -> Job:
        """Read the job, decide, settle; repeat if the job moved in between, since each such move is progress."""
        for race in range(RACES):
            job = await self.get(job_id, requester_id=requester_id)
            (answer,) = await self.settle([decide(job)], now=now)
            if answer is not Settled.STALE:
                return await self.get(job_id)
            await asyncio.sleep(0.001 * race)
        raise StaleClaim(f"job {job_id} changed {RACES} times while it was being changed; try again")


def _transport(store: Store, redis_url: str) -> Transport:
    try:
        from .transport import Transport  # noqa: PLC0415 - its driver is an extra
    except ModuleNotFoundError as error:
        advice = "pip install 'callsheet[redis]', or leave CALLSHEET_REDIS_URL empty"
        raise StoreError(f"the driver for Redis is missing ({error.name}): {advice}") from error
    return Transport(store, redis_url)


def _count(settlements: Sequence[Settlement]) -> None:
    """Count applied moves, other than successes, in the metrics."""
    fact("retried", sum(s.outcome is Outcome.RETRIED for s in settlements))
    fact("lease_lost", sum(s.lease_lost for s in settlements))
    fact("dead_letter", sum(s.status is Status.DEAD_LETTER for s in settlements))
    for status, count in Counter(s.status for s in settlements if s.status.terminal).items():
        count_ended(status, count)
