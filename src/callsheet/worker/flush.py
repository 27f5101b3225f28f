"""Batched writes: a worker sends the settlements of all its runs in batches; an idle worker sends immediately.

The next batch gathers while one is in flight, and a half-full batch starts a second flight: so the store has work
while the worker reads an answer. A run has one write in flight at a time, so its writes stay in order. While the store
is away, writes are retried: the store answers REPEATED to a settlement applied before, and STALE to a late one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from callsheet.kernel import commands
from callsheet.kernel.errors import CallsheetError, Outage, StoreError, StoreUnavailable
from callsheet.net.backoff import pause_after
from callsheet.store.protocol import Settled

from .current import extra
from .outages import refusal_of
from .plane import PartlyRefused
from .run import PendingWrite, Run, ends

if TYPE_CHECKING:
    from callsheet.kernel.settlement import Settlement

    from .plane import JobSource

log = logging.getLogger("callsheet.worker")
ENOUGH = 200
FLIGHTS = 2
APPLIED = Settled.APPLIED  # compared with every answer, and an enum's member takes 45 ns to look up
GATHER_S = 0.002
BACKOFF_S = 0.02, 1.0  # the first and the longest pause
Entry = tuple[Run, "Settlement", PendingWrite | None]


class Flusher:
    """Writes the settlements of all runs of a worker.

    `batch_written` is called after each batch, `claim_ended` and `claim_lost` for each finished and each stale claim.
    """

    def __init__(
        self,
        engine: JobSource,
        busy: Callable[[], bool],
        batch_written: Callable[[], None],
        claim_ended: Callable[[Run], None],
        claim_lost: Callable[[Run], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._engine = engine
        self._batch_size = engine.store.batch
        self._busy = busy
        self._batch_written = batch_written
        self._claim_ended = claim_ended
        self._claim_lost = claim_lost
        self._pending: list[Entry] = []
        self._flights: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._calm = asyncio.Event()
        self._calm.set()
        self.pending_count = 0
        self.patience_s = 0.0  # for how long after a lease its writes are still tried

    def send(self, run: Run, settlement: Settlement, write: PendingWrite | None) -> None:
        """Write a report of a run; a report after the run's end fails with StaleClaim."""
        if run.is_settled and write is not None:  # a report of another thread, after the end
            write.end(run.stale())
            return
        self.put(run, settlement, write)

    def put(self, run: Run, settlement: Settlement, write: PendingWrite | None) -> None:
        """Write a settlement after all earlier settlements of this run, even if the run has ended meanwhile."""
        if not self.pending_count:
            self._calm.clear()
        self.pending_count += 1
        if run.sending:
            if run.outbound is None:
                run.outbound = deque()
            if run.outbound and _overtakes(settlement, run.outbound[-1][0]):
                self.pending_count -= 1
                _, earlier = run.outbound.pop()
                if write is not None:
                    write.instead_of = earlier
            run.outbound.append((settlement, write))
            return
        run.sending = True
        self._pending.append((run, settlement, write))
        if len(self._flights) < FLIGHTS:
            self._consider()

    async def drain(self) -> None:
        """Wait until every settlement is answered."""
        await self._calm.wait()

    def _consider(self) -> None:
        """Start a write at once if the worker is idle, after 2 ms if jobs wait, or when a batch is large enough."""
        flying, waiting = len(self._flights), len(self._pending)
        if not waiting:
            return
        if waiting >= (self._batch_size // 2 if flying else ENOUGH):
            self._flush()
        elif not flying and self._timer is None:
            self._timer = (
                self.loop.call_later(GATHER_S, self._flush) if self._busy() else self.loop.call_soon(self._flush)
            )

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._pending = self._pending[: self._batch_size], self._pending[self._batch_size :]
        flight = self.loop.create_task(self._write(batch))
        self._flights.add(flight)
        flight.add_done_callback(self._end_flight)

    def _end_flight(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if not self.pending_count:
            self._calm.set()
        self._consider()
        self._batch_written()

    async def _write(self, batch: list[Entry]) -> None:
        try:
            answers = await self._settle(batch)
        except PartlyRefused as error:
            for entry, its_own in zip(batch, error.answers, strict=True):
                await self._take_answer(entry, its_own)
            return
        except Exception as error:  # noqa: BLE001 - one bad settlement must not take the others with it
            await self._write_apart(batch, error)
            return
        for entry, answer in zip(batch, answers, strict=True):
            run, settlement, write = entry
            if answer is APPLIED and write is None and settlement.outcome is not None and not run.outbound:
                self.pending_count -= 1  # a shortcut for the most frequent answer; the general case follows
                run.sending = False
                self._claim_ended(run)
                continue
            try:
                self._answer(entry, answer)
            except Exception:
                what = "job %s: an answer of the store was not understood"
                log.exception(what, entry[0].job_id, extra=extra(entry[0].job))

    async def _settle(self, batch: list[Entry]) -> list[Settled]:
        """Settle, with retries until the leases end; raises errors about the settlements themselves.

        A whole batch is retried only while the store is away; after other errors each settlement is written alone.
        """
        failures, settlements, until = 0, [entry[1] for entry in batch], 0.0
        while True:
            try:
                return await self._engine.settle(settlements)
            except Exception as error:
                together = len(settlements) > 1 and not isinstance(error, StoreUnavailable)
                if together or is_about_settlement(error):
                    raise
                until = until or min(entry[0].expires_at for entry in batch)
                if time.monotonic() > until + self.patience_s:
                    log.warning(
                        "the store was away after the leases ran out, work is lost and will run again: %s", error
                    )
                    return [Settled.STALE] * len(settlements)
                failures += 1
                await asyncio.sleep(pause_after(failures, *BACKOFF_S, jitter=0.5))

    async def _take_answer(self, entry: Entry, answer: Settled | Exception) -> None:
        if not isinstance(answer, Exception):
            self._answer(entry, answer)
        elif is_about_settlement(answer):
            await self._write_apart([entry], answer)
        else:
            await self._write([entry])

    async def _write_apart(self, batch: list[Entry], error: Exception) -> None:
        """Write each settlement of a failed batch alone; if one is refused alone, fail its report or its job."""
        if len(batch) > 1:
            await asyncio.gather(*(self._write([entry]) for entry in batch))
            return
        run, settlement, write = batch[0]
        what = "job %s: the store refused its %s: %s"
        log.error(what, run.job_id, settlement.status, error, extra=extra(run.job))
        if write is not None:
            self._answer(batch[0], error)
            return
        try:
            settlement = commands.fail(run.job, refusal_of(error), rand=0.0)
            (answer,) = await self._settle([(run, settlement, None)])
        except Exception:
            what = "job %s: its failure could not be written either; its lease will run out"
            log.exception(what, run.job_id, extra=extra(run.job))
            answer = Settled.STALE
        self._answer((run, settlement, None), answer)

    def _answer(self, entry: Entry, answer: Settled | Exception) -> None:
        run, settlement, write = entry
        self.pending_count -= 1
        run.sending = False
        stale = answer is Settled.STALE
        if write is not None:
            write.end(run.stale() if stale else answer if isinstance(answer, Exception) else None)
        if stale:
            self._give_up(run)
        elif ends(settlement):
            self._forget(run)
            self._claim_ended(run)
        elif run.outbound:
            self.pending_count -= 1
            self.put(run, *run.outbound.popleft())

    def _forget(self, run: Run) -> None:
        """Fail a run's waiting writes with StaleClaim."""
        waiting, run.outbound = run.outbound or (), None
        for _, write in waiting:
            self.pending_count -= 1
            if write is not None:
                write.end(run.stale())

    def _give_up(self, run: Run) -> None:
        self._forget(run)
        self._claim_lost(run)


def is_about_settlement(error: Exception) -> bool:
    """Return whether an error is about a settlement's content, so that the same write would fail again.

    Other errors come from the store, the network or a bug of ours: they end no job.
    """
    if isinstance(error, CallsheetError):
        return not isinstance(error, StoreError | Outage)
    return isinstance(error, ValueError | TypeError | OverflowError)  # a value that a driver cannot write


def _overtakes(later: Settlement, earlier: Settlement) -> bool:
    """Return whether both are progress reports: the later replaces the earlier, however often a task reports."""
    return (
        later.event is not None and earlier.event is not None and later.event.type == earlier.event.type == "progress"
    )
