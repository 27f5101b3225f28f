"""The transport's Redis server: keys, scripts, and whether the server is away.

Each key is preceded by the prefix (`?prefix=`, default `callsheet:`; a cluster needs one with a hash tag, `{cs}:`):

    stream:{queue}     STREAM  messages of a queue: `job_id`, `enqueue_id`; group `workers`, a consumer a process
    messages           HASH    enqueue_id to `message_id queue`, of every message that is in a stream
    over               ZSET    periods whose claim or end came before their message was published, by time; a minute,
                               at most 20,000
    queues             SET     queues that have a stream
    processes          ZSET    consumers by the time they were last alive
    turn:{chore}       STRING  the process whose turn a chore is, until the next
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from callsheet.kernel.errors import InvalidInput, StoreError
from callsheet.store.redis.client import OLDEST, SCHEMES, Target, translated, write_with_hiredis

from .messages import Message, Place, message_of

log = logging.getLogger("callsheet.transport")
PREFIX = "callsheet:"
GROUP = "workers"
LONGEST_BLOCK_S = 1.0
GOODBYE_S = 0.5


class Wire:
    """Run scripts; log once that Redis is away, and once that Redis is back."""

    def __init__(self, url: str) -> None:
        target, pool = _open(url)
        self.prefix = target.keys.prefix or PREFIX
        self.me = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.away = False
        self.stopping = asyncio.Event()  # ends the loops if a driver swallows a cancellation
        self.redis: Any = Redis.from_pool(pool)  # the driver's types mix its sync and async answers
        timeout_s = float(pool.connection_kwargs.get("socket_timeout") or LONGEST_BLOCK_S)
        self._block_ms = round(min(LONGEST_BLOCK_S, timeout_s / 2) * 1000)
        self._is_checked = False

    def stream(self, queue: str) -> str:
        """Return the key of a queue's stream."""
        return f"{self.prefix}stream:{queue}"

    def queue(self, name: str) -> str:
        """Return the queue of a stream's key; any other name is returned as a queue's own name."""
        return name.removeprefix(self.stream("")) or name

    async def run(self, name: str, *arguments: str | int) -> Any:
        """Run a script in one round trip; raises StoreError."""
        try:
            await self._check_version()
            with translated():
                answer = await self._run(name, arguments)
        except StoreError as error:
            self.mark_away(error)
            raise
        self._mark_back()
        return answer

    async def read(self, queues: Sequence[str], count: int) -> dict[str, list[Message]]:
        """Return new messages for this process, by queue; waits up to a second for the first message."""
        streams = {self.stream(queue): ">" for queue in queues}
        try:
            with translated():
                reply = await self.redis.xreadgroup(GROUP, self.me, streams, count=count, block=self._block_ms)
        except StoreError as error:
            if "NOGROUP" not in str(error) and "UNBLOCKED" not in str(error):
                self.mark_away(error)
            raise
        self._mark_back()
        offset = len(self.stream(""))
        return {key[offset:]: _messages(entries) for key, entries in reply or ()}

    async def old(self, queue: str, after: str, count: int) -> list[Message]:
        """Return messages of a queue after an id, delivered or not."""
        with translated():
            return _messages(await self.redis.xrange(self.stream(queue), f"({after}", "+", count=count))

    async def queues(self) -> set[str]:
        """Return the queues that have a stream."""
        with translated():
            return set(await self.redis.smembers(f"{self.prefix}queues"))

    async def lengths(self) -> dict[str, int]:
        """Return how many messages the stream of each queue holds."""
        queues = sorted(await self.queues())
        with translated():
            pipe = self.redis.pipeline(transaction=False)
            for queue in queues:
                pipe.xlen(self.stream(queue))
            return dict(zip(queues, await pipe.execute(), strict=True))

    async def now(self) -> int:
        """Return milliseconds by the server's clock, which message ids contain."""
        with translated():
            seconds, micros = await self.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    async def version(self) -> str:
        """Return the server's version; raises StoreError if the server is too old."""
        with translated():
            version = str((await self.redis.info("server"))["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise StoreError(f"Redis {version} is too old: 6.2 or newer, or Valkey, is needed")
        return version

    def place(self, queue: str, message_id: str) -> Place:
        """Return the location of a message."""
        return Place(self.stream(queue), message_id)

    def mark_away(self, error: Exception) -> None:
        """Record that Redis did not answer; log a warning once."""
        if not self.away and not self.stopping.is_set():
            self.away = True
            log.warning("the transport is away, jobs are found by polling the database: %s", error)

    async def close(self) -> None:
        """Remove this consumer, so that audits need not wait for its timeout, and close every connection."""
        if not self.away:
            with contextlib.suppress(exceptions.RedisError, OSError):  # a timeout is an OSError
                async with asyncio.timeout(GOODBYE_S):
                    await self.redis.zrem(f"{self.prefix}processes", self.me)
        with contextlib.suppress(exceptions.RedisError, OSError):
            await self.redis.aclose()
            await self.redis.connection_pool.disconnect()

    def _mark_back(self) -> None:
        if self.away:
            self.away = False
            log.info("the transport is back")

    async def _check_version(self) -> None:
        if not self._is_checked:
            await self.version()
            self._is_checked = True

    async def _run(self, name: str, arguments: Iterable[str | int]) -> Any:
        source, sha = _script(name)
        head = ("EVALSHA", sha, 1, self.prefix, self.me)
        try:
            return await self.redis.execute_command(*head, *arguments)
        except exceptions.NoScriptError:
            await self.redis.script_load(source)
            return await self.redis.execute_command(*head, *arguments)


def _open(url: str) -> tuple[Target, BlockingConnectionPool]:
    """Return the target and an unused connection pool; raises InvalidInput without quoting the URL."""
    try:
        if urlsplit(url).scheme not in SCHEMES:
            raise InvalidInput("the URL of the transport must begin with redis://, rediss:// or valkey://")
        target = Target.from_url(url)
        pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            target.url,
            decode_responses=True,
            encoding_errors="replace",
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            **_defaults(target.url),
        )
        write_with_hiredis(pool)
    except ValueError:
        advice = "write special characters of its password as %XX, a slash as %2F"
        raise InvalidInput(f"the URL of the transport cannot be read; {advice}") from None
    return target, pool


def _messages(entries: Iterable[tuple[str, dict[str, str] | None]]) -> list[Message]:
    return [message_of(message_id, fields or {}) for message_id, fields in entries]


def _defaults(url: str) -> dict[str, Any]:
    """Return driver settings that the URL does not give; short times, because nothing waits for hints."""
    options = dict(parse_qsl(urlsplit(url).query))
    defaults: dict[str, Any] = {
        "socket_timeout": 3.0,
        "socket_connect_timeout": 2.0,
        "socket_keepalive": True,
        "max_connections": 4,
    }
    return {name: value for name, value in defaults.items() if name not in options}


@cache
def _script(name: str) -> tuple[str, str]:
    folder = files("callsheet.engine.transport").joinpath("scripts")
    source = "\n".join(folder.joinpath(f"{part}.lua").read_text("utf-8") for part in ("lib", name))
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
