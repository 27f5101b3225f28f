"""The main loop of a worker: claims jobs for all free slots in one round trip, runs them, settles them in groups.

A loop claims ahead only jobs that start within a moment, judged by how fast functions have been ending: long jobs are
never hoarded. Its parts: `Slots` (running functions), `Flusher` (writes), `Heartbeat` (leases). `LocalWorkerLoop` works
on a store, `RemoteWorkerLoop` on a server's HTTP interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from callsheet.engine.silent_workers import is_ahead, needs_listing
from callsheet.kernel import commands
from callsheet.kernel.contracts import WITH_CALLBACKS
from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import CallsheetError
from callsheet.net.backoff import pause_after
from callsheet.store.protocol import ClaimRequest
from callsheet.store.tasks import end, wait

from .current import extra
from .disk import DiskRoom
from .flush import Flusher
from .run import Run, Stop
from .slots import Slots
from .workspace import default_root

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from callsheet.kernel.job import Job

    from .ahead import Ahead
    from .definition import Definition
    from .heartbeat import Heartbeat
    from .options import Options
    from .plane import JobSource

log = logging.getLogger("callsheet.worker")
AHEAD_S = 0.15  # what would wait longer than this for a slot is left to other workers
SHORT_S = 0.02  # where no function ends within this time, jobs are long: none is claimed ahead, none waits here
LEARN_S = 0.005
STALE_AFTER_S = 1.0
TICK_S = 0.25
BACKLOG = 3_000
BURST_POLL_S = 0.02


class WorkerLoop:
    """The main loop of one worker: enter `async with shift`, call `claim_until_stopped`, then `drain`."""

    def __init__(
        self,
        engine: JobSource,
        definitions: Mapping[str, Definition],
        queues: tuple[str, ...],
        options: Options,
    ) -> None:
        self.runs: dict[str, Run] = {}
        self.line: deque[tuple[float, Run]] = deque()
        self.lease_s, self.poll_s = seconds(options.lease), seconds(options.poll)
        self.flusher = Flusher(engine, lambda: bool(self.line), self._make_room, self._claim_ended, self._claim_lost)
        self.slots = Slots(engine, options, self.line, self._slot_freed, self._claim_ended)
        self.polled_at = self._learned_at = time.monotonic()
        self._engine, self._definitions, self._queues, self._options = engine, definitions, queues, options
        self.heartbeat = self._make_heartbeat()
        self.disk = DiskRoom(options.workspaces or default_root())
        self.claims_ahead: Ahead | None = None  # None: jobs claimed ahead count as begun
        self._ahead = self._done_before = 0
        self._last_claim_empty = False  # the last claim found nothing
        self._may_tell = any(definition.contract in WITH_CALLBACKS for definition in definitions.values())
        self._tells = False  # the last claimed jobs have callbacks: their requesters get an event of each claim
        self._batch_size = engine.store.batch
        self._stopping = asyncio.Event()
        self._hard = asyncio.Event()
        self._drain_until: float | None = None  # None until `stop` is called
        self._wake = asyncio.Event()
        self._seen_done, self._quiet_s, self._pause_seen_s = 0, 0.0, 0.0
        self._lined_up = asyncio.Event()  # a claim has put jobs in line since the last look at it
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.heartbeat)
        beside = [self._tick(), *self._background_tasks()]
        self._stack.push_async_callback(end, *map(asyncio.create_task, beside))
        log.info("worker %s serves %s", self._options.worker_id, ", ".join(self._queues))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.slots.close()
        if self.claims_ahead is not None:
            await self.claims_ahead.close()
        await self._stack.aclose()

    def _make_heartbeat(self) -> Heartbeat:
        """Make the heartbeat that extends the leases of `runs`."""
        raise NotImplementedError

    async def _queues_to_claim(self) -> tuple[str, ...]:
        """Return the queues for the next claim, in order of preference."""
        return self._queues

    def _background_tasks(self) -> Sequence[Coroutine[None, None, None]]:
        """Return coroutines to run as background tasks until the shift ends."""
        return ()

    def stop(self, *, hard: bool = False) -> None:
        """Stop claiming and release jobs that have not begun; `hard` stops running functions too."""
        if self._drain_until is None:
            self._drain_until = time.monotonic() + seconds(self._options.drain)
        self._stopping.set()
        self._wake.set()
        self._hand_back()
        if hard:
            self._hard.set()
            for run in list(self.runs.values()):
                run.request_stop(Stop.SHUTDOWN)

    async def claim_until_stopped(self, *, burst: bool) -> None:
        """Claim jobs until `stop` is called; a burst ends when no job is left.

        After `stop`, a claim in flight has the drain time to be answered, after a hard stop at most the grace time.
        Jobs of an unanswered claim run again when their leases end.
        """
        claiming = asyncio.create_task(self._claim_on(burst=burst))
        stopping, hard = (asyncio.create_task(event.wait()) for event in (self._stopping, self._hard))
        try:
            await asyncio.wait({claiming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({claiming, hard}, timeout=self._drain_left_s(), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({claiming}, timeout=min(self._drain_left_s(), seconds(self._options.grace)))
            if not claiming.done():
                log.warning("the last claim was not answered; what it was given runs again when its lease is over")
        finally:
            await end(stopping, hard, claiming)
        if not claiming.cancelled():
            claiming.result()

    def _drain_left_s(self) -> float:
        """Return the seconds left of the drain time, which begins when `stop` is called."""
        until = self._drain_until
        return seconds(self._options.drain) if until is None else max(0.0, until - time.monotonic())

    async def _claim_on(self, *, burst: bool) -> None:
        """Claim jobs whenever slots are free. Errors of the store delay the next claim and end nothing."""
        trouble = 0
        while not self._stopping.is_set():
            self._wake.clear()
            if not self._ahead:  # otherwise the rate is measured between claims: shorter times are too noisy
                self._look_ahead(time.monotonic())
            room = await self._room_or_handed()
            idle = not self.runs and not self.flusher.pending_count  # before the claim: a job's end may release others
            try:
                count = await self._claim(room, thorough=burst and idle) if room else 0
            except Exception as error:  # a worker that ends would take its running jobs with it
                trouble += 1
                is_known = isinstance(error, CallsheetError)
                log.warning("no jobs can be claimed now, trying again: %s", error, exc_info=not is_known)
                await wait(self._stopping, self._pause_s(trouble, error))
                continue
            trouble, self.polled_at = 0, time.monotonic()
            self._last_claim_empty = bool(room) and not count
            if count:
                if idle:
                    await asyncio.sleep(0)  # these jobs begin before the next claim: a tenth of their wait
                continue
            if burst and room and idle:
                return
            self._go_idle(room, burst=burst)
            await wait(self._wake, self._rest_s(room, burst=burst) * random.uniform(0.75, 1))  # noqa: S311 - jitter

    async def _room_or_handed(self) -> int:
        """Return the number of jobs to claim now; subclasses add jobs that were handed over."""
        return self._room()

    def _go_idle(self, room: int, *, burst: bool) -> None:
        """Prepare to sleep after a claim without jobs, or without `room`; a hook for subclasses."""

    def _pause_s(self, trouble: int, error: Exception) -> float:  # noqa: ARG002 - a server may say how long
        """Return the seconds to wait before the next claim, after `trouble` failed claims in a row."""
        return pause_after(trouble, 0.1, 2.0, jitter=0.5)

    def _rest_s(self, room: int, *, burst: bool) -> float:  # noqa: ARG002 - who has waited at the server need not rest
        """Return the seconds to sleep, unless woken, after a claim without jobs or without `room`."""
        return BURST_POLL_S if burst else self.poll_s

    async def _claim(self, limit: int, *, thorough: bool) -> int:
        """Claim jobs and return their number; a burst may end after a `thorough` claim without jobs."""
        asked_at, queues = time.monotonic(), await self._queues_to_claim()
        owner = self._options.worker_id
        if self.claims_ahead is not None and limit > self._free():  # otherwise every claimed job begins at once
            owner = self.claims_ahead.owner
        request = ClaimRequest(owner, queues, limit, round(self.lease_s * 1000), thorough=thorough)
        jobs = await self._engine.claim(request)
        if self._may_tell and jobs:
            self._tells = any(job.contract in WITH_CALLBACKS for job in jobs)
            self._ahead = 0 if self._tells else self._ahead
        self._look_ahead(asked_at)
        return self._line_up(jobs, asked_at, asked_at + self.lease_s)

    def _line_up(self, jobs: list[Job], claimed_at: float, expires_at: float) -> int:
        """Queue claimed jobs for the slots and return their number."""
        definitions, flusher, runs, stopper = self._definitions, self.flusher, self.runs, self.slots.stop
        ahead = self.claims_ahead if jobs and is_ahead(jobs[0]) else None
        line_up = self.line.append
        for job in jobs:
            job_id = job.job_id
            if job_id in runs:  # the earlier claim was lost, unnoticed until now
                runs[job_id].request_stop(Stop.LOST)
            run = runs[job_id] = Run(job, definitions.get(job.kind), flusher, expires_at, stopper)
            if (job.lease_losses or job.error) and ahead is not None and needs_listing(job):
                ahead.suspects.append((claimed_at, run))
            else:
                line_up((claimed_at, run))
        self._begin_jobs()
        return len(jobs)

    def _begin_jobs(self) -> None:
        """Let free slots begin queued jobs."""
        if not self._stopping.is_set():
            self.slots.fill()
        self._lined_up.set()

    def _free(self) -> int:
        """Return the number of idle slots, less the jobs queued for them."""
        return self._options.concurrency - self.slots.running - len(self.line)

    def _lines(self) -> tuple[deque[tuple[float, Run]], ...]:
        """Return the queues of claimed jobs that have not begun."""
        return (self.line,) if self.claims_ahead is None else (self.line, self.claims_ahead.suspects)

    def _room(self) -> int:
        """Return the number of jobs to claim: one per free slot, plus jobs claimed ahead; 0 while the disk is full."""
        if self.disk.is_full():
            return 0
        waiting = sum(map(len, self._lines()))
        free = self._options.concurrency - self.slots.running
        room = min(self._batch_size, free + self._ahead - waiting)
        enough = 1 if free > waiting else min(self._ahead, self._batch_size) // 2
        return room if room >= max(1, enough) and self.flusher.pending_count < BACKLOG else 0

    def _look_ahead(self, now: float) -> None:
        """Set the number of jobs to claim ahead from the recent rate of finished functions."""
        passed_s = now - self._learned_at
        if passed_s >= LEARN_S:
            rate = (self.slots.done_count - self._done_before) / passed_s
            self._learned_at, self._done_before = now, self.slots.done_count
            may = rate * SHORT_S >= 1 and not self._tells
            self._ahead = min(self._options.prefetch, int(rate * AHEAD_S)) if may else 0

    def _slot_freed(self) -> None:
        """Wake the claim loop, unless the last claim found no jobs: another free slot does not change that."""
        if not self._last_claim_empty:
            self._make_room()

    def _make_room(self) -> None:
        """Wake the claim loop if there is room for jobs, after a slot became free or a batch was written."""
        if self._room():
            self._wake.set()

    def _claim_ended(self, run: Run) -> None:
        if self.runs.get(run.job_id) is run:
            del self.runs[run.job_id]

    def _claim_lost(self, run: Run) -> None:
        if not run.is_settled:
            run.request_stop(Stop.LOST)
        self._claim_ended(run)

    async def _tick(self) -> None:
        """Release queued jobs behind slow functions, list claims ahead as begun, and warn of a blocked event loop."""
        while True:
            begun_at, lined_up = time.monotonic(), any(self._lines())
            soon = lined_up or (self.claims_ahead is not None and self.claims_ahead.has_news)
            patience_s = SHORT_S if soon else TICK_S
            self._lined_up.clear()
            await (asyncio.sleep(patience_s) if soon else wait(self._lined_up, patience_s))
            late_s = time.monotonic() - begun_at - patience_s
            if late_s > STALE_AFTER_S:
                advice = "declare blocking tasks as plain functions, they get threads"
                log.warning("the event loop was blocked for %.1f s; %s", late_s, advice)
            elif lined_up and late_s < SHORT_S and self._is_stuck(patience_s):
                self._ahead = 0
                self._hand_back()
            if self.claims_ahead is not None and soon:
                self.line.extendleft(reversed(await self.claims_ahead.look(self._free())))  # before all others
                self._begin_jobs()

    def _is_stuck(self, passed_s: float) -> bool:
        """Return whether queued jobs wait for functions that run longer than earlier functions did."""
        if not self.line or self.slots.running < self._options.concurrency:
            return False
        if self.slots.done_count != self._seen_done:
            self._pause_seen_s = max(self._quiet_s, 0.9 * self._pause_seen_s)
            self._seen_done, self._quiet_s = self.slots.done_count, 0.0
        else:
            self._quiet_s += passed_s
        usual_s = min(AHEAD_S, max(SHORT_S, 1.5 * self._pause_seen_s))  # jobs may end in waves
        return self._quiet_s >= usual_s or time.monotonic() - self.line[0][0] > STALE_AFTER_S

    def _hand_back(self) -> None:
        """Release jobs that have not begun; this costs no attempt."""
        for line in self._lines():
            while line:
                _, run = line.popleft()
                try:
                    run.finish(commands.release(run.job))
                except CallsheetError as error:
                    what = "job %s cannot be handed back, its lease will run out: %s"
                    log.warning(what, run.job_id, error, extra=extra(run.job))
                if not run.is_settled:
                    self._claim_ended(run)

    async def drain(self) -> None:
        """Release queued jobs at once, wait for running functions, and stop and release them after the drain time."""
        self.flusher.patience_s = 0.0
        self._hand_back()
        if self.slots.running:
            log.info("draining: %d jobs are running", self.slots.running)
        await _wait_for_one(self.slots.idle, self._hard, self._drain_left_s())
        if not self.slots.idle.is_set():
            log.warning("%d jobs are handed back", self.slots.running)
            self.stop(hard=True)
            await wait(self.slots.idle, seconds(self._options.grace) + 1.0)
        await self.flusher.drain()


async def _wait_for_one(one: asyncio.Event, other: asyncio.Event, patience_s: float) -> None:
    """Wait for the first of two events, at most `patience_s` seconds."""
    waits = [asyncio.create_task(wait(event, patience_s)) for event in (one, other)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await end(*waits)
