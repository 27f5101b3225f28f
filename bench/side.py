"""What the two sides of a comparison share: the shape of a loop, and the way in which claims and ends overlap."""

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
    """One way to bring jobs through their life: our store, or a loop written by hand."""

    async def open(self) -> None:
        """Connect and make the tables."""
        ...

    async def close(self) -> None: ...

    def batches(self, ids: Sequence[str], size: int) -> list[B]:
        """New jobs ready to be sent: what is made here is not measured."""
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
        enqueued = time.perf_counter()
        gc.collect()
        claimed_from = time.perf_counter()
        done = await side.drain(size)
        ended = time.perf_counter()
    finally:
        await side.close()
    if done != count:
        raise JobsMissing(f"{type(side).__name__} finished {done} of {count} jobs")
    return Rates(count / (enqueued - began), count / (ended - claimed_from))


async def overlap(claim: Callable[[], Awaitable[Sequence[T]]], finish: Callable[[Sequence[T]], Awaitable[None]]) -> int:
    """Claim ahead while earlier claims are being finished, until nothing is left; how many were finished."""
    claimed: asyncio.Queue[Sequence[T]] = asyncio.Queue(AHEAD)

    async def claimer() -> None:
        while batch := await claim():
            await claimed.put(batch)
        await claimed.put(())

    async def finisher() -> int:
        done = 0
        while batch := await claimed.get():
            await finish(batch)
            done += len(batch)
        return done

    async with asyncio.TaskGroup() as group:
        group.create_task(claimer())
        finished = group.create_task(finisher())
    return finished.result()


def cut(values: Sequence[T], size: int) -> list[Sequence[T]]:
    return [values[i : i + size] for i in range(0, len(values), size)]
