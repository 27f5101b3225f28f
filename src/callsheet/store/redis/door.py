"""The door of an idle worker among foreign workers: a blocking read of the shared stream, per the contract.

Redis hands a new message to the longest waiting reader. A worker that reads only after a hint comes too late: other
workers have the message already. A message that a worker reads at its door becomes part of its next claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from redis import exceptions

from callsheet.kernel.errors import StoreError
from callsheet.store.protocol import Hint

from .client import Client, translated

if TYPE_CHECKING:
    from callsheet.store.hints import Hints

BLOCK_MS = 5_000
ANSWER_S = 10.0  # without an answer this long after the blocking time, the connection is lost
AGAIN_S = 0.005
log = logging.getLogger("callsheet.redis")
GROUP, QUEUE = "workers", "default"


class BlockingConnection:
    """One connection outside the pool, for one command at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connection: Any = None
        self._id = 0

    async def ask(self, *command: str | int) -> Any:
        """Return the answer to a command that blocks for at most BLOCK_MS; raises StoreError."""
        with translated():
            if self._connection is None:
                await self._connect()
            try:
                return await self._answer(*command)
            except exceptions.ResponseError:
                raise  # the connection is still usable
            except BaseException:
                await self.close()
                raise

    async def unblock(self, waiting: asyncio.Task[Any]) -> None:
        """Interrupt the blocking command whose answer a task awaits.

        Repeats the request to the server until the task has its answer: at first the command may not have reached the
        server.
        """
        while not waiting.done():
            if self._id:
                with translated():
                    await self._client.redis.execute_command("CLIENT", "UNBLOCK", self._id)
            await asyncio.wait({waiting}, timeout=AGAIN_S)

    async def close(self) -> None:
        """Close the connection. May be called twice."""
        connection, self._connection, self._id = self._connection, None, 0
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _connect(self) -> None:
        pool = self._client.redis.connection_pool
        connection = pool.connection_class(**{**pool.connection_kwargs, "socket_timeout": BLOCK_MS / 1000 + ANSWER_S})
        await connection.connect()
        self._connection = connection
        self._id = int(await self._answer("CLIENT", "ID"))

    def _answer(self, *command: str | int) -> Awaitable[Any]:
        return _answer_of(self._connection, command)


async def _answer_of(connection: Any, command: tuple[str | int, ...]) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()


class StreamDoor:
    """One worker's door to `jobs:stream`; use `async with` for as long as the worker claims."""

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
            if messages := self.take():  # a claim with limit 0 returns them to the queue
                await self._client.run("claim", None, self._worker_id, 0, 0, "", QUEUE, "", *messages)
            with translated():
                await self._client.redis.srem(self._client.keys.jobs("doors"), self._worker_id)
        except StoreError as trouble:  # the worker stops anyway; its unread messages are recovered through `jobs:doors`
            log.debug("the door of worker %s: %s", self._worker_id, trouble)
        finally:
            await self._connection.close()

    @property
    def waiting(self) -> int:
        """The number of stream messages that the worker has read and not yet claimed."""
        return len(self._messages)

    def take(self) -> list[str]:
        """Return the messages for the next claim and drop them here."""
        messages, self._messages = self._messages, []
        return messages

    def put_back(self, messages: Sequence[str]) -> None:
        """Return messages of a failed claim, for the next claim."""
        self._messages[:0] = messages

    def open(self) -> None:
        """Start waiting for a message unless a wait is running; a hint announces the message."""
        if self._reading is None and not self._messages:
            self._shutting = False
            self._reading = asyncio.create_task(self._read())

    async def shut(self) -> None:
        """Stop waiting. A message may have arrived in the last moment."""
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
        except StoreError as error:  # the worker polls, and opens the door again later
            log.debug("the door of worker %s is shut: %s", self._worker_id, error)
        finally:
            self._reading = None
            if self._messages:
                self._hints.send(Hint(frozenset({QUEUE})))
