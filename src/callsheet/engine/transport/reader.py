"""Wake-ups: one blocking read per process, of the streams with waiting workers here.

Redis delivers a message to one process of the group. So that a message reaches a process in need of jobs, each process
reads only queues whose last claim returned fewer jobs than requested.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from callsheet.engine.lanes import lane_of
from callsheet.kernel.errors import StoreError
from callsheet.store.protocol import Hint
from callsheet.store.tasks import wait

if TYPE_CHECKING:
    from callsheet.store.hints import Hints

    from .messages import Judge
    from .wire import Wire

log = logging.getLogger("callsheet.transport")
COUNT = 200
HUNGER_S = 60.0  # the longest time that a worker waits for an answer
MOST_QUEUES = 256
KNOWN_S = 1.0


class Reader:
    """Read messages, send hints for their queues, and have suspicious messages checked."""

    def __init__(self, wire: Wire, judge: Judge, hints: Hints) -> None:
        self._wire = wire
        self._judge = judge
        self._hints = hints
        self._until: dict[str, float] = {}
        self._hungry = asyncio.Event()
        self._own_groups: set[str] = set()
        self._groups: set[str] = set()
        self._known_until = 0.0
        self._clock = asyncio.get_running_loop().time

    def want(self, queues: Iterable[str]) -> None:
        """Record that a claim from these queues returned fewer jobs than requested."""
        until = self._clock() + HUNGER_S
        for queue in queues:
            if queue in self._until or len(self._until) < MOST_QUEUES:
                self._until[queue] = until
        self._hungry.set()

    def leave(self, queues: Iterable[str]) -> None:
        """Record that a claim was filled.

        Workers that still wait here claim again, and `want` adds their queues again.
        """
        for queue in queues:
            self._until.pop(queue, None)

    async def run(self) -> None:
        """Read until cancelled."""
        while not self._wire.stopping.is_set():
            try:
                await self._read(await self._queues_to_read())
            except StoreError as error:
                log.debug("no messages can be read now: %s", error)
                self._own_groups.clear()
                await wait(self._wire.stopping, random.uniform(0.2, 1.0))  # noqa: S311 - jitter
            except Exception:
                log.exception("a read of messages failed; the next one tries again")
                await wait(self._wire.stopping, 1.0)

    async def _queues_to_read(self) -> list[str]:
        """Wait for queues to read and return them; this process becomes a consumer of each."""
        while True:
            now = self._clock()
            self._until = {queue: until for queue, until in self._until.items() if until > now}
            if self._until:
                break
            self._hungry.clear()
            await self._hungry.wait()
        if now >= self._known_until:
            self._groups, self._known_until = await self._wire.queues(), now + KNOWN_S
            self._own_groups &= self._groups
        lanes = {queue for queue in self._groups if lane_of(queue).queue in self._until}
        queues = sorted(self._until.keys() | lanes)[:MOST_QUEUES]
        if new := [queue for queue in queues if queue not in self._own_groups]:
            self._own_groups |= set(await self._wire.run("join", *new))
            self._groups |= self._own_groups
        return [queue for queue in queues if queue in self._own_groups]

    async def _read(self, queues: list[str]) -> None:
        if not queues:
            await asyncio.sleep(KNOWN_S)
            return
        by_queue = await self._wire.read(queues, COUNT)
        if by_queue:
            self._hints.send(Hint(frozenset(by_queue)))
        for queue, messages in by_queue.items():
            await self._judge.look(queue, messages)
