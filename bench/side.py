"""The interface of both sides of a comparison, and the loop in which claims overlap with finishes."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")
B = TypeVar("B")
AHEAD = 2


class Side(Protocol[B]):
    """A way to run jobs from enqueue to end: our store, or a loop written by hand."""

    async def open(self) -> None:
        """Connect and create the tables."""
        ...

    async def close(self) -> None: ...

    def batches(self, ids: Sequence[str], size: int) -> list[B]:
        """Return new jobs in batches, outside the measured time."""
        ...

    async def enqueue(self, batches: Sequence[B]) -> None: ...

    async def drain(self, size: int) -> int:
        """Claim and finish all jobs, `size` at a time; how many."""
        ...


class Rates(NamedTuple):
    """Jobs in a second."""

    enqueue: float
    drain: float


class JobsMissing(Exception):
    """A loop finished another number of jobs than it was given: its figures mean nothing."""


async def run(side: Side[B], ids: Sequence[str], size: int) -> Rates:
    """Bring jobs through their life, `size` at a time; raises JobsMissing."""
    count = len(ids)
    await side.open()
    try:
        batches = side.batches(ids, size)
        gc.collect()
        began = time.perf_counter()
        await side.enqueue(batches)
        enqueued_at = time.perf_counter()
        gc.collect()
        claimed_from = time.perf_counter()
        finished_count = await side.drain(size)
        ended_at = time.perf_counter()
    finally:
        await side.close()
    if finished_count != count:
        raise JobsMissing(f"{type(side).__name__} finished {finished_count} of {count} jobs")
    return Rates(count / (enqueued_at - began), count / (ended_at - claimed_from))


async def overlap(claim: Callable[[], Awaitable[Sequence[T]]], finish: Callable[[Sequence[T]], Awaitable[None]]) -> int:
    """Claim ahead while earlier claims are finished, until the queue is empty; return the number of finished jobs."""
    batches: asyncio.Queue[Sequence[T]] = asyncio.Queue(AHEAD)

    async def claimer() -> None:
        while batch := await claim():
            await batches.put(batch)
        await batches.put(())

    async def finisher() -> int:
        count = 0
        while batch := await batches.get():
            await finish(batch)
            count += len(batch)
        return count

    async with asyncio.TaskGroup() as group:
        group.create_task(claimer())
        finishing = group.create_task(finisher())
    return finishing.result()


def cut(values: Sequence[T], size: int) -> list[Sequence[T]]:
    return [values[i : i + size] for i in range(0, len(values), size)]
