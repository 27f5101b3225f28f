"""client.js in a Node process that runs commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

from tools.check_types import node

DRIVER = Path(__file__).with_name("drive.mjs")
LINE_BYTES = 1 << 24
QUICK = {"firstPauseMs": 1, "longestPauseMs": 5, "retryForMs": 10_000, "reconnectForMs": 20_000}


class Outcome(NamedTuple):
    """The outcome of one command: events, then a result or an error."""

    events: list[dict[str, Any]]
    result: Any = None
    error: dict[str, Any] | None = None

    @property
    def ids(self) -> list[str]:
        return [event["id"] for event in self.events]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


class Node:
    """A Node process with client.js."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, verb: str, on_event: Callable[[dict[str, Any]], Any] | None = None, **more: Any) -> Outcome:
        """One command; `on_event` hears of each event at once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"verb": verb, **more}).encode() + b"\n")
        events: list[dict[str, Any]] = []
        while line := await self._process.stdout.readline():
            record = json.loads(line)
            if "event" not in record:
                return Outcome(events, record.get("result"), record.get("error"))
            events.append(record["event"])
            if on_event is not None:
                on_event(record["event"])
        raise AssertionError("node ended")


@contextlib.asynccontextmanager
async def driven(url: str, key: str = "", **patience: int) -> AsyncIterator[Node]:
    """Start a process with a client for a server's URL."""
    arguments = json.dumps({"url": url, "apiKey": key, "patience": {**QUICK, **patience}})
    program, _ = node()
    process = await asyncio.create_subprocess_exec(
        str(program), str(DRIVER), arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=LINE_BYTES
    )
    try:
        yield Node(process)
    finally:
        process.kill()
        await process.wait()
