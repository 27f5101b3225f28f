"""`Worker`: the public class that users start and stop. Its main loop is a `WorkerLoop`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Unpack

from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import InvalidInput

from .current import worker_here
from .local import LocalWorkerLoop
from .options import Options, WorkerOptions

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.job import Job
    from callsheet.objects import OwnedObjects

    from .definition import Definition
    from .run import Run
    from .shift import WorkerLoop

READY_POLLS = 3
MIN_POLL_S = 0.2


class Source(Protocol):
    """The part of a `Callsheet` app that a worker needs: its tasks, engine and objects."""

    @property
    def database_url(self) -> str:
        """The database URL for heartbeats."""
        ...

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """The tasks by name."""
        ...

    async def engine(self) -> Engine:
        """Return the engine of this event loop."""
        ...

    async def register(self) -> None:
        """Tell the store which tasks this program serves and which schedules it declares."""
        ...

    def objects_of(self, job: Job, loop: asyncio.AbstractEventLoop | None = None) -> OwnedObjects:
        """Return the objects that a job's task may use."""
        ...


class Worker:
    """One worker in this process. `await run()` works until `stop()`; with `burst` until no job is left."""

    def __init__(self, app: Source, **options: Unpack[WorkerOptions]) -> None:
        self.options = replace(Options(**options), objects=app.objects_of, register=app.register)
        self.queues = self.options.queues or tuple(sorted({d.queue for d in app.definitions.values()}))
        if not self.queues:
            raise InvalidInput("this app has no tasks; declare one with @app.task, or name the queues to serve")
        self.engine: Engine | None = None
        self._app = app
        self._shift: WorkerLoop | None = None
        self._stopping = False

    async def run(self, *, burst: bool = False) -> None:
        """Work until stopped, or with `burst` until no job can be claimed and all jobs are settled."""
        shift = await self._begin()
        async with shift:
            with worker_here():
                await self._work(shift, burst=burst)
        self._shift = None

    async def _work(self, shift: WorkerLoop, *, burst: bool) -> None:
        self._shift = shift
        if self._stopping:
            shift.stop()
        try:
            await shift.claim_until_stopped(burst=burst)
        except asyncio.CancelledError:
            shift.stop(hard=True)
            raise
        finally:
            await shift.drain()

    async def _begin(self) -> WorkerLoop:
        self.engine = await self._app.engine()
        return LocalWorkerLoop(self.engine, self._app.definitions, self.queues, self.options, self._app.database_url)

    def stop(self, *, hard: bool = False) -> None:
        """Finish running jobs and release jobs that have not begun; `hard` stops and releases running jobs too."""
        self._stopping = True
        if self._shift is not None:
            self._shift.stop(hard=hard)

    @property
    def ready(self) -> bool:
        """True while this worker can claim: recent answer from the store, recent heartbeat, room on its disk."""
        shift, now = self._shift, time.monotonic()
        if shift is None or self._stopping:
            return False
        if shift.disk.is_full():
            return False
        has_polled = now - shift.polled_at < READY_POLLS * max(MIN_POLL_S, shift.poll_s)
        return has_polled and now - shift.heartbeat.last_beat < max(2.0, shift.lease_s)

    @property
    def full_disk(self) -> Path | None:
        """The folder for workspaces, if its disk is full and claiming is therefore paused."""
        shift = self._shift
        return shift.disk.folder if shift is not None and shift.disk.is_full() else None

    @property
    def polled_at(self) -> float | None:
        """The monotonic time of the claim loop's last round without an error; None before its start."""
        return self._shift.polled_at if self._shift is not None else None

    @property
    def poll_s(self) -> float:
        """The longest pause between two rounds of the claim loop, in seconds."""
        return self._shift.poll_s if self._shift is not None else seconds(self.options.poll)

    @property
    def runs(self) -> dict[str, Run]:
        """The runs with a held claim, by job id."""
        return self._shift.runs if self._shift is not None else {}

    @property
    def slots_busy(self) -> int:
        """The number of running functions."""
        return self._shift.slots.running if self._shift is not None else 0

    @property
    def prefetched(self) -> int:
        """The number of claimed jobs that wait for a slot."""
        return len(self._shift.line) if self._shift is not None else 0

    @property
    def unsettled(self) -> int:
        """The number of settlements without an answer."""
        return self._shift.flusher.pending_count if self._shift is not None else 0
