"""Where an idle worker waits among foreign ones: a blocking read of the shared stream, as the contract has it.

Redis hands a new message to whoever has waited longest. A worker that reads only when it was woken finds that others
have it already. A message that was handed to a worker here is part of its next claim.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Self

from callsheet.kernel.errors import StoreError
from callsheet.store.protocol import Hint

from .blocking import BLOCK_MS, BlockingConnection
from .client import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from callsheet.store.hints import Hints

    from .client import Client

log = logging.getLogger("callsheet.redis")
GROUP, QUEUE = "workers", "default"


class StreamDoor:
    """One worker's door to `jobs:stream`; `async with` it for as long as the worker claims."""

    def __init__(self, client: Client, hints: Hints, worker_id: str) -> None:
        self._client, self._hints, self._worker_id = client, hints, worker_id
        self._connection = BlockingConnection(client)
        self._reading: asyncio.Task[None] | None = None
        self._messages: list[str] = []
        self._shutting = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.shut()
            if messages := self.take():  # a claim of none puts them back in line
                await self._client.run("claim", None, self._worker_id, 0, 0, "", QUEUE, "", *messages)
            with translated():
                await self._client.redis.srem(self._client.keys.jobs("doors"), self._worker_id)
        except StoreError as trouble:  # the worker stops all the same; what it was handed is found at its door
            log.debug("the door of worker %s: %s", self._worker_id, trouble)
        finally:
            await self._connection.close()

    @property
    def waiting(self) -> int:
        """How many jobs were handed to the worker and not claimed yet."""
        return len(self._messages)

    def take(self) -> list[str]:
        """The messages for the next claim, which are the claim's from then on."""
        messages, self._messages = self._messages, []
        return messages

    def put_back(self, messages: Sequence[str]) -> None:
        """Keep messages for the next claim, because the claim that had them failed."""
        self._messages[:0] = messages

    def open(self) -> None:
        """Wait for a message, unless that is going on; one that comes is told by a hint."""
        if self._reading is None and not self._messages:
            self._shutting = False
            self._reading = asyncio.create_task(self._read())

    async def shut(self) -> None:
        """Wait no more. A message may have come in the last moment."""
        reading, self._shutting = self._reading, True
        if reading is None:
            return
        try:
            await self._connection.unblock(reading)
        except StoreError as error:
            log.debug("the door of worker %s cannot be shut: %s", self._worker_id, error)
            reading.cancel()
            await asyncio.wait({reading})

    async def _read(self) -> None:
        try:
            keys = self._client.keys
            if await self._connection.ask("SISMEMBER", keys.jobs("paused"), QUEUE):
                return
            await self._connection.ask("SADD", keys.jobs("doors"), self._worker_id)
            read = ("XREADGROUP", "GROUP", GROUP, self._worker_id, "COUNT", 1, "BLOCK", BLOCK_MS)
            answer: Any = None
            while not answer and not self._shutting:
                answer = await self._connection.ask(*read, "STREAMS", keys.jobs("stream"), ">")
            if answer:
                self._messages += [message_id for message_id, _ in answer[0][1]]
        except StoreError as error:  # the worker polls, and tries again then
            log.debug("the door of worker %s is shut: %s", self._worker_id, error)
        finally:
            self._reading = None
            if self._messages:
                self._hints.send(Hint(frozenset({QUEUE})))
