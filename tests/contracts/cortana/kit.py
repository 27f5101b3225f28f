"""A server, a worker, a catalogue and objects for videos, running; and a tenant who uploads and searches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from callsheet.app import Callsheet
from callsheet.app.video import add_video
from callsheet.catalog.protocol import Catalog
from callsheet.contracts.cortana import routes
from callsheet.contracts.cortana.following import follow
from callsheet.http import objects as object_routes
from callsheet.http import uploads as upload_routes
from callsheet.objects import Objects
from callsheet.worker.pipeline import Pipeline
from tests.http.live import Live, serving

TENANT, TEAM, OTHER = "acme", "acme-media", "globex"
PATIENCE_S = 110.0
ROUTERS = [routes.router, upload_routes.router, object_routes.router]


@dataclass
class Stack:
    """`client` has a key of the tenant."""

    live: Live
    client: httpx.AsyncClient
    app: Callsheet
    catalog: Catalog
    objects: Objects
    pipeline: Pipeline
    workspaces: Path

    async def added(self, path: Path, **body: Any) -> str:
        """Upload a file as a client does; the video's id. The work begins."""
        size = path.stat().st_size
        answered = await self.client.post("/videos", json={"name": path.name, "size": size, **body})
        assert answered.status_code == 201, answered.text
        told = answered.json()
        raw = path.read_bytes()
        for part in told["upload"]["todo"]:
            url = part["url"] if part["url"].startswith("http") else f"{self.live.url}{part['url']}"
            async with httpx.AsyncClient(timeout=60) as plain:
                piece = raw[part["offset"] : part["offset"] + part["size"]]
                sent = await plain.request(part["method"], url, content=piece, headers=part["headers"])
                assert sent.status_code == 200, sent.text
        video_id = str(told["video"]["video_id"])
        done = await self.client.post(f"/videos/{video_id}/complete")
        assert done.status_code == 202, done.text
        return video_id

    async def video(self, video_id: str) -> dict[str, Any]:
        answered = await self.client.get(f"/videos/{video_id}")
        assert answered.status_code == 200, answered.text
        found: dict[str, Any] = answered.json()
        return found

    async def over(self, video_id: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The video when it is ready or has failed."""
        async with asyncio.timeout(patience_s):
            async for _ in follow(self.live.engine, self.catalog, video_id, 0.05):
                pass
        return await self.video(video_id)

    async def search(self, text: str, **more: Any) -> dict[str, Any]:
        answered = await self.client.get("/search", params={"q": text, **more})
        assert answered.status_code == 200, answered.text
        found: dict[str, Any] = answered.json()
        return found

    async def keys(self, prefix: str) -> set[str]:
        return {info.key async for info in self.objects.list(prefix)}


@contextlib.asynccontextmanager
async def running(url: str, folder: Path, *, worker: bool = True, objects_url: str = "") -> AsyncIterator[Stack]:
    """A whole stack on a store and on a folder, or where the objects' URL says."""
    app = Callsheet(url)
    app.objects_url = objects_url or f"file://{folder / 'objects'}"
    pipeline = add_video(app)
    await app.migrate()
    async with app:
        kept, catalog = await app.objects(), await app.catalog()
        async with serving(url, routers=ROUTERS, objects=kept, catalog=catalog) as live:
            client = await live.key(TENANT, teams=[TEAM])
            stack = Stack(live, client, app, catalog, kept, pipeline, folder / "work")
            async with client, working(stack, on=worker):
                yield stack


@contextlib.asynccontextmanager
async def working(stack: Stack, *, on: bool = True) -> AsyncIterator[None]:
    """A worker beside the test."""
    if not on:
        yield
        return
    worker = stack.app.worker(workspaces=stack.workspaces, poll=0.05, concurrency=2)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop(hard=True)
        await task
