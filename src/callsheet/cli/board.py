"""Jobs as they go on: bars on a terminal, else a line for each event. Both are fed from the jobs' events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from callsheet.engine import Engine
from callsheet.kernel.errors import JobNotFound
from callsheet.kernel.events import TERMINAL_EVENTS
from callsheet.kernel.job import Event, Job, Status
from callsheet.store.protocol import JobQuery
from callsheet.store.tasks import end

from . import bars
from .drawing import Console, escape
from .records import message, reason

LOOK_BACK = 20
LOOK_S = 0.5
MOST = 50


class Board(Protocol):
    """Where jobs are shown."""

    def begin(self, job: Job) -> None:
        """Show a job as it is now."""

    def tell(self, job: Job, event: Event) -> None:
        """Show what happened."""

    def end(self, job: Job) -> None:
        """Show how it ended."""


class Lines:
    """One line for each event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, job: Job) -> None:
        """Nothing: its events tell."""

    def tell(self, job: Job, event: Event) -> None:
        """`<id> task progress 40% decoding: half way`."""
        words = (job.job_id, job.kind, event.type, f"{event.progress:g}%", event.step, message(event))
        self._print(" ".join(word for word in words if word))

    def end(self, job: Job) -> None:
        """`<id> task succeeded`."""
        self._print(f"{job.job_id} {job.kind} {ending(job)}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)


class Bars:
    """A bar for each job. `keep`: ended ones stay."""

    def __init__(self, progress: bars.Progress, *, keep: bool) -> None:
        self._progress = progress
        self._keep = keep
        self._rows: dict[str, bars.TaskID] = {}

    def begin(self, job: Job) -> None:
        """A new row."""
        name = f"{escape(job.kind)} [dim]{job.job_id}[/]"
        said = escape(job.stage or job.status.value)
        self._rows[job.job_id] = self._progress.add_task(name, total=100, completed=int(job.progress), said=said)

    def tell(self, job: Job, event: Event) -> None:
        """Move the bar, with the stage and the last message."""
        stage = event.step if event.type in ("stage", "progress") else event.type
        said = ": ".join(escape(word) for word in (stage, message(event)) if word)
        self._progress.update(self._rows[job.job_id], completed=event.progress, said=said)

    def end(self, job: Job) -> None:
        """The last word; the row goes unless it is kept."""
        row = self._rows.pop(job.job_id)
        if self._keep:
            self._progress.update(row, completed=job.progress, said=escape(ending(job)))
            self._progress.stop_task(row)
        else:
            self._progress.remove_task(row)


@contextlib.contextmanager
def shown(console: Console, *, keep: bool = True) -> Iterator[Board]:
    """A board that fits where it is shown."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        bars.text("{task.description}"),
        bars.bar(24),
        bars.percent,
        bars.elapsed,
        bars.text("{task.fields[said]}"),
    )
    with bars.Progress(*columns, console=console) as progress:
        yield Bars(progress, keep=keep)


async def follow(engine: Engine, job_id: str, board: Board) -> Job:
    """Show one job until its end; the ended job. Raises JobNotFound."""
    job = await engine.get(job_id)
    board.begin(job)
    after = max(0, job.event_seq - LOOK_BACK)
    while True:
        async for event in engine.watch(job_id, after):
            after = event.seq
            if event.type not in TERMINAL_EVENTS:
                board.tell(job, event)
        job = await engine.get(job_id)
        if job.status.terminal:
            board.end(job)
            return job


async def follow_each(engine: Engine, job_ids: Sequence[str], board: Board) -> list[Job]:
    """Show several until all have ended."""
    return await asyncio.gather(*(follow(engine, job_id, board) for job_id in job_ids))


async def follow_running(engine: Engine, board: Board) -> None:
    """Show whatever runs, until cancelled."""
    followed: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            page = await engine.find(JobQuery(statuses=(Status.RUNNING,), limit=MOST))
            followed = {job_id: task for job_id, task in followed.items() if not task.done()}
            for job in page.jobs:
                if job.job_id not in followed:
                    followed[job.job_id] = asyncio.create_task(_follow_kept(engine, job.job_id, board))
            await asyncio.sleep(LOOK_S)
    finally:
        await end(*followed.values())


async def _follow_kept(engine: Engine, job_id: str, board: Board) -> None:
    with contextlib.suppress(JobNotFound):  # pruned while it was shown
        await follow(engine, job_id, board)


def ending(job: Job) -> str:
    """How a job ended, in words."""
    if job.status is Status.SUCCEEDED:
        return job.status.value
    why = reason(job.error) if job.status is not Status.CANCELED else job.cancel_reason or ""
    return f"{job.status.value}: {why}" if why else job.status.value
