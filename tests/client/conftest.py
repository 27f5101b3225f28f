from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from callsheet import Callsheet, Context, Fatal, Retry, Worker
from callsheet.client import Client, Patience
from callsheet.store.sqlite import SqliteStore
from tests import stores
from tests.http.live import ADMIN, Live, serving
from tests.running_worker import working

QUICK = Patience(first_pause_s=0.001, longest_pause_s=0.005, retry_for_s=60.0, reconnect_for_s=60.0)


@dataclass
class ServerState:
    """A server on SQLite, with a worker whose task `chat` follows its prompt."""

    live: Live
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return self.live.url

    @property
    def database_url(self) -> str:
        store = cast("SqliteStore", self.live.engine.store)
        return f"sqlite:///{store.target.path}"

    async def event_ids(self, job_id: str) -> list[str]:
        """What the store holds."""
        return [event.id for event in await self.live.engine.store.events({job_id: 0}, 100_000)]

    async def chat(self, ctx: Context, prompt: str, system: str = "", model: str = "") -> dict[str, str]:
        """`count N`: N tokens. `gate N`: N tokens, then wait at the gate. `fail`, `again`: tokens, then an error."""
        verb, _, rest = prompt.partition(" ")
        count = int(rest) if rest.isdigit() else 3
        if verb == "again" and ctx.attempt > 1:
            ctx.emit("restart", attempt=ctx.attempt)
        for number in range(count if verb != "echo" else 0):
            await ctx.emit("token", text=f"{number} ") if number % 50 == 49 else ctx.emit("token", text=f"{number} ")
        await ctx.progress(50, "half way")
        self.begun.set()
        if verb == "gate":
            await self.gate.wait()
        if verb == "again" and ctx.attempt == 1:
            raise Retry("once more", after=0.01)
        if verb == "fail":
            raise Fatal("it is broken", code="broken")
        text = rest if verb == "echo" else "".join(f"{number} " for number in range(min(count, 20)))
        return {"text": text, "system": system, "model": model}


@pytest.fixture
async def idle() -> AsyncIterator[ServerState]:
    """Start a server without a worker: its jobs wait."""
    async with serving(stores.fresh_url("sqlite")) as live:
        yield ServerState(live)


@pytest.fixture
async def site(idle: ServerState) -> AsyncIterator[ServerState]:
    """Start the server with a worker."""
    async with at_work(idle):
        yield idle


@contextlib.asynccontextmanager
async def at_work(site: ServerState) -> AsyncIterator[Worker]:
    """Run a worker for a server's chat jobs."""
    async with Callsheet(site.database_url) as app:
        app.task(name="chat")(site.chat)
        async with working(app) as worker:
            yield worker


@pytest.fixture
async def client(idle: ServerState) -> AsyncIterator[Client]:
    """A client for the server of `idle` and `site`."""
    async with Client(idle.url, ADMIN, patience=QUICK) as client:
        yield client
