"""A real server on a free port in this event loop, and words for its clients."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx2

from callsheet.api import batch, schedules, tasks
from callsheet.contracts.redis_gateway import routes, streams
from callsheet.engine import Engine
from callsheet.http.keys import ApiKeys
from callsheet.http.server import Server, ServerOptions, create_app, listen
from callsheet.http.state import ServerState
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, Settled

ROUTERS = [routes.router, streams.router, batch.router, tasks.router, schedules.router]
ADMIN = "admin-key-of-the-tests"


class Live(NamedTuple):
    """A running server, and a client with the admin's key."""

    url: str
    client: httpx2.AsyncClient
    server: Server
    state: ServerState
    engine: Engine

    async def key(self, requester_id: str, **options: Any) -> httpx2.AsyncClient:
        """A client with a new key."""
        text, _ = await ApiKeys(self.engine.store).create("test", requester_id=requester_id, **options)
        return httpx2.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {text}"}, timeout=60, verify=False
        )

    async def text(self, requester_id: str = "", **options: Any) -> str:
        """The text of a new key."""
        text, _ = await ApiKeys(self.engine.store).create("test", requester_id=requester_id, **options)
        return text

    def bare(self) -> httpx2.AsyncClient:
        """A client without a key."""
        return httpx2.AsyncClient(base_url=self.url, timeout=60, verify=False)

    async def running(self, client: httpx2.AsyncClient | None = None) -> Job:
        """A new job that a worker has claimed, in a store where nothing else waits."""
        job_id = await self.job(client)
        (job,) = await self.engine.claim(ClaimRequest("w", lease_ms=600_000))
        assert job.job_id == job_id
        return job

    async def note(self, job: Job, *texts: str, type: str = "log", step: str = "") -> None:
        """Events of a running job."""
        for text in texts:
            await self.engine.settle([commands.note(job, NewEvent(type, step, text))])

    async def done(self, job: Job, result: str = "null") -> None:
        """End a job well."""
        assert await self.engine.settle([commands.succeed(job, result)]) == [Settled.APPLIED]

    async def fail(self, job: Job) -> None:
        """End a job for good, as an error."""
        assert await self.engine.settle([commands.dead_letter(job, JobError("broke", "it broke"))]) == [Settled.APPLIED]

    async def job(self, client: httpx2.AsyncClient | None = None, **fields: Any) -> str:
        """A new job's id."""
        body = {"task": "chat", "payload": {"prompt": "hi"}, **fields}
        answer = await (client or self.client).post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])


@contextlib.asynccontextmanager
async def serving(url: str, **options: Any) -> AsyncIterator[Live]:
    """Start a server on a store, and stop it."""
    engine = Engine.from_url(url, redis_url=options.pop("redis_url", None))
    routers = options.pop("routers", ROUTERS)
    settings = ServerOptions(**{"api_key": ADMIN, "migrate": True, "housekeeping": False, **options})
    app = create_app(engine, routers, settings)
    sock = listen("127.0.0.1", 0)
    server = Server(app, [sock])
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment] # the tests' own process
    server.main_loop = functools.partial(_tick, server)  # type: ignore[method-assign] # uvicorn's looks each 0.1 s
    running = asyncio.create_task(server.run_until_stopped())
    async with asyncio.timeout(60):
        while not server.started:
            if running.done():
                running.result()
            await asyncio.sleep(0.005)
    host, port = server.address
    base = f"http://{host}:{port}"
    async with httpx2.AsyncClient(
        base_url=base, headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60, verify=False
    ) as client:
        try:
            yield Live(base, client, server, app.state.server_state, engine)
        finally:
            await client.aclose()
            server.should_exit = True
            await running


async def _tick(server: Server) -> None:
    await server.on_tick(0)
    while not server.should_exit:
        await asyncio.sleep(0.01)


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Assert that an answer is this problem; return its body."""
    assert (answer.status_code, answer.headers.get("content-type")) == (status, "application/problem+json"), answer.text
    body: dict[str, Any] = answer.json()
    assert (body["code"], body["status"]) == (code, status), body
    assert body["request_id"] == answer.headers["x-request-id"]
    return body


class Frame(NamedTuple):
    """One server-sent event."""

    event: str
    data: Any
    id: str


async def frames(answer: httpx2.Response) -> AsyncIterator[Frame]:
    """The frames of a stream, read by the simplest parser there is."""
    by_name: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            by_name[name] = value
        else:
            if "event" in by_name:
                yield Frame(by_name["event"], json.loads(by_name["data"]), by_name.get("id", ""))
            by_name = {}
