"""The worker: claims jobs for all free slots in one round trip, runs them, and settles them in groups.

It claims ahead only what it will start within a moment, judged by how fast jobs have been ending: long jobs are never
hoarded. Its parts: `Flusher` (writes), `Heartbeat` (leases), `Slots` (running functions), housekeeping.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Unpack

from callsheet.engine.housekeeping import Housekeeping
from callsheet.kernel import commands
from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import CallsheetError, InvalidInput, StoreError
from callsheet.store.protocol import ClaimRequest, Hint
from callsheet.store.tasks import end

from .flush import Flusher
from .heartbeat import Heartbeat
from .options import Options, WorkerOptions
from .run import Run, Stop
from .slots import Slots

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from .definition import Definition

log = logging.getLogger("callsheet.worker")
AHEAD_S = 0.15
LEARN_S = 0.005
MOST = 500
STALE_AFTER_S = 1.0
TICK_S = 0.25
BACKLOG = 2_000
READY_POLLS = 3


class Source(Protocol):
    """Where a worker gets its tasks and its engine from: a `Callsheet`."""

    @property
    def database_url(self) -> str: ...
    @property
    def definitions(self) -> Mapping[str, Definition]: ...
    async def engine(self) -> Engine: ...


class Worker:
    """One worker in this process. `await run()` until `stop()`; with `burst` until nothing is left to do."""

    def __init__(self, app: Source, **options: Unpack[WorkerOptions]) -> None:
        self.options = Options(**options)
        self._app = app
        self.queues = self.options.queues or tuple(sorted({d.queue for d in app.definitions.values()}))
        if not self.queues:
            raise InvalidInput("this app has no tasks; declare one with @app.task, or name the queues to serve")
        self.runs: dict[str, Run] = {}
        self._lease_s = seconds(self.options.lease)
        self._poll_s = seconds(self.options.poll)
        self._ready: deque[tuple[float, Run]] = deque()
        self._ahead = 0
        self._done = 0
        self._claimed_at = self._polled_at = time.monotonic()
        self._stopping = False
        self._wake: asyncio.Event | None = None
        self._stopped: asyncio.Event | None = None

    async def run(self, *, burst: bool = False) -> None:
        """Work until stopped, or with `burst` until nothing can be claimed and all is settled."""
        self._wake, self._stopped = asyncio.Event(), asyncio.Event()
        if self._stopping:
            self._stopped.set()
        engine = await self._app.engine()
        async with contextlib.AsyncExitStack() as stack:
            self._flusher = Flusher(engine, self._busy, self._claim_ended, self._claim_lost)
            self._slots = Slots(engine, self.options, self._ready, self._wake_for_more)
            if self.options.housekeeping:
                await stack.enter_async_context(Housekeeping(engine))
            in_process = engine.store if ":memory:" in self._app.database_url else None
            self._heartbeat = Heartbeat(self._app.database_url, in_process, self.runs, self._lease_s)
            await stack.enter_async_context(self._heartbeat)
            helpers = [asyncio.create_task(self._listen(engine)), asyncio.create_task(self._tick())]
            stack.push_async_callback(end, *helpers)
            log.info("worker %s serves %s", self.options.worker_id, ", ".join(self.queues))
            await self._claim_until_stopped(engine, burst=burst)
            await self._drain()
            self._slots.close()

    def stop(self, *, hard: bool = False) -> None:
        """Finish what runs and hand back what has not begun; `hard` hands back what runs too."""
        self._stopping = True
        if self._stopped is not None and self._wake is not None:
            self._stopped.set()
            self._wake.set()
        if hard:
            for run in list(self.runs.values()):
                run.request_stop(Stop.SHUTDOWN)

    @property
    def ready(self) -> bool:
        """True while this worker can claim: its loop has asked the store of late, and its leases are kept."""
        now = time.monotonic()
        alive = self._wake is not None and now - self._heartbeat.last_beat < max(2.0, self._lease_s)
        return alive and not self._stopping and now - self._polled_at < READY_POLLS * max(1.0, self._poll_s)

    def _busy(self) -> bool:
        return bool(self._ready)

    async def _claim_until_stopped(self, engine: Engine, *, burst: bool) -> None:
        assert self._wake is not None  # noqa: S101 - set by run
        trouble = 0
        while not self._stopping:
            limit = self._room()
            if limit <= 0:
                self._polled_at = time.monotonic()
                self._wake.clear()
                await self._sleep(self._poll_s)
                continue
            self._wake.clear()
            try:
                claimed = await self._claim(engine, limit)
                trouble = 0
            except StoreError as error:
                trouble += 1
                log.warning("no jobs can be claimed now, trying again: %s", error)
                await self._pause(min(2.0, 0.1 * 2**trouble))
                continue
            if claimed:
                continue
            if burst and not self.runs and not self._flusher.unsettled:
                return
            await self._sleep(0.05 if burst else self._poll_s)

    async def _claim(self, engine: Engine, limit: int) -> int:
        asked_at = time.monotonic()
        request = ClaimRequest(self.options.worker_id, self.queues, limit, round(self._lease_s * 1000))
        jobs = await engine.claim(request)
        self._polled_at = time.monotonic()
        self._look_ahead(asked_at)
        expires_at = asked_at + self._lease_s
        definitions, flusher, ready, runs = self._app.definitions, self._flusher, self._ready, self.runs
        stopper = self._slots.stop
        for job in jobs:
            run = Run(job, definitions.get(job.kind), flusher, expires_at, stopper)
            runs[job.job_id] = run
            ready.append((asked_at, run))
        self._slots.fill()
        return len(jobs)

    def _room(self) -> int:
        """How many jobs to ask for: all free slots, and ahead what will begin within a moment."""
        waiting = len(self._ready)
        free = self.options.concurrency - self._slots.running
        room = min(MOST, free + self._ahead - waiting)
        enough = 1 if free > waiting else min(self._ahead, MOST) // 2
        return room if room >= enough and self._flusher.unsettled < BACKLOG else 0

    def _look_ahead(self, now: float) -> None:
        """Learn from how many functions have ended of late."""
        passed_s = now - self._claimed_at
        if passed_s < LEARN_S:
            return
        rate = (self._slots.done - self._done) / passed_s
        self._claimed_at, self._done = now, self._slots.done
        self._ahead = min(self.options.prefetch, int(rate * AHEAD_S))

    def _wake_for_more(self) -> None:
        """Ask for more when too little waits."""
        if self._wake is not None and self._room():
            self._wake.set()

    def _claim_ended(self, run: Run) -> None:
        self.runs.pop(run.job_id, None)

    def _claim_lost(self, run: Run) -> None:
        if not run.settled:
            run.request_stop(Stop.LOST)
        self.runs.pop(run.job_id, None)

    async def _listen(self, engine: Engine) -> None:
        """Wake up for our queues, and look after jobs of ours that others have touched."""
        assert self._wake is not None  # noqa: S101 - set by run
        mine = frozenset(self.queues)
        while True:
            try:
                async for hint in engine.store.hints():
                    if hint == Hint():
                        self._wake.set()
                    elif hint.queues & mine:
                        self._wake.set()
                    touched = set(self.runs) if hint == Hint() else {i for i in hint.jobs if i in self.runs}
                    self._heartbeat.poke(touched)
            except StoreError as error:
                log.debug("hints are away, the queues are polled: %s", error)
            await asyncio.sleep(self._poll_s)

    async def _tick(self) -> None:
        """Hand back what has waited too long for a slot, and tell of a blocked event loop."""
        while True:
            asked = time.monotonic()
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            if now - asked > TICK_S + STALE_AFTER_S:
                log.warning(
                    "the event loop was blocked for %.1f s; run blocking tasks as plain functions, they get threads",
                    now - asked - TICK_S,
                )
                continue
            if self._ready and now - self._ready[0][0] > STALE_AFTER_S + TICK_S:
                self._ahead = 0
                self._hand_back()

    def _hand_back(self) -> None:
        while self._ready:
            _, run = self._ready.pop()
            try:
                run.finish(commands.release(run.job))
            except CallsheetError as error:
                log.warning("job %s cannot be handed back: %s", run.job_id, error)
                self.runs.pop(run.job_id, None)

    async def _drain(self) -> None:
        self._hand_back()
        if self.runs:
            log.info("draining: %d jobs are running", self._slots.running)
        patience_s = seconds(self.options.drain)
        if not await self._slots.idle(patience_s):
            log.warning("%d jobs did not end within %g s and are handed back", self._slots.running, patience_s)
            for run in list(self.runs.values()):
                run.request_stop(Stop.SHUTDOWN)
            await self._slots.idle(seconds(self.options.grace) + 1.0)
        await self._flusher.drain()

    async def _sleep(self, patience_s: float) -> None:
        """Until something may have changed."""
        assert self._wake is not None  # noqa: S101 - set by run
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s * random.uniform(0.75, 1.0)):  # noqa: S311 - jitter
                await self._wake.wait()

    async def _pause(self, duration_s: float) -> None:
        """A fixed time, cut short only by `stop`."""
        assert self._stopped is not None  # noqa: S101 - set by run
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s * random.uniform(0.5, 1.0)):  # noqa: S311 - jitter
                await self._stopped.wait()

