"""The contract's other programs, as the tests meet them: real servers, foreign workers as processes, plain clients."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import redis.asyncio

from callsheet import Callsheet
from callsheet.kernel.job import NewJob
from tests import binaries, stores
from tests.servers import RedisServer
from tools import check_types

EXAMPLES = Path(__file__).parents[3] / "examples"
HASH_FIELDS = ("job_id", "task", "payload", "status", "created_ts", "updated_ts", "ttl_s", "result", "error")
TERMINAL = ("done", "error", "canceled")
NOTHING: Mapping[str, str | None] = {}
KINDS = ("valkey", "redis") if binaries.older_redis() else ("valkey",)
Language = Literal["python", "node"]
LANGUAGES: tuple[Language, ...] = ("python", "node")


@functools.cache
def older_server() -> RedisServer:
    server = RedisServer.start(kind="redis", settings={"appendfsync": "always"})
    atexit.register(server.stop)
    return server


def fresh_url(kind: str) -> str:
    """The URL of an empty database on a Valkey, or on the older Redis of this machine."""
    return stores.fresh_url("redis") if kind == "valkey" else older_server().fresh_url()


@contextlib.asynccontextmanager
async def plain_client(url: str) -> AsyncIterator[Any]:
    """What a foreign program sees: the same database through a plain driver."""
    client = redis.asyncio.Redis.from_url(url.partition("?")[0], decode_responses=True, protocol=2)
    try:
        yield client
    finally:
        await client.aclose()


async def until(ask: Callable[[], Awaitable[Any]], within_s: float = 60.0) -> Any:
    """Ask until the answer is a yes; the answer."""
    async with asyncio.timeout(within_s):
        while not (answer := await ask()):
            await asyncio.sleep(0.01)
    return answer


def gateway_job(payload: str = "{}", task: str = "chat", **more: Any) -> NewJob:
    """A job as our gateway makes one."""
    return NewJob(str(uuid.uuid4()), task, payload, ttl_s=600, contract="redis_gateway", **more)


async def foreign_job(
    client: Any, payload: str = "{}", *, task: str = "chat", changed: Mapping[str, str | None] = NOTHING
) -> str:
    """A job as the contract's gateway makes one, but for the `changed` fields of its hash (None: without it)."""
    job_id, now_ms = str(uuid.uuid4()), str(time.time_ns() // 1_000_000)
    values = (job_id, task, payload, "queued", now_ms, now_ms, "600", "", "")
    fields = {**dict(zip(HASH_FIELDS, values, strict=True)), **changed}
    await client.hset(f"job:{job_id}", mapping={name: value for name, value in fields.items() if value is not None})
    await client.expire(f"job:{job_id}", 600)
    await add_event(client, job_id, "queued", step="gateway.enqueue")
    await client.expire(f"job:{job_id}:events", 600)
    await client.xadd("jobs:stream", {"job_id": job_id, "task": task, "payload": payload})
    return job_id


async def add_event(client: Any, job_id: str, kind: str, *, step: str = "worker", data: str = "{}") -> None:
    """One event as a foreign program writes it."""
    event = {"type": kind, "ts": str(time.time_ns() // 1_000_000), "step": step, "data": data}
    await client.xadd(f"job:{job_id}:events", event)


async def take(client: Any, name: str = "stranger") -> tuple[str, dict[str, str]]:
    """One message, as a foreign worker reads it from the group."""
    with contextlib.suppress(redis.ResponseError):  # it is there already
        await client.xgroup_create("jobs:stream", "workers", id="0", mkstream=True)
    ((_, ((message_id, message),)),) = await client.xreadgroup("workers", name, {"jobs:stream": ">"}, count=1)
    return str(message_id), message


async def pending(client: Any) -> int:
    """Return the number of delivered, unacknowledged messages."""
    return int((await client.xpending("jobs:stream", "workers"))["pending"])


async def events_of(client: Any, job_id: str) -> list[dict[str, str]]:
    """The job's events as raw fields."""
    return [fields for _, fields in await client.xrange(f"job:{job_id}:events")]


async def types_of(client: Any, job_id: str) -> list[str]:
    """What the job's events are called."""
    return [event["type"] for event in await events_of(client, job_id)]


async def status_of(client: Any, job_id: str) -> str:
    """Return the hash's status word."""
    return str(await client.hget(f"job:{job_id}", "status"))


async def ttls_of(client: Any, job_id: str) -> list[int]:
    """Seconds left of the hash and of the events."""
    return [await client.ttl(f"job:{job_id}"), await client.ttl(f"job:{job_id}:events")]


@contextlib.asynccontextmanager
async def our_worker(app: Callsheet, **options: Any) -> AsyncIterator[None]:
    """A worker of ours in this process, for as long as the block lasts."""
    worker = app.worker(**{"poll": 0.05, "concurrency": 2, "prefetch": 0, **options})
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


class ForeignWorker:
    """An example worker as a process."""

    def __init__(self, language: Language, url: str, name: str) -> None:
        plain = url.partition("?")[0]
        program = [sys.executable, EXAMPLES / "redis_worker.py"] if language == "python" else node_program()
        self.name = name
        self.process = subprocess.Popen([*program, plain, name])

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop the process with SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the process with SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """SIGTERM; its exit code once it is gone."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, 30)


@contextlib.contextmanager
def foreign_worker(language: Language, url: str, name: str = "stranger") -> Iterator[ForeignWorker]:
    """A foreign worker that is gone when the block ends."""
    worker = ForeignWorker(language, url, name)
    try:
        yield worker
    finally:
        worker.kill()


async def listening(client: Any, how_many: int) -> None:
    """Wait until so many foreign workers wait for messages of this database."""
    db = str(client.connection_pool.connection_kwargs.get("db", 0))

    async def asked() -> bool:
        clients: list[dict[str, str]] = await client.client_list()
        return sum(c["cmd"] == "xreadgroup" and c["db"] == db for c in clients) >= how_many

    await until(asked)


def node_program() -> list[str | Path]:
    """The Node example with its packages, installed once for all tests of this process."""
    return [node_and_npm()[0], Path(node_folder("redis-worker-node").name, "worker.mjs")]


@functools.cache
def node_folder(example: str) -> tempfile.TemporaryDirectory[str]:
    """Copy a Node example with its packages."""
    folder = tempfile.TemporaryDirectory(prefix="callsheet-node-")
    ignored = shutil.ignore_patterns("node_modules")
    shutil.copytree(EXAMPLES / example, folder.name, dirs_exist_ok=True, ignore=ignored)
    node, *npm = node_and_npm()
    environment = {**os.environ, "PATH": f"{Path(node).parent}:{os.environ['PATH']}"}
    command = [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    process = subprocess.run(command, cwd=folder.name, env=environment, check=False, capture_output=True, text=True)
    assert process.returncode == 0, f"npm ci failed:\n{process.stdout}{process.stderr}"
    return folder


def node_and_npm() -> list[str]:
    """The wheel's node and npm, else the system's, which may be of any age."""
    node, npm = (str(path) for path in check_types.node())
    return [node, node, npm]
