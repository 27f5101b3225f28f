"""A store and a machine whose clocks the test sets: two clocks on virtual time that step apart on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from callsheet.engine import Engine, Housekeeping
from callsheet.engine.clock import ClockWatch
from callsheet.engine.housekeeping import Chores, Swept
from callsheet.kernel.job import Job, NewJob
from callsheet.store.protocol import ClaimRequest, Store
from callsheet.testing.clock import Clock, VirtualStore
from tests.store_driver import T0

HOUR = 3_600_000


class Machine:
    """The store's clock and the steady clock of one machine. `pass_` moves both, `step` the store's alone."""

    def __init__(self, store: Store) -> None:
        self.clock = Clock()
        self.clock.ms = T0
        self.steady = 1_000_000
        self.store = cast("Store", VirtualStore(store, self.clock))
        self.engine = Engine(self.store)

    @property
    def now(self) -> int:
        return self.clock.ms

    def pass_(self, ms: int) -> None:
        self.clock.ms += ms
        self.steady += ms

    def step(self, ms: int) -> None:
        self.clock.ms += ms

    def sleep(self, ms: int) -> None:
        """The machine is suspended: its steady clock stands still."""
        self.clock.ms += ms

    def watch(self, boot: str = "machine") -> ClockWatch:
        return ClockWatch(self.store, steady=lambda: self.steady, boot=boot)

    def keeper(self, boot: str = "machine", **chores: Any) -> Housekeeping:
        """Return one process' housekeeping."""
        return Housekeeping(self.engine, Chores(**chores), self.watch(boot))

    async def sweep_for(self, keeper: Housekeeping, ms: int, each_ms: int = 1_000) -> list[Swept]:
        """Let time pass, with a sweep each second."""
        swept = []
        for _ in range(0, ms, each_ms):
            self.pass_(each_ms)
            swept.append(await keeper.sweep())
        return swept

    async def claim(self, queue: str = "default", lease_ms: int = 30_000) -> Job:
        (job,) = await self.store.claim(ClaimRequest("w", (queue,), lease_ms=lease_ms))
        return job

    async def running(self, new: NewJob) -> Job:
        await self.store.enqueue([new])
        return await self.claim(new.queue)


@asynccontextmanager
async def stepping(store: Store, verb: str, act: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Call a function once, just before a verb of the store."""
    real = getattr(store, verb)
    log: list[bool] = []

    async def first(*args: Any, **kwargs: Any) -> Any:
        if not log:
            log.append(True)
            await act()
        return await real(*args, **kwargs)

    setattr(store, verb, first)
    try:
        yield
    finally:
        delattr(store, verb)
