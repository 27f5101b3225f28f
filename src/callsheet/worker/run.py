"""One attempt of one job inside this worker: its claim, its writes, and the reason to stop.

The worker's `Flusher` sends a run's writes in order, one at a time. `kernel.apply.after_settlement` tracks the job
locally, so that no write needs a read.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from callsheet.kernel.apply import after_settlement
from callsheet.kernel.errors import StaleClaim
from callsheet.kernel.job import Job, NewJob
from callsheet.kernel.settlement import Settlement

if TYPE_CHECKING:
    from .definition import Definition


class Stop(StrEnum):
    """The reason why a run must stop before its function returns."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    LOST = "lost"
    SHUTDOWN = "shutdown"


class SettlementSink(Protocol):
    """The methods of the worker's flusher that a run calls."""

    loop: asyncio.AbstractEventLoop

    def send(self, run: Run, settlement: Settlement, write: PendingWrite | None) -> None:
        """Write a report of a live run. On the event loop's thread only."""
        ...

    def put(self, run: Run, settlement: Settlement, write: PendingWrite | None) -> None:
        """Write a settlement after all earlier settlements of this run. On the event loop's thread only."""
        ...


class PendingWrite:
    """A pending write. Await it on the event loop, or call `wait()` in a thread, to learn of its commit or error."""

    __slots__ = ("_event", "_future", "instead_of")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: asyncio.Future[None] = loop.create_future()
        self._future.add_done_callback(_retrieve_error)
        self._event = threading.Event()
        self.instead_of: PendingWrite | None = None

    def __await__(self) -> Any:
        return asyncio.shield(self._future).__await__()

    def wait(self, timeout_s: float | None = None) -> None:
        """Block this thread until the write is committed; raises StaleClaim (the claim was lost) or TimeoutError."""
        if not self._event.wait(timeout_s):
            raise TimeoutError(f"the store has not answered within {timeout_s} s")
        if self._future.done() and (error := self._future.exception()) is not None:
            raise error

    def end(self, error: Exception | None) -> None:
        """Resolve this write, and every earlier progress write that it replaced, with success or `error`."""
        write: PendingWrite | None = self
        while write is not None:
            if not write._future.done():  # noqa: SLF001 - one of our own
                if error is None:
                    write._future.set_result(None)  # noqa: SLF001
                else:
                    write._future.set_exception(error)  # noqa: SLF001
            write._event.set()  # noqa: SLF001
            following, write.instead_of = write.instead_of, None
            write = following


def _retrieve_error(future: asyncio.Future[None]) -> None:
    """Retrieve the error of a write that no code awaits, so that asyncio logs none; the flusher stops the run."""
    if not future.cancelled():
        future.exception()


class Run:
    """One attempt. Only the event loop's thread changes it, except `report`, which any thread may call."""

    __slots__ = (
        "_lock",
        "children",
        "definition",
        "expires_at",
        "flusher",
        "follow_ups",
        "is_cut_off",
        "is_settled",
        "job",
        "job_id",
        "outbound",
        "outcome",
        "sending",
        "stop",
        "stopper",
        "task",
        "timer",
    )

    def __init__(
        self,
        job: Job,
        definition: Definition | None,
        flusher: SettlementSink,
        expires_at: float,
        stopper: Callable[[Run], None] | None = None,
    ) -> None:
        self.job = job
        self.job_id = job.job_id
        self.definition = definition
        self.flusher = flusher
        self.expires_at = expires_at
        self.stop: Stop | None = None
        self.is_settled = False
        self.is_cut_off = False  # its lease ran out while the store was away: nobody has said that it is lost
        self.sending = False
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.stopper = stopper
        self.outcome: Settlement | None = None
        self.follow_ups: list[NewJob] | None = None
        self.outbound: deque[tuple[Settlement, PendingWrite | None]] | None = None
        self.children: set[int] | None = None
        self._lock: threading.Lock | None = None

    def stale(self) -> StaleClaim:
        """Return the error for a write whose claim is lost or whose attempt has ended."""
        return StaleClaim(f"claim {self.job.claim_version} of job {self.job_id} is not held any more; stop its work")

    def report(self, command: Callable[[Job], Settlement]) -> PendingWrite:
        """Write a settlement that does not end the attempt, from any thread; raises StaleClaim or `command`'s error."""
        if self._lock is None:
            self._lock = threading.Lock()
        with self._lock:
            if self.stop is Stop.LOST or self.is_settled:
                raise self.stale()
            settlement = command(self.job)
            self.job = after_settlement(self.job, settlement, self.job.event_ms)
        write = PendingWrite(self.flusher.loop)
        if _on(self.flusher.loop):
            self.flusher.send(self, settlement, write)
        else:
            self.flusher.loop.call_soon_threadsafe(self.flusher.send, self, settlement, write)
        return write

    def finish(self, settlement: Settlement) -> None:
        """Write the end of the attempt, once."""
        if self.is_settled or (self.stop is Stop.LOST and not self.is_cut_off):
            return
        self.is_settled = True
        self.outcome = settlement
        self.flusher.put(self, settlement, None)

    def request_stop(self, why: Stop) -> None:
        """Stop the function; the first reason stands, but a lost claim replaces any other."""
        if self.stop is Stop.LOST or (self.stop is not None and why is not Stop.LOST):
            return
        self.stop = why
        if self.stopper is not None:
            self.stopper(self)


def ends(settlement: Settlement) -> bool:
    """Return whether a settlement ends the claim."""
    return settlement.outcome is not None or settlement.status is not settlement.from_status


def _on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
