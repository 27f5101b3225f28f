"""Slots run the task functions: async functions as asyncio tasks, plain functions in threads or processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from callsheet.engine.telemetry import attempt_span, measuring, record_attempt, tracing
from callsheet.kernel import commands
from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.job import Status

from .children import kill_groups
from .context import Context
from .current import RUN, extra
from .execute import after_exception, after_return, after_stop, attempt
from .processes import Processes
from .run import Run, Stop
from .threads import Threads

if TYPE_CHECKING:
    from callsheet.kernel.settlement import Settlement

    from .definition import Definition
    from .options import Options
    from .plane import JobSource

log = logging.getLogger("callsheet.job")
SLICE_S = 0.002
UNWRITTEN = "job %s: its end cannot be written, its lease will run out"


class Slots:
    """Runs the jobs queued in `line`, at most `concurrency` at once.

    `freed` is called whenever a slot has become free, `given_up` for a run that ended without a settlement.
    A slot is a task that takes one job after another, so that short jobs cost no task each. The first slot starts the
    second when more is waiting, the second the third: functions that never wait are served by one slot alone.
    """

    def __init__(
        self,
        engine: JobSource,
        options: Options,
        line: deque[tuple[float, Run]],
        freed: Callable[[], None],
        given_up: Callable[[Run], None],
    ) -> None:
        self.running = self.done_count = 0
        self._line = line
        self._engine = engine
        self._options = options
        self._freed = freed
        self._given_up = given_up
        self._grace_s, self._patience_s = seconds(options.grace), seconds(options.task_patience)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._current: dict[asyncio.Task[None], Run] = {}
        self._threads = Threads()
        self._processes = Processes()
        self.idle = asyncio.Event()
        self.idle.set()

    def fill(self) -> None:
        """Start a slot's task if a job waits and a slot is free."""
        if self._line and self.running < self._options.concurrency:
            self.running += 1
            self.idle.clear()
            task = self._loop.create_task(self._serve())
            self._tasks.add(task)
            task.add_done_callback(self._end_slot)

    def current(self) -> list[Run]:
        """The runs whose functions have begun and not ended."""
        return [run for run in self._current.values() if run.task is not None]

    def _end_slot(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._current.pop(task, None)
        self.running -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a slot broke and is opened anew", exc_info=error)
        if not self.running:
            self.idle.set()
        self.fill()
        self._freed()

    async def _serve(self) -> None:  # noqa: C901, PLR0912 - every job passes through here, and each call would cost it
        """Run queued jobs one after another. A job that changed context variables ends the slot, to discard them."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - we are in one
        yielded_at = time.monotonic()
        is_logged, is_traced = log.isEnabledFor(logging.INFO) or measuring(), tracing()
        line, plain = self._line, not (is_logged or is_traced)
        if len(line) > 1:
            self.fill()
        while line:
            run = self._current[task] = line.popleft()[1]
            run.task = task
            RUN.set(run)  # and never reset: the slot's context is its own, and the next job sets its run there
            context = copy_context()
            try:
                if plain and run.stop is None and (definition := run.definition) is not None and definition.simple:
                    try:  # as `attempt` does, without a coroutine of its own
                        value = await definition.function(**definition.arguments(run.job.payload))
                        settlement = after_return(run, definition, value)
                    except BaseException as error:  # noqa: BLE001 - as in `attempt`
                        settlement = after_exception(run, error)
                    if settlement is not None:
                        if run.stop is None:
                            run.finish(settlement)
                        else:
                            await self._finish(run, settlement)
                elif is_traced:
                    with attempt_span(run.job) as span:
                        await self._attempt(run, is_logged=is_logged)
                        span.set_outcome(run.outcome)
                else:
                    await self._attempt(run, is_logged=is_logged)
            except (Exception, asyncio.CancelledError):
                log.exception(UNWRITTEN, run.job_id, extra=extra(run.job))
            finally:
                run.task = None
                self.done_count += 1
                if run.timer is not None:
                    run.timer.cancel()
                if not run.is_settled:
                    self._given_up(run)
            if task.cancelling():
                await _forget_cancellation(task)
            if copy_context() != context:
                return
            if (now := time.monotonic()) - yielded_at > SLICE_S:
                self._freed()
                await asyncio.sleep(0)
                yielded_at = now

    def close(self) -> None:
        """Stop the threads and processes; a hanging thread is left behind."""
        self._threads.close()
        self._processes.close()

    async def _attempt(self, run: Run, *, is_logged: bool) -> None:
        definition = run.definition
        context = None
        if definition is not None and (definition.takes_context or definition.executor != "async"):
            context = Context(run, self._engine, self._options)
        if definition is not None and definition.timeout_s is not None:
            run.timer = self._loop.call_later(definition.timeout_s, run.request_stop, Stop.TIMEOUT)
        begun_at = time.monotonic()
        if is_logged:
            _tell_begin(run)
        try:
            if run.stop is None:
                settlement = await attempt(run, context, self._elsewhere, self._patience_s)
            else:
                settlement = after_stop(run)
            if settlement is not None:
                await self._finish(run, settlement)
        finally:
            if context is not None:
                context.close()
            if is_logged:
                _tell_end(run, time.monotonic() - begun_at)

    async def _elsewhere(self, definition: Definition, context: Context | None, arguments: dict[str, Any]) -> Any:
        assert context is not None  # noqa: S101 - made for every function that leaves the loop
        if definition.executor == "process":
            return await self._processes.call(definition, context, arguments)
        return await self._threads.call(definition, context, arguments)

    def stop(self, run: Run) -> None:
        """Stop a running function; if it still runs after the grace time, its outcome is written without it."""
        if run.task is None:
            return  # not begun, or at its end
        kill_groups(run)
        executor = run.definition.executor if run.definition is not None else "async"
        if executor == "process":
            self._processes.kill(run)
        elif executor == "async":
            run.task.cancel()
        if run.timer is not None:
            run.timer.cancel()
        run.timer = self._loop.call_later(self._grace_s, self._give_up, run)

    def _give_up(self, run: Run) -> None:
        """Write the outcome of a hanging function, which keeps its slot until its real end."""
        if run.is_settled:
            return
        what = "job %s: %s does not stop; its outcome is written without it"
        log.error(what, run.job_id, run.job.kind, extra=extra(run.job))
        settlement = after_stop(run)
        if settlement is not None:
            run.finish(settlement)

    async def _finish(self, run: Run, settlement: Settlement) -> None:
        """Write the final settlement; a cancellation carries the reason from the store."""
        if settlement.status is Status.CANCELED:
            with contextlib.suppress(CallsheetError):
                job = await self._engine.get(run.job_id)
                settlement = commands.cancel(run.job, job.cancel_reason or "")
        run.finish(settlement)


async def _forget_cancellation(task: asyncio.Task[None]) -> None:
    """Clear a cancellation that was meant for the job that has just ended, before the next job begins."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task.cancelling():
        task.uncancel()


def _tell_begin(run: Run) -> None:
    job = run.job
    waited_ms = max(0, (job.attempt_started_at or job.updated_at) - max(job.created_at, job.run_at))
    log.info(
        "%s %s started, attempt %d, waited %d ms, correlation id %s",
        job.job_id,
        job.kind,
        job.attempt_count,
        waited_ms,
        job.correlation_id or "none",
        extra=extra(job, event="started", waited_ms=waited_ms),
    )


def _tell_end(run: Run, took_s: float) -> None:
    job, end = run.job, run.outcome
    how = "lost" if end is None else (end.outcome or end.status).value
    kind = job.kind if run.definition is not None else "unknown"  # others may send any name as a kind
    record_attempt(kind, how, took_s)
    log.info(
        "%s %s %s, attempt %d, took %.3f s, correlation id %s",
        job.job_id,
        job.kind,
        how,
        job.attempt_count,
        took_s,
        job.correlation_id or "none",
        extra=extra(job, event=how, took_ms=round(took_s * 1000, 1)),
    )
