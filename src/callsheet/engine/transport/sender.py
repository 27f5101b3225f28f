"""Committed changes on their way to Redis: in order, many steps per round trip, in the background.

Callers do not wait for the sender. While Redis is away the steps queue up here, and the oldest are dropped above a
limit: relay and audit recover the loss from the database.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import StoreError
from callsheet.net.backoff import pause_after
from callsheet.store.tasks import wait

if TYPE_CHECKING:
    from .wire import Wire

MOST = 20_000
BATCH = 500
BACKOFF_S = (0.05, 2.0)


class Kind(StrEnum):
    """The action of a step; `scripts/carry.lua` has a function for each action."""

    PUBLISH = "publish"
    TAKE = "take"
    ACK = "ack"


class Step(NamedTuple):
    """One action in Redis. All are idempotent; `ack` needs only the `enqueue_id`."""

    kind: Kind
    enqueue_id: str
    job_id: str = ""
    queue: str = ""


class Sender:
    """`put` returns at once; `run` sends. `answered` receives each step's message id, empty if there is none."""

    def __init__(self, wire: Wire, on_answer: Callable[[Step, str], None]) -> None:
        self._wire = wire
        self._on_answer = on_answer
        self._steps: deque[Step] = deque()
        self._some = asyncio.Event()
        self._put_count = self._sent_count = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def put(self, steps: Iterable[Step]) -> None:
        """Append these steps; if Redis cannot keep up, the oldest steps are dropped."""
        before = len(self._steps)
        self._steps.extend(steps)
        self._put_count += len(self._steps) - before
        while len(self._steps) > MOST:
            self._steps.popleft()
            self._sent_count += 1
        if self._steps:
            self._some.set()

    async def caught_up(self, patience_s: float) -> None:
        """Wait up to `patience_s` until all earlier steps are sent or dropped; return at once while Redis is away."""
        if self._sent_count >= self._put_count or self._wire.away:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._put_count, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(patience_s):
                await future
        except TimeoutError:
            pass
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    async def run(self) -> None:
        """Send until cancelled."""
        while not self._wire.stopping.is_set():
            await self._some.wait()
            batch = [self._steps.popleft() for _ in range(min(BATCH, len(self._steps)))]
            if not self._steps:
                self._some.clear()
            if batch:
                answers = await self._carry(batch)
                self._sent_count += len(batch)
                for step, answer in zip(batch, answers, strict=True):
                    self._on_answer(step, answer)
            self._release()

    async def _carry(self, batch: list[Step]) -> list[str]:
        """Send a batch, with retries, until it succeeds or so many steps wait behind it that the batch is dropped."""
        arguments = [text for step in batch for text in step]
        tries = 0
        while not self._wire.stopping.is_set():
            try:
                answers: list[str] = await self._wire.run("carry", *arguments)
            except StoreError:
                self._release(everyone=True)
                if len(self._steps) >= MOST:
                    break
                await wait(self._wire.stopping, pause_after(tries, *BACKOFF_S, jitter=0.5))
                tries += 1
            else:
                return answers
        return [""] * len(batch)

    def _release(self, *, everyone: bool = False) -> None:
        """Resume callers whose steps have been sent by now, or all callers with `everyone`."""
        for number, future in self._waiting:
            if (everyone or number <= self._sent_count) and not future.done():
                future.set_result(None)
        self._waiting = [entry for entry in self._waiting if not entry[1].done()]
