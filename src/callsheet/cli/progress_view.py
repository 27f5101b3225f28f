"""Shows jobs while they run: bars on a terminal, else one line for each event. Both follow the jobs' events."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from callsheet.engine import Engine
from callsheet.kernel.errors import JobNotFound
from callsheet.kernel.events import TERMINAL_EVENTS
from callsheet.kernel.job import Event, Job, Status
from callsheet.store.protocol import JobQuery
from callsheet.store.tasks import end

from .drawing import Console, Span, escape, fold, spans
from .output import message, reason

REDRAW_S = 0.1
BAR_WIDTH = 40
UP_AND_CLEAR = "\x1b[{}A\x1b[J"
FIRST_EVENTS = 20  # so many events before the start are shown
POLL_S = 0.5
MAX_JOBS = 50


@dataclass
class Row:
    """One row of progress. `total` None means that the amount of work is unknown."""

    description: str
    total: float | None
    completed: float = 0.0
    fields: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    stopped: float | None = None

    def update(self, *, completed: float | None = None, total: float | None = None, **fields: Any) -> None:
        """Move the row, and replace fields that its columns show."""
        self.completed = self.completed if completed is None else completed
        self.total = self.total if total is None else total
        self.fields = {**self.fields, **fields}

    @property
    def elapsed_s(self) -> float:
        """The time since the start, in seconds."""
        return (self.stopped or time.monotonic()) - self.started

    @property
    def share(self) -> float:
        """The share of the work that is done, from 0 to 1."""
        return min(1.0, self.completed / self.total) if self.total else 0.0


Column = Callable[[Row], str]


def text(pattern: str) -> Column:
    """Return a column of marked text; the pattern names the row: `{row.description}`."""
    return lambda row: pattern.format(row=row)


def bar(width: int = BAR_WIDTH) -> Column:
    """Return a column that draws a bar."""
    return lambda row: f"[green]{'━' * round(width * row.share)}[/][dim]{'━' * (width - round(width * row.share))}[/]"


def percent(row: Row) -> str:
    """Return the share that is done, in percent."""
    return f"{100 * row.share:3.0f}%"


def count(row: Row) -> str:
    """Return the number of items done and their total, as `3/10`."""
    return f"{row.completed:.0f}/{'?' if row.total is None else f'{row.total:.0f}'}"


def elapsed(row: Row) -> str:
    """Return the time since the start."""
    return _clock(row.elapsed_s)


def remaining(row: Row) -> str:
    """Return the time left at the pace so far."""
    return _clock(row.elapsed_s * (1 - row.share) / row.share) if row.share else "-:--:--"


class Progress:
    """Rows that a thread redraws in place; nothing is drawn without a terminal."""

    def __init__(self, *columns: Column, console: Console, disable: bool = False) -> None:
        self._columns = columns
        self._console = console
        self._rows: list[Row] = []
        self._height = 0
        self._finished = threading.Event()
        self._thread = (
            None if disable or not console.is_terminal else threading.Thread(target=self._redraw, daemon=True)
        )

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._finished.set()
            self._thread.join()
            self._draw()

    def add(self, description: str, *, total: float | None, completed: float = 0.0, **fields: Any) -> Row:
        """Add a row; change its attributes to move it."""
        row = Row(description, total, completed, fields)
        self._rows.append(row)
        return row

    def remove(self, row: Row) -> None:
        """Remove a row."""
        self._rows = [other for other in self._rows if other is not row]

    def _redraw(self) -> None:
        while not self._finished.wait(REDRAW_S):
            self._draw()

    def _draw(self) -> None:
        back = UP_AND_CLEAR.format(self._height) if self._height else ""
        lines = [self._console.styled(self._line(row)) for row in self._rows]
        self._console.write([back, *(f"{line}\n" for line in lines)])
        self._height = len(lines)

    def _line(self, row: Row) -> list[Span]:
        marked = " ".join(column(row) for column in self._columns).replace("\n", " ")
        return fold(list(spans(marked)), self._console.width - 1)[0]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class JobView(Protocol):
    """Shows jobs while they run."""

    def begin(self, job: Job) -> None:
        """Show a job in its present state."""

    def update(self, job: Job, event: Event) -> None:
        """Show an event of a job."""

    def end(self, job: Job) -> None:
        """Show the end of a job."""


class LineView:
    """Prints one line for each event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, job: Job) -> None:
        """Print nothing: the first event follows."""

    def update(self, job: Job, event: Event) -> None:
        """Print `<id> task progress 40% decoding: half way`."""
        words = (job.job_id, job.kind, event.type, f"{event.progress:g}%", event.step, message(event))
        self._print(" ".join(word for word in words if word))

    def end(self, job: Job) -> None:
        """Print `<id> task succeeded`."""
        self._print(f"{job.job_id} {job.kind} {ending(job)}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)


class BarView:
    """Draws a bar for each job. With `keep` the bars of ended jobs stay."""

    def __init__(self, progress: Progress, *, keep: bool) -> None:
        self._progress = progress
        self._keep = keep
        self._rows: dict[str, Row] = {}

    def begin(self, job: Job) -> None:
        """Add a row."""
        name = f"{escape(job.kind)} [dim]{job.job_id}[/]"
        text = escape(job.stage or job.status.value)
        self._rows[job.job_id] = self._progress.add(name, total=100, completed=int(job.progress), text=text)

    def update(self, job: Job, event: Event) -> None:
        """Move the bar and show the stage and the last message."""
        stage = event.step if event.type in ("stage", "progress") else event.type
        text = ": ".join(escape(word) for word in (stage, message(event)) if word)
        self._rows[job.job_id].update(completed=event.progress, text=text)

    def end(self, job: Job) -> None:
        """Show the outcome, or remove the row."""
        row = self._rows.pop(job.job_id)
        if self._keep:
            row.update(completed=job.progress, text=escape(ending(job)))
            row.stopped = time.monotonic()
        else:
            self._progress.remove(row)


@contextlib.contextmanager
def job_view(console: Console, *, keep: bool = True) -> Iterator[JobView]:
    """Yield bars on a terminal, else lines."""
    if not console.is_terminal:
        yield LineView(console)
        return
    columns = (text("{row.description}"), bar(24), percent, elapsed, text("{row.fields[text]}"))
    with Progress(*columns, console=console) as progress:
        yield BarView(progress, keep=keep)


async def follow(engine: Engine, job_id: str, view: JobView) -> Job:
    """Show one job until its end and return the ended job; raises JobNotFound."""
    job = await engine.get(job_id)
    view.begin(job)
    after = max(0, job.event_seq - FIRST_EVENTS)
    while True:
        async for event in engine.watch(job_id, after):
            after = event.seq
            if event.type not in TERMINAL_EVENTS:
                view.update(job, event)
        job = await engine.get(job_id)
        if job.status.terminal:
            view.end(job)
            return job


async def follow_each(engine: Engine, job_ids: Sequence[str], view: JobView) -> list[Job]:
    """Show several jobs until all have ended."""
    return await asyncio.gather(*(follow(engine, job_id, view) for job_id in job_ids))


async def follow_running(engine: Engine, view: JobView) -> None:
    """Show every running job, until cancelled."""
    followers: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            page = await engine.find(JobQuery(statuses=(Status.RUNNING,), limit=MAX_JOBS))
            followers = {job_id: task for job_id, task in followers.items() if not task.done()}
            for job in page.jobs:
                if job.job_id not in followers:
                    followers[job.job_id] = asyncio.create_task(_follow_existing(engine, job.job_id, view))
            await asyncio.sleep(POLL_S)
    finally:
        await end(*followers.values())


async def _follow_existing(engine: Engine, job_id: str, view: JobView) -> None:
    with contextlib.suppress(JobNotFound):  # pruned while it was shown
        await follow(engine, job_id, view)


def ending(job: Job) -> str:
    """Return the status of an ended job, with the reason unless it succeeded."""
    if job.status is Status.SUCCEEDED:
        return job.status.value
    why = reason(job.error) if job.status is not Status.CANCELED else job.cancel_reason or ""
    return f"{job.status.value}: {why}" if why else job.status.value
