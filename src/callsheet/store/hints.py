"""Fan-out of lossy wake-ups inside one process: each receiver gets the union of the hints that it has missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol, Self

from .protocol import Hint
from .tasks import end

MAX_NAMES = 1_000
ANY_JOB = frozenset({"*"})


class Hints:
    """Send hints to every receiver; a slow receiver gets several hints merged into one."""

    def __init__(self) -> None:
        self._receivers: set[_Receiver] = set()

    @property
    def has_receivers(self) -> bool:
        """Whether any receiver listens."""
        return bool(self._receivers)

    def send(self, hint: Hint) -> None:
        """Wake all receivers. Must run on the event loop's thread."""
        for receiver in self._receivers:
            receiver.add(hint)

    async def receive(self) -> AsyncIterator[Hint]:
        """Yield hints from now on, until the caller stops."""
        receiver = _Receiver()
        self._receivers.add(receiver)
        try:
            while True:
                yield await receiver.take()
        finally:
            self._receivers.discard(receiver)


class _Receiver:
    def __init__(self) -> None:
        self._pending: Hint | None = None
        self._ready = asyncio.Event()

    def add(self, hint: Hint) -> None:
        self._pending = hint if self._pending is None else merge(self._pending, hint)
        self._ready.set()

    async def take(self) -> Hint:
        await self._ready.wait()
        self._ready.clear()
        hint, self._pending = self._pending, None
        return hint or Hint()


class Door(Protocol):
    """A place where an idle worker waits for jobs that no hint announces; open during `async with`."""

    @property
    def waiting(self) -> int:
        """How many jobs were handed to the worker already; its next claim includes these jobs, whatever its limit."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the door and return to the queue the jobs that were handed to the worker."""

    def open(self) -> None:
        """Wait for a job alongside other workers; a hint announces the job. Repeated calls are safe."""

    async def shut(self) -> None:
        """Stop waiting; a job may have arrived in the last moment."""


class NoDoor:
    """A door for stores whose hints announce every job, so that no worker needs to wait at a door."""

    waiting = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def open(self) -> None:
        """Do nothing: no job arrives through this door."""

    async def shut(self) -> None:
        """Do nothing: no job arrived through this door."""


def merge(a: Hint, b: Hint) -> Hint:
    """Merge two hints. A union of more than 1,000 names becomes a hint for anything."""
    if a == Hint() or b == Hint():
        return Hint()
    queues, jobs = a.queues | b.queues, a.jobs | b.jobs
    if len(queues) > MAX_NAMES:
        return Hint()
    return Hint(queues, ANY_JOB if len(jobs) > MAX_NAMES or "*" in jobs else jobs)


async def together(*sources: AsyncIterator[Hint]) -> AsyncIterator[Hint]:
    """Yield the hints of several sources; raises the exception of a failed source."""
    hints = Hints()

    async def pass_on(source: AsyncIterator[Hint]) -> None:
        try:
            async for hint in source:
                hints.send(hint)
        finally:
            hints.send(Hint())  # wake the consumer, which then sees the source's end

    tasks = [asyncio.create_task(pass_on(source)) for source in sources]
    try:
        async for hint in hints.receive():
            for task in tasks:
                if task.done():
                    task.result()
            yield hint
    finally:
        await end(*tasks)
