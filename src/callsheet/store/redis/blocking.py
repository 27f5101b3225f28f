"""A connection for blocking commands, which another connection can interrupt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redis import exceptions

from .client import translated

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .client import Client

BLOCK_MS = 5_000
ANSWER_S = 10.0  # without an answer this long after the blocking time, the connection is lost
AGAIN_S = 0.005


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

    async def unblock(self, asked: asyncio.Task[Any]) -> None:
        """Interrupt the blocking command whose answer a task awaits.

        Repeats the request to the server until the task has its answer: at first the command may not have reached the
        server.
        """
        while not asked.done():
            if self._id:
                with translated():
                    await self._client.redis.execute_command("CLIENT", "UNBLOCK", self._id)
            await asyncio.wait({asked}, timeout=AGAIN_S)

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
        return _asked(self._connection, command)


async def _asked(connection: Any, command: tuple[str | int, ...]) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()
