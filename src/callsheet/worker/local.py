"""The worker's main loop on a store: hints wake it, and it takes part in housekeeping."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from callsheet.engine.housekeeping import Housekeeping
from callsheet.engine.silent_workers import BegunJobs, UnheardClaims
from callsheet.kernel.errors import StoreError
from callsheet.kernel.workers import BEATS_PER_LEASE
from callsheet.store.hints import NoDoor
from callsheet.store.protocol import Hint
from callsheet.store.tasks import end

from .ahead import Ahead
from .heartbeat import Heartbeat
from .registration import register_until_ended
from .shift import STALE_AFTER_S, WorkerLoop
from .workspace import sweep_until_ended

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from callsheet.engine import Engine
    from callsheet.store.hints import Door

    from .definition import Definition
    from .options import Options

log = logging.getLogger("callsheet.worker")
OUTAGE_S = 3_600.0  # an outage of the store costs no attempt for as long


class LocalWorkerLoop(WorkerLoop):
    """A shift that claims from an engine's store. Heartbeats connect to `heartbeat_url`."""

    def __init__(
        self,
        engine: Engine,
        definitions: Mapping[str, Definition],
        queues: tuple[str, ...],
        options: Options,
        heartbeat_url: str,
    ) -> None:
        self._local, self._heartbeat_url = engine, heartbeat_url
        self._housekeeping = Housekeeping(engine)
        self._door: Door = NoDoor()
        super().__init__(engine, definitions, queues, options)
        self.flusher.patience_s = OUTAGE_S
        begun_jobs = BegunJobs(engine.store, options.worker_id)
        self._unheard = UnheardClaims(engine.store, options.worker_id)
        self.claims_ahead = Ahead(begun_jobs, self.slots, lambda run: self.runs.get(run.job_id) is run)

    async def __aenter__(self) -> Self:
        if self._options.housekeeping:
            await self._stack.enter_async_context(self._housekeeping)
        return await super().__aenter__()

    async def _claim_on(self, *, burst: bool) -> None:
        """Claim jobs as in `WorkerLoop`; on exit, the door closes and returns jobs handed to it at the last moment."""
        async with await self._local.store.door(self._options.worker_id, self._queues) as self._door:
            await super()._claim_on(burst=burst)

    async def _claim(self, limit: int, *, thorough: bool) -> int:
        """Claim jobs as in `WorkerLoop`, after recording earlier claims without an answer in the store.

        A claim that hangs is recorded at each beat too: the store may have leased jobs to it.
        """
        await self._unheard.write()
        asked_at, hanging = time.monotonic(), list[asyncio.Task[None]]()
        beat_s = self.lease_s / BEATS_PER_LEASE

        def tell() -> None:
            hanging.append(asyncio.create_task(self._tell_again_and_again(asked_at, beat_s), name="callsheet-unheard"))

        timer = asyncio.get_running_loop().call_later(beat_s, tell)
        try:
            return await super()._claim(limit, thorough=thorough)
        except Exception:
            self._unheard.add(asked_at)
            raise
        finally:
            timer.cancel()
            await end(*hanging)

    async def _tell_again_and_again(self, asked_at: float, beat_s: float) -> None:
        """Record in the store, at each beat, that the claim sent at `asked_at` has had no answer."""
        while True:
            self._unheard.add(asked_at)
            try:
                async with asyncio.timeout(beat_s):
                    await self._unheard.write()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next beat tries again
                log.debug("a claim without an answer cannot be written down now: %s", error)
            await asyncio.sleep(beat_s)

    async def _room_or_handed(self) -> int:
        """Return the free room, or the number of jobs handed over at the door: those are claimed without free slots."""
        if not (room := self._room()):
            await self._door.shut()
        return max(room, self._door.waiting)

    def _go_idle(self, room: int, *, burst: bool) -> None:
        """Open the door for handed-over jobs, if there is `room`."""
        if room and not burst:
            self._door.open()

    def _make_heartbeat(self) -> Heartbeat:
        in_process = self._local.store if ":memory:" in self._heartbeat_url else None
        return Heartbeat(self._heartbeat_url, in_process, self.runs, self.lease_s)

    async def _queues_to_claim(self) -> tuple[str, ...]:
        """Return the queues, with fair queues expanded to one lane per requester, the longest unserved lane first."""
        if not self._local.fair_queues:
            return self._queues
        queues = await self._local.lanes.expand(self._queues)
        fair = [queue for queue in queues if queue not in self._queues]
        self._local.lanes.note_claim(queues, fair[:1], short=False)
        return queues

    def _background_tasks(self) -> Sequence[Coroutine[None, None, None]]:
        coroutines = [self._listen(), sweep_until_ended(self._options.workspaces, self._local.store.get)]
        register = self._options.register
        return [*coroutines, register_until_ended(register)] if register is not None else coroutines

    async def _listen(self) -> None:
        """Wake the claim loop for hints about our queues, and request a heartbeat for our jobs that a hint names."""
        mine = frozenset(self._queues)
        while True:
            try:
                async for hint in self._local.hints():
                    anything = hint == Hint()
                    if anything or self._local.lanes.note_work(hint.queues) & mine:
                        self._wake.set()
                    mine_too = anything or "*" in hint.jobs
                    self.heartbeat.poke(self._long_held() if mine_too else {i for i in hint.jobs if i in self.runs})
            except StoreError as error:
                log.debug("hints are away, the queues are polled: %s", error)
            await asyncio.sleep(self.poll_s)

    def _long_held(self) -> set[str]:
        """Return the jobs whose leases were extended over a second ago; younger jobs may end before a beat."""
        limit = time.monotonic() + self.lease_s - STALE_AFTER_S
        return {job_id for job_id, run in self.runs.items() if run.expires_at < limit}
