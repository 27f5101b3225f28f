"""Wake-ups from other programs: the hint channel of our own processes, and the event streams of foreign workers.

Our own writes announce events on the hint channel; a foreign worker's XADD does not.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection
from itertools import islice
from typing import TYPE_CHECKING

from callsheet.kernel.errors import StoreError
from callsheet.store.protocol import Hint
from callsheet.store.tasks import end

from .client import Client
from .door import BLOCK_MS, BlockingConnection

if TYPE_CHECKING:
    from callsheet.store.hints import Hints


POLL_S = 1.0
RECONNECT_S = 0.25
log = logging.getLogger("callsheet.redis")
MOST = 200  # streams of one read: some 0.1 ms of the server; further jobs are polled
PACE_S = 0.005  # pause between two reads, so that a burst gives one hint


class Listener:
    """Receive the store's hint channel and pass its hints to the local receivers."""

    def __init__(self, client: Client, hints: Hints) -> None:
        self.live = False
        self._client = client
        self._hints = hints
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start listening; a second call has no effect."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop listening for hints."""
        task, self._task = self._task, None
        if task is not None:
            await end(task)

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001 - whatever it was, listening begins anew
                log.debug("hints are away: %s", error)
                self.live = False
                await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        async with self._client.redis.pubsub() as pubsub:
            try:
                await pubsub.subscribe(self._client.channel)
                while True:
                    message = await pubsub.get_message(timeout=POLL_S)
                    if message is None:
                        continue
                    # Hints sent between two connections are lost: a new subscription stands for a hint for anything.
                    is_hint = message["type"] == "message"
                    self._hints.send(hint_of(message["data"]) if is_hint else Hint())
                    self.live = True
            finally:
                self.live = False


def hint_of(text: str) -> Hint:
    """Return the hint in a message; a hint for anything if the message cannot be parsed."""
    try:
        body = json.loads(text)
        return Hint(frozenset(body.get("queues", ())), frozenset(body.get("jobs", ())))
    except (ValueError, AttributeError, TypeError):
        return Hint()


class Tail:
    """Send a hint for each watched job whose event stream has grown."""

    def __init__(self, client: Client, hints: Hints) -> None:
        self._client, self._hints = client, hints
        self._connection = BlockingConnection(client)
        self._job_ids: frozenset[str] = frozenset()
        self._places: dict[str, str] = {}  # per stream, the last entry for which a hint was sent
        self._change = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def listen_for(self, job_ids: Collection[str]) -> None:
        """Replace the set of watched jobs: hints name these job ids alone."""
        self._job_ids = frozenset(islice(job_ids, MOST))
        if not self._job_ids <= self._places.keys():
            self._change.set()
        if self._task is None and self._job_ids:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop reading and close the connection. May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            await end(task)
        await self._connection.close()

    async def _run(self) -> None:
        while True:
            try:
                if not self._job_ids:
                    await self._change.wait()
                await self._read()
                await asyncio.sleep(PACE_S)
            except StoreError as error:
                log.debug("foreign events are polled for a while: %s", error)
                await asyncio.sleep(RECONNECT_S)

    async def _read(self) -> None:
        self._change.clear()
        self._places = {job_id: place for job_id, place in self._places.items() if job_id in self._job_ids}
        if new := self._job_ids - self._places.keys():
            await self._look_at(new)
        if not self._places:
            return
        keys = {self._client.keys.job(job_id, "events"): job_id for job_id in self._places}
        streams = ("STREAMS", *keys, *(self._places[job_id] for job_id in keys.values()))
        answer = await self._unless_changed("XREAD", "COUNT", 10, "BLOCK", BLOCK_MS, *streams)
        for key, entries in answer or ():
            self._places[keys[key]] = entries[-1][0]
        if answer:
            self._hints.send(Hint(jobs=frozenset(keys[key] for key, _ in answer)))

    async def _look_at(self, job_ids: frozenset[str]) -> None:
        """Record the ends of new jobs' streams and send a hint, so that watchers read earlier events now."""
        for job_id in job_ids:
            last = await self._connection.ask(
                "XREVRANGE", self._client.keys.job(job_id, "events"), "+", "-", "COUNT", 1
            )
            self._places[job_id] = last[0][0] if last else "0-0"
        self._hints.send(Hint(jobs=job_ids))

    async def _unless_changed(self, *command: str | int) -> list[tuple[str, list[tuple[str, list[str]]]]]:
        """Return the answer to a blocking command, which is interrupted if the set of watched jobs changes."""
        asking: asyncio.Task[list[tuple[str, list[tuple[str, list[str]]]]]] = asyncio.create_task(
            self._connection.ask(*command)
        )
        changing = asyncio.create_task(self._change.wait())
        try:
            await asyncio.wait({asking, changing}, return_when=asyncio.FIRST_COMPLETED)
            await self._connection.unblock(asking)
            return await asking
        finally:
            changing.cancel()
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
