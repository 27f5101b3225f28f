"""The processes of a measurement: servers on one core, load and databases on the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench import places
from callsheet.engine import Engine
from callsheet.http.keys import ApiKeys

ROOT = Path(__file__).parents[2]
START_S = 30.0
STOP_S = 10.0
LINE_BYTES = 64 * 2**20
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
APART = len(CORES) > 1 and shutil.which("taskset") is not None
SERVER_CORES, OTHER_CORES = CORES[:1], CORES[1:]
REQUESTER = "bench"


class NotStarted(Exception):
    """A process of the measurement did not come up, or went away."""


class Usage(NamedTuple):
    """The CPU time and memory that a process has used up to one moment."""

    at: float
    cpu_s: float
    rss_mb: float
    core_s: float  # what its core has worked, for whomever

    def share_since(self, before: Usage) -> float:
        """Return the share of one core that this process used."""
        return (self.cpu_s - before.cpu_s) / (self.at - before.at)

    def others_since(self, before: Usage) -> float:
        """Return the share of the process' core that other processes and interrupts used."""
        return max(0.0, (self.core_s - before.core_s) / (self.at - before.at) - self.share_since(before))


class Server(NamedTuple):
    """A running server process. With granian it is the worker process, without its parent."""

    port: int
    pid: int

    def usage(self) -> Usage:
        process = psutil.Process(self.pid)
        times = process.cpu_times()
        return Usage(time.monotonic(), times.user + times.system, process.memory_info().rss / 2**20, _core_s())


class Helper:
    """A program that is asked line by line."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, do: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        await self._process.stdin.drain()
        if line := await self._process.stdout.readline():
            return json.loads(line)
        raise NotStarted(f"the helper ended while it was asked to {do}")


@contextlib.asynccontextmanager
async def helper(module: str) -> AsyncIterator[Helper]:
    """A helper program beside the server's core."""
    command = _on_cores(OTHER_CORES, sys.executable, "-m", f"bench.http.{module}")
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES)
    try:
        yield Helper(process)
    finally:
        await end(process)


@contextlib.asynccontextmanager
async def server(app: str, program: str, url: str) -> AsyncIterator[Server]:
    """A server process, ready to answer."""
    async with _listening("serve", lambda port: (app, program, str(port), url)) as one:
        yield one


@contextlib.asynccontextmanager
async def trivial_server() -> AsyncIterator[Server]:
    """Start a server that gives a constant answer to every request."""
    async with _listening("trivial", lambda port: (str(port),)) as one:
        yield one


@contextlib.asynccontextmanager
async def _listening(module: str, arguments: Callable[[int], Sequence[str]]) -> AsyncIterator[Server]:
    port = _free_port()
    command = _on_cores(SERVER_CORES, sys.executable, "-m", f"bench.http.{module}", *arguments(port))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=DEVNULL, stdout=DEVNULL)
    try:
        async with asyncio.timeout(START_S):
            while not await _answers(port):
                if process.returncode is not None:
                    raise NotStarted(f"{' '.join(command)} ended with code {process.returncode}")
                await asyncio.sleep(0.05)
        yield Server(port, _worker(process.pid))
    finally:
        await end(process)


async def new_key(url: str) -> str:
    """Create an API key without limits that the load could reach."""
    engine = Engine.from_url(url)
    await engine.store.migrate()
    async with engine:
        text, _ = await ApiKeys(engine.store).create("bench", requester_id=REQUESTER, rate=1e9)
        return text


@contextlib.contextmanager
def database_apart(kind: str) -> Iterator[None]:
    """The database of a kind off the servers' core, while this lasts."""
    start_server = {"redis": places.redis_server, "postgres": places.postgres_server}.get(kind)
    if start_server is None or not APART:
        yield
        return
    _move(start_server().pid, OTHER_CORES)
    try:
        yield
    finally:
        _move(start_server().pid, CORES)


def _core_s() -> float:
    """Return the busy time of the servers' core."""
    if not APART:
        return 0.0
    times = psutil.cpu_times(percpu=True)[SERVER_CORES[0]]
    return float(sum(times[:8]) - times.idle - times.iowait)  # what guests had stands in user as well


def _move(pid: int, cores: list[int]) -> None:
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.cpu_affinity(cores)


def _on_cores(cores: list[int], *command: str) -> tuple[str, ...]:
    return ("taskset", "-c", ",".join(map(str, cores)), *command) if APART else command


def _worker(pid: int) -> int:
    """Return the process that answers requests; granian starts it below a parent, beside a small sibling."""
    children = psutil.Process(pid).children(recursive=True)
    return max(children, key=lambda p: p.memory_info().rss).pid if children else pid


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        async with asyncio.timeout(1):
            return (await reader.readline()).startswith(b"HTTP/1.1 200")
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()


async def end(process: Process) -> None:
    """End a process and its children."""
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
    for child in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
