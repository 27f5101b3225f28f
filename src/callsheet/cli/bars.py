"""Bars that move while a command works, on a terminal; elsewhere nothing is drawn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from .drawing import Console, Span, fold, spans

REDRAW_S = 0.1
BAR_WIDTH = 40
UP_AND_CLEAR = "\x1b[{}A\x1b[J"


@dataclass
class Task:
    """One row. `total` None: nobody knows how much there is."""

    description: str
    total: float | None
    completed: float = 0.0
    fields: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def elapsed_s(self) -> float:
        """How long it has taken."""
        return (self.ended or time.monotonic()) - self.began

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1."""
        return min(1.0, self.completed / self.total) if self.total else 0.0


Column = Callable[[Task], str]
TaskID = int


def text(pattern: str) -> Column:
    """A column of a marked text, such as `{task.description}`."""
    return lambda task: pattern.format(task=task)


def bar(width: int = BAR_WIDTH) -> Column:
    """A column of a bar."""
    return lambda task: (
        f"[green]{'━' * round(width * task.share)}[/][dim]{'━' * (width - round(width * task.share))}[/]"
    )


def percent(task: Task) -> str:
    """A column of how much is done, in percent."""
    return f"{100 * task.share:3.0f}%"


def count(task: Task) -> str:
    """A column of how many are done, of how many."""
    return f"{task.completed:.0f}/{'?' if task.total is None else f'{task.total:.0f}'}"


def elapsed(task: Task) -> str:
    """A column of how long it has taken."""
    return _clock(task.elapsed_s)


def remaining(task: Task) -> str:
    """A column of how long it will take at the pace so far."""
    return _clock(task.elapsed_s * (1 - task.share) / task.share) if task.share else "-:--:--"


class Progress:
    """Rows that are drawn anew in their place, by a thread of their own."""

    def __init__(self, *columns: Column, console: Console, disable: bool = False) -> None:
        self._columns = columns
        self._console = console
        self._tasks: dict[TaskID, Task] = {}
        self._next = 0
        self._height = 0
        self._over = threading.Event()
        self._thread = None if disable or not console.is_terminal else threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self._draw()

    def add_task(self, description: str, *, total: float | None, completed: float = 0.0, **fields: Any) -> TaskID:
        """Add a row; the id by which it is moved."""
        self._next += 1
        self._tasks[self._next] = Task(description, total, completed, fields)
        return self._next

    def update(self, row: TaskID, *, completed: float | None = None, total: float | None = None, **fields: Any) -> None:
        """Move a row."""
        task = self._tasks[row]
        task.completed = task.completed if completed is None else completed
        task.total = task.total if total is None else total
        task.fields = {**task.fields, **fields}

    def advance(self, row: TaskID, by: float) -> None:
        """Move a row on."""
        self._tasks[row].completed += by

    def stop_task(self, row: TaskID) -> None:
        """Stop a row's clock."""
        self._tasks[row].ended = time.monotonic()

    def remove_task(self, row: TaskID) -> None:
        """Remove a row."""
        del self._tasks[row]

    def _live(self) -> None:
        while not self._over.wait(REDRAW_S):
            self._draw()

    def _draw(self) -> None:
        back = UP_AND_CLEAR.format(self._height) if self._height else ""
        lines = [self._console.styled(self._line(task)) for task in list(self._tasks.values())]
        self._console.write([back, *(f"{line}\n" for line in lines)])
        self._height = len(lines)

    def _line(self, task: Task) -> list[Span]:
        marked = " ".join(column(task) for column in self._columns).replace("\n", " ")
        return fold(list(spans(marked)), self._console.width - 1)[0]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
