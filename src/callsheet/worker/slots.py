"""The running functions: one asyncio task each, plain functions in threads or processes, and how each is stopped."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callsheet.kernel import commands
from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import CallsheetError

from .children import kill_groups
from .context import Context
from .execute import after_stop, attempt, call_async
from .processes import Processes
from .run import Run, Stop
from .threads import Threads

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.settlement import Settlement

    from .definition import Definition
    from .options import Options

log = logging.getLogger("callsheet.job")


class Slots:
    """Runs attempts. `freed` is called whenever one has ended."""

    def __init__(self, engine: Engine, options: Options, freed: Callable[[], None]) -> None:
        self.running = 0
        self._engine = engine
        self._options = options
        self._freed = freed
        self._grace_s = seconds(options.grace)
        self._loop = asyncio.get_running_loop()
        self._threads = Threads()
        self._processes = Processes()
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, run: Run) -> None:
        """Begin an attempt in a free slot."""
        self.running += 1
        self._idle.clear()
        run.stopper = self._stop
        run.task = self._loop.create_task(self._attempt(run))

    async def idle(self, patience_s: float) -> bool:
        """Wait until nothing runs; False when that took too long."""
        try:
            async with asyncio.timeout(patience_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Let go of threads and processes; a thread that hangs is left behind."""
        self._threads.close()
        self._processes.close()

    async def _attempt(self, run: Run) -> None:
        definition = run.definition
        context = Context(run, self._engine, self._options.workspaces)
        begun = time.monotonic()
        if definition is not None and definition.timeout_s is not None:
            run.timer = self._loop.call_later(definition.timeout_s, run.request_stop, Stop.TIMEOUT)
        if told := log.isEnabledFor(logging.INFO):
            _tell_begin(run)
        try:
            if run.stop is None:
                settlement = await attempt(run, context, self._call)
            else:
                settlement = after_stop(run)
            if run.stop is Stop.CANCEL and settlement is not None and settlement.cancel_reason is not None:
                settlement = await self._with_reason(run, settlement)
            if settlement is not None:
                run.finish(settlement)
        except CallsheetError as error:
            log.error("job %s: its end cannot be written: %s", run.job_id, error)  # noqa: TRY400 - no bug of ours
        finally:
            if run.timer is not None:
                run.timer.cancel()
            context.close()
            self.running -= 1
            if not self.running:
                self._idle.set()
            if told:
                _tell_end(run, time.monotonic() - begun)
            self._freed()

    async def _call(self, definition: Definition, context: Context, arguments: dict[str, Any]) -> Any:
        match definition.executor:
            case "async":
                return await call_async(definition, context, arguments)
            case "thread":
                return await self._threads.call(definition, context, arguments)
            case "process":
                return await self._processes.call(definition, context, arguments)

    def _stop(self, run: Run) -> None:
        """Make a running function stop; one that does not within its grace is given up."""
        kill_groups(run)
        executor = run.definition.executor if run.definition is not None else "async"
        if executor == "process":
            self._processes.kill(run)
        elif executor == "async" and run.task is not None:
            run.task.cancel()
        if run.timer is not None:
            run.timer.cancel()
        run.timer = self._loop.call_later(self._grace_s, self._give_up, run)

    def _give_up(self, run: Run) -> None:
        """Settle for a function that does not stop. It keeps its slot until it does."""
        if run.settled:
            return
        log.error("job %s: %s does not stop; its outcome is written without it", run.job_id, run.job.kind)
        settlement = after_stop(run)
        if settlement is not None:
            run.finish(settlement)

    async def _with_reason(self, run: Run, settlement: Settlement) -> Settlement:
        """A cancellation with the reason that was given for it."""
        try:
            job = await self._engine.get(run.job_id)
        except CallsheetError:
            return settlement
        return commands.cancel(run.job, job.cancel_reason or "")


def _tell_begin(run: Run) -> None:
    job = run.job
    waited_ms = max(0, (job.attempt_started_at or job.updated_at) - max(job.created_at, job.run_at))
    fields = {"job_id": job.job_id, "task": job.kind, "queue": job.queue, "attempt": job.attempt_count}
    log.info("%s %s started, attempt %d, waited %d ms", job.job_id, job.kind, job.attempt_count, waited_ms,
             extra={"fields": {"event": "started", **fields, "waited_ms": waited_ms}})


def _tell_end(run: Run, took_s: float) -> None:
    job, how = run.job, run.outcome
    fields = {"job_id": job.job_id, "task": job.kind, "queue": job.queue, "attempt": job.attempt_count}
    log.info("%s %s %s, attempt %d, took %.3f s", job.job_id, job.kind, how, job.attempt_count, took_s,
             extra={"fields": {"event": how, **fields, "took_ms": round(took_s * 1000, 1)}})
