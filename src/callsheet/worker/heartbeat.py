"""Heartbeats: one write extends all leases of a worker, from a separate thread and connection.

So heartbeats continue while the event loop or a task is busy, and while the worker drains. A run is stopped, and its
programs are killed, if its claim is lost, or if its lease ran out by this machine's clock while the store was away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from callsheet.kernel.errors import StoreError, StoreUnavailable
from callsheet.kernel.workers import BEATS_PER_LEASE
from callsheet.store import store_from_url
from callsheet.store.tasks import wait

from .children import kill_groups
from .current import extra
from .run import Run, Stop

if TYPE_CHECKING:
    from callsheet.store.protocol import HeartbeatResult, Store

    from .plane import Beats

log = logging.getLogger("callsheet.worker")
PROMPT_S = 0.5
RETRY_S = 0.25
CLOSE_S = 2.0


class Heartbeat:
    """Extends the leases of `runs` (by job id), which the event loop fills and empties.

    `may_come_too_late`: a write after the lease's end is worth a try, since only the store knows whether another
    process took the job meanwhile.
    """

    may_come_too_late = True

    def __init__(self, url: str, own_store: Store | None, runs: dict[str, Run], lease_s: float) -> None:
        """Beat on this event loop through `own_store`, for a store in this process's memory, else in a thread."""
        self._url = url
        self._loop_store = own_store
        self._runs = runs
        self.lease_s = lease_s
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._urgent_ids: set[str] = set()
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self.last_beat = time.monotonic()

    async def __aenter__(self) -> Self:
        if self._loop_store is not None:
            self._task = asyncio.create_task(self._beat_again_and_again(self._loop_store), name="callsheet-heartbeat")
        else:
            self._thread = threading.Thread(target=self._in_thread, name="callsheet-heartbeat", daemon=True)
            self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._set_wake()
        if self._task is not None:
            await self._task
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 10)

    def poke(self, job_ids: set[str]) -> None:
        """Request an early heartbeat for these jobs: somebody may have requested their cancellation."""
        if job_ids:
            self._urgent_ids |= job_ids
            self._set_wake()

    @property
    def _interval_s(self) -> float:
        return self.lease_s / BEATS_PER_LEASE

    def _set_wake(self) -> None:
        if self._wake is not None:
            loop, event = self._wake
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def _in_thread(self) -> None:
        asyncio.run(self._with_own_store())

    async def _with_own_store(self) -> None:
        """Connect when a lease first needs extending, and beat; reconnect after any error."""
        wake = asyncio.Event()
        self._wake = (asyncio.get_running_loop(), wake)
        while not self._stopping and not self._urgent_ids and not self._due(self._interval_s / 2):
            self.last_beat = time.monotonic()
            await wait(wake, min(self._interval_s / 4, 1.0))
        while not self._stopping:
            store = self._connection()
            try:
                await store.open()
                await self._beat_for_ever(store)
            except Exception as error:  # noqa: BLE001 - a worker without heartbeats would lose all its leases
                log.warning("heartbeats begin anew: %s", error)
                self._stop_expired()
                await asyncio.sleep(RETRY_S)
            finally:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(CLOSE_S):
                        await store.close()

    def _connection(self) -> Beats:
        """Return a new connection for heartbeats, not yet open."""
        return store_from_url(self._url)

    async def _beat_again_and_again(self, store: Store) -> None:
        while not self._stopping:
            try:
                await self._beat_for_ever(store)
            except StoreError as error:
                log.warning("heartbeats begin anew: %s", error)
                self._stop_expired()

    async def _beat_for_ever(self, store: Beats) -> None:
        wake = asyncio.Event()
        self._wake = (asyncio.get_running_loop(), wake)
        prompt_at = 0.0
        while not self._stopping:
            interval_s = self._interval_s
            due = self._due(interval_s / 2 if time.monotonic() >= prompt_at else interval_s)
            if due:
                prompt_at = time.monotonic() + PROMPT_S
                await self._beat(store, due)
            self.last_beat = time.monotonic()
            self._stop_expired()
            wake.clear()
            patience_s = PROMPT_S if self._urgent_ids else min(interval_s / 4, 1.0)
            await wait(wake, patience_s)
            while time.monotonic() < prompt_at and wake.is_set() and not self._stops():
                wake.clear()  # poked again so soon: the next beat serves all
                await wait(wake, prompt_at - time.monotonic())

    def _stops(self) -> bool:
        return self._stopping

    def _due(self, older_than_s: float) -> list[Run]:
        """Return the runs whose last extension is too old, and the poked runs."""
        urgent_ids, self._urgent_ids = self._urgent_ids, set()
        limit = time.monotonic() + self.lease_s - older_than_s
        runs = list(self._runs.values())
        held = [run for run in runs if run.stop is not Stop.LOST]  # a lost claim must not be extended
        return [run for run in held if run.expires_at < limit or run.job_id in urgent_ids]

    async def _beat(self, store: Beats, runs: list[Run]) -> None:
        asked_at = time.monotonic()
        request = asyncio.ensure_future(
            store.heartbeat([run.job.claim for run in runs], lease_ms=round(self.lease_s * 1000))
        )
        patience_s = max(1.0, self.lease_s / BEATS_PER_LEASE)
        if not (await asyncio.wait([request], timeout=patience_s))[0]:
            request.cancel()  # without waiting for the end: a frozen server may never answer a cancellation
            request.add_done_callback(_forgotten)
            raise StoreUnavailable(f"a heartbeat for {len(runs)} jobs had no answer within {patience_s:g} s")
        try:
            beats = request.result()
        except StoreError as error:
            log.warning("a heartbeat for %d jobs was not answered: %s", len(runs), error)
            await asyncio.sleep(RETRY_S)
            return
        for run, beat in zip(runs, beats, strict=True):
            self._take_result(run, beat, asked_at)

    def _take_result(self, run: Run, beat: HeartbeatResult, asked_at: float) -> None:
        if beat.held:
            run.expires_at = asked_at + self.lease_s
            if beat.cancel_requested:
                self._tell(run, Stop.CANCEL)
        elif self._runs.get(run.job_id) is run and not run.is_settled:
            what = "job %s: claim %d is lost; its work is stopped"
            log.warning(what, run.job_id, run.job.claim_version, extra=extra(run.job))
            self._tell(run, Stop.LOST)

    def _stop_expired(self) -> None:
        now = time.monotonic()
        for run in list(self._runs.values()):
            if run.expires_at < now and run.stop is not Stop.LOST and not run.is_settled:
                what = "job %s: its lease ran out before the store could be reached; its work is stopped"
                log.warning(what, run.job_id, extra=extra(run.job))
                run.is_cut_off = self.may_come_too_late
                self._tell(run, Stop.LOST)

    def _tell(self, run: Run, why: Stop) -> None:
        if run.stop is why or (run.stop is not None and why is not Stop.LOST):
            return
        if why is Stop.LOST:
            kill_groups(run)
        stop: Callable[[Stop], None] = run.request_stop
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(stop, why)


def _forgotten(request: asyncio.Future[Any]) -> None:
    if not request.cancelled():
        request.exception()
