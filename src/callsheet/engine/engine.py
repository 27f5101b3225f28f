"""The engine: one thin step above a store. It checks what comes in, counts, and lets the kernel decide."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Self

from callsheet.kernel import commands, intake
from callsheet.kernel.apply import applied
from callsheet.kernel.errors import JobNotFound, StaleClaim, StoreError
from callsheet.kernel.job import Job, NewJob, Outcome, Status
from callsheet.kernel.wire import PAYLOAD_LIMIT_BYTES
from callsheet.store import store_from_url
from callsheet.store.hints import together
from callsheet.store.protocol import Settled

from .beats import silence_ms_of
from .lanes import Lanes, lane_name
from .resuming import Steps, resume, steps_of
from .system_secrets import Sealers
from .telemetry import ended, fact, verb
from .watch import Watch, Watcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from types import TracebackType

    from callsheet.kernel.job import Claim, Event
    from callsheet.kernel.settlement import Settlement
    from callsheet.store.protocol import Backlog, Beat, ClaimRequest, Enqueued, Hint, JobPage, JobQuery, Store

    from .transport import Transport

SUCCEEDED, APPLIED = Status.SUCCEEDED, Settled.APPLIED  # asked for every settlement, and slow to look up
RACES = 20  # how often a command from outside may find the job changed under it before it gives up


def _no_sealer() -> None:
    """There is no keyring."""


class Engine:
    """The verbs of a store, for workers and surfaces. `async with Engine(store)` opens and closes it."""

    def __init__(
        self,
        store: Store,
        *,
        payload_limit_bytes: int = PAYLOAD_LIMIT_BYTES,
        fair_queues: Sequence[str] = (),
        redis_url: str | None = None,
    ) -> None:
        """In `fair_queues` every tenant has a lane of its own, and they are served in turn.

        `redis_url` puts Redis Streams beside a SQL store; one that is a Redis itself needs none.
        """
        self.store = store
        self.lanes = Lanes(self.backlog)
        self.transport: Transport | None = None
        self._redis_url = redis_url
        self.fair_queues = frozenset(fair_queues)
        self.sealer: Sealers = _no_sealer  # who seals the secrets of the system, where there is a keyring
        self._payload_limit_bytes = payload_limit_bytes
        self._watch = Watch(store)

    @classmethod
    def from_url(
        cls, url: str, *, payload_limit_bytes: int = PAYLOAD_LIMIT_BYTES, redis_url: str | None = None
    ) -> Self:
        """An engine on the store of a URL, not yet open."""
        return cls(store_from_url(url), payload_limit_bytes=payload_limit_bytes, redis_url=redis_url)

    async def __aenter__(self) -> Self:
        transport = _transport(self.store, self._redis_url) if self._redis_url and not self.store.streams else None
        try:
            await self.store.open()
        except BaseException:
            await self.store.close()  # what it has begun: it may be opened again and again until it is there
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
        """Create jobs, all or none; raises InvalidJob and its kin before anything is written."""
        with verb("enqueue", len(batch)):
            intake.check_batch(batch, payload_limit_bytes=self._payload_limit_bytes)
            if self.fair_queues:
                batch = [self._in_lane(new) for new in batch]
                self.lanes.heard(new.queue for new in batch)
            answers = await self.store.enqueue(batch, depth_limit=depth_limit, quotas=quotas, now=now)
        if self.transport is not None:
            self.transport.enqueued(batch, answers)
        return answers

    def _in_lane(self, new: NewJob) -> NewJob:
        fair = new.queue in self.fair_queues and new.requester_id
        return new._replace(queue=lane_name(new.queue, tenant=new.requester_id)) if fair else new

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        """Take jobs for a worker."""
        with verb("claim", request.limit):
            jobs = await self.store.claim(request, now=now)
        if self.transport is not None:
            self.transport.claimed(request, jobs)
        return jobs

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, silence_ms: int | None = None, now: int | None = None
    ) -> list[Beat]:
        """Extend leases; the answers say which are lost and which are to be cancelled."""
        with verb("heartbeat", len(claims)):
            return await self.store.heartbeat(claims, lease_ms=lease_ms, silence_ms=silence_ms, now=now)

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """Apply moves; a stale one changes nothing and says so."""
        with verb("settle", len(settlements)):
            answers = await self.store.settle(settlements, now=now)
        if self.transport is not None:
            self.transport.settled(settlements, answers)
        moved = [
            s for s, answer in zip(settlements, answers, strict=True) if s.status is not SUCCEEDED and answer is APPLIED
        ]
        moves = answers.count(APPLIED)
        ended(SUCCEEDED, moves - len(moved))
        if moves < len(answers):
            fact("stale_claim", answers.count(Settled.STALE))
        if moved:
            _count(moved)
            await self._cancel_requeued([s.job_id for s in moved if s.status is Status.QUEUED], now)
        return answers

    async def settle_one(self, job: Job, settlement: Settlement, *, now: int | None = None) -> Job:
        """Apply one move of a claim; raises StaleClaim. The job as it is then, its times as of its last event."""
        (answer,) = await self.settle([settlement], now=now)
        if answer is Settled.STALE:
            raise StaleClaim(f"claim {job.claim_version} of job {job.job_id} is not held any more; stop its work")
        return applied(job, settlement, now if now is not None else job.event_ms)

    async def cancel(
        self, job_id: str, reason: str = "", *, requester_id: str | None = None, now: int | None = None
    ) -> Job:
        """Ask for the end of a job: at once when it waits or its worker is silent, else by a flag for it.

        A worker that says nothing for two beats after that has lost the job: housekeeping ends it.
        """
        at = await self.store.now() if now is None else now

        def decide(job: Job) -> Settlement:
            return commands.request_cancel(job, reason, now=at, silent_after_ms=silence_ms_of(job))

        return await self._command(job_id, decide, requester_id, now)

    async def requeue(self, job_id: str, *, requester_id: str | None = None, now: int | None = None) -> Job:
        """Bring an ended job back by hand, where its contract allows that."""
        return await self._command(job_id, commands.requeue, requester_id, now)

    async def get(self, job_id: str, *, requester_id: str | None = None) -> Job:
        """One job; raises JobNotFound also for another requester's. None is for operators.

        Our ids are lower-case and found by any spelling; a foreign gateway's may be upper-case.
        """
        lower = job_id.lower()
        ids = [job_id] if lower == job_id else [job_id, lower]
        jobs = await self.store.get(ids) if intake.IS_UUID(lower) else []
        job = next((job for job in jobs if job is not None), None)
        if job is None or requester_id not in (None, job.requester_id):
            raise JobNotFound(f"no job {job_id}")
        return job

    async def steps(self, job: Job) -> Steps:
        """The steps that a job may go on from: its own, and those of the jobs that it resumes."""
        return await steps_of(self.store, job)

    async def resume(self, job_id: str, *, requester_id: str | None = None) -> Job:
        """The one job that goes on where an ended one stopped, however often it is asked for; raises IllegalMove."""
        job = await self.get(job_id, requester_id=requester_id)
        return await resume(self.store, job, lambda new: self.enqueue([new]))

    async def find(self, query: JobQuery) -> JobPage:
        """Jobs by filter, newest first."""
        with verb("find", query.limit):
            return await self.store.find(query)

    async def backlog(self, *, now: int | None = None) -> dict[str, Backlog]:
        """What waits and runs, by queue."""
        with verb("backlog"):
            return await self.store.backlog(now=now)

    async def watch(self, job_id: str, after: int = 0) -> AsyncIterator[Event]:
        """A job's events after a `seq`, past and to come, until its end; raises JobNotFound."""
        job = await self.get(job_id)
        if job.status.terminal and job.event_seq <= after:
            return
        async for event in self._watch.events(job.job_id, min(after, job.event_seq)):
            yield event

    def hints(self) -> AsyncIterator[Hint]:
        """Wake-ups; may be lost, doubled or late."""
        if self.transport is None:
            return self.store.hints()
        return together(self.store.hints(), self.transport.hints())

    def follow(self, after: Mapping[str, int], *, open_ended: bool = False) -> Watcher:
        """A watcher of many jobs, each after a `seq`; whether they exist is not asked. Close it."""
        return self._watch.follow(after, open_ended=open_ended)

    async def _cancel_requeued(self, job_ids: Sequence[str], now: int | None) -> None:
        """A worker that gave a job back may not have known that it is to be cancelled: then that is done now."""
        jobs = await self.store.get(job_ids) if job_ids else []
        wanted = [j for j in jobs if j is not None and j.status is Status.QUEUED and j.cancel_requested_at is not None]
        if wanted:
            settlements = [commands.cancel(job, job.cancel_reason or "") for job in wanted]
            answers = await self.store.settle(settlements, now=now)
            ended(Status.CANCELED, answers.count(Settled.APPLIED))
        if self.transport is not None and job_ids:
            self.transport.requeued(job for job in jobs if job not in wanted)

    async def _command(
        self,
        job_id: str,
        decide: Callable[[Job], Settlement],
        requester_id: str | None,
        now: int | None,
    ) -> Job:
        """Read, decide, settle; again when the job moved in between, which each time is progress of someone."""
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


def _count(moved: Sequence[Settlement]) -> None:
    """Count what applied moves, other than successes, have done."""
    fact("retried", sum(s.outcome is Outcome.RETRIED for s in moved))
    fact("lease_lost", sum(s.lease_lost for s in moved))
    fact("dead_letter", sum(s.status is Status.DEAD_LETTER for s in moved))
    for status, count in Counter(s.status for s in moved if s.status.terminal).items():
        ended(status, count)
