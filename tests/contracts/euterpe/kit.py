"""Everything that a transcoding job needs, running: a server, a worker, a deliverer, a requester with its receiver."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from fastapi import APIRouter

from callsheet.app import Callsheet
from callsheet.app.sealing import sealer_from
from callsheet.app.transcoding import add_transcoding
from callsheet.contracts.euterpe import routes
from callsheet.objects import Credentials, Objects
from callsheet.outbox import Deliveries, Endpoints
from callsheet.receiver import Receiver
from callsheet.vault.keys import first_keys
from tests.http.live import Live, serving
from tests.outbox.kit import FAST
from tests.outbox.sink import RULES, Got, Sink, answer
from tests.running_worker import working

TENANT = "acme"
KEYS = first_keys().text()
STAGES = ["claimed", "fetching", "processing", "uploading", "succeeded"]
MP3 = {"key": "sound.mp3", "format": "mp3"}


@dataclass
class Stack:
    """`client` has a key of the tenant; `events` are the callbacks that came, verified, in their order."""

    live: Live
    client: httpx2.AsyncClient
    sink: Sink
    endpoints: Endpoints
    receiver: Receiver
    workspaces: Path
    app: Callsheet
    refreshes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def objects(self) -> Objects:
        assert self.live.state.objects is not None
        return self.live.state.objects

    @property
    def hook(self) -> str:
        return f"http://127.0.0.1:{self.sink.port}/hook"

    @property
    def refresh_url(self) -> str:
        return f"http://127.0.0.1:{self.sink.port}/refresh"

    def events(self) -> list[dict[str, Any]]:
        """Return verified callbacks, each once, ordered by sequence."""
        by_name: dict[str, dict[str, Any]] = {}
        for request in self.sink.got:
            if request.path == "/hook":
                by_name.setdefault(request.event_id, json.loads(request.body))
        return sorted(by_name.values(), key=lambda event: event["sequence"])

    async def own_source(self, path: Path) -> str:
        """Store a file of the tenant in our own storage."""
        key = f"uploads/{TENANT}/0/{path.name}"
        await self.objects.put_file(key, path)
        return f"object:{key}"

    async def post(self, body: dict[str, Any], **headers: str) -> str:
        """A new job's id."""
        response = await self.client.post("/transcode", json=body, headers=headers)
        assert response.status_code == 202, response.text
        return str(response.json()["job_id"])

    async def status(self, job_id: str) -> dict[str, Any]:
        reply = await self.client.get("/transcode/status", params={"job_id": job_id})
        assert reply.status_code == 200, reply.text
        body: dict[str, Any] = reply.json()
        return body

    async def ended(self, job_id: str, patience_s: float = 40) -> dict[str, Any]:
        """Wait for the job's end and return the job."""
        async with asyncio.timeout(patience_s):
            async for _ in self.live.engine.watch(job_id):
                pass
        return await self.status(job_id)

    async def told(self, status: str, patience_s: float = 15) -> dict[str, Any]:
        """Return the callback with this status."""
        async with asyncio.timeout(patience_s):
            while not (results := [event for event in self.events() if event["status"] == status]):
                await self.sink.until(len(self.sink.got) + 1, patience_s)
        return results[0]

    def on_refresh(self, newer: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
        """The requester's answer to a credentials refresh: it verifies, and puts them in place."""

        async def behave(sink: Sink, got: Got, writer: asyncio.StreamWriter) -> None:
            query = self.receiver.verify(got.headers, got.body).body
            self.refreshes.append(query)
            body = {**await newer(query), "expected_version": query["credential_version"]}
            put = await self.client.put(f"/transcode/{query['job_id']}/credentials", json=body)
            assert put.status_code == 200, put.text
            await answer("202 Accepted")(sink, got, writer)

        self.sink.by_path["/refresh"] = behave


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


async def keys_in(objects: Objects) -> set[str]:
    return {info.key async for info in objects.list()}


def keys_of(credentials: Credentials) -> dict[str, str]:
    """Return credentials in the request's JSON form."""
    results = {"access_key_id": credentials.access_key_id, "secret_access_key": credentials.secret_access_key}
    return {**results, **({"session_token": credentials.session_token} if credentials.session_token else {})}


@contextlib.asynccontextmanager
async def running(
    url: str,
    folder: Path,
    *,
    worker: bool = True,
    max_source_bytes: int = 10**9,
    objects_url: str = "",
    routers: Sequence[APIRouter] = (),
) -> AsyncIterator[Stack]:
    """A whole stack on a store. The environment has the vault's keys (CALLSHEET_KEYS)."""
    objects_url = objects_url or f"file://{folder / 'objects'}"
    app = Callsheet(url)
    app.objects_url = objects_url
    add_transcoding(app, RULES, max_source_bytes=max_source_bytes)
    async with (
        Sink() as sink,
        serving(url, routers=[routes.router, *routers], objects_url=objects_url, housekeeping=True) as live,
        app,
    ):
        endpoints = Endpoints(live.engine.store, sealer_from(os.environ), RULES)
        live.state.endpoints = endpoints
        _, secret = await endpoints.new_own_secret(TENANT)
        client = await live.key(TENANT)
        stack = Stack(live, client, sink, endpoints, Receiver([secret]), folder / "work", app)
        beside = working(app, workspaces=stack.workspaces, poll=0.05, concurrency=2, grace=10.0)
        async with client, Deliveries(live.engine, endpoints, FAST), beside if worker else contextlib.nullcontext():
            yield stack
