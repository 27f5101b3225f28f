"""A server, a worker, a catalogue and objects for videos, running; and a tenant who uploads and searches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from callsheet.api import objects as object_routes
from callsheet.api import uploads as upload_routes
from callsheet.app import Callsheet
from callsheet.app.video import add_video
from callsheet.catalog.protocol import Catalog
from callsheet.client import Client
from callsheet.contracts.cortana import routes
from callsheet.contracts.cortana.jobs import follow
from callsheet.objects import Objects
from callsheet.worker.pipeline import Pipeline
from tests.http.live import Live, serving
from tests.running_worker import working

TENANT, TEAM, OTHER = "acme", "acme-media", "globex"
PATIENCE_S = 110.0
ROUTERS = [routes.router, upload_routes.router, object_routes.router]


@dataclass
class Stack:
    """`client` has a key of the tenant."""

    live: Live
    client: httpx2.AsyncClient
    app: Callsheet
    catalog: Catalog
    objects: Objects
    pipeline: Pipeline
    workspaces: Path

    async def added(self, path: Path, **body: Any) -> str:
        """Upload a file as a client does; the video's id. The work begins."""
        key = self.client.headers["Authorization"].removeprefix("Bearer ")
        async with Client(self.live.url, key) as client:
            return await client.add_video(path, **body)

    async def video(self, video_id: str) -> dict[str, Any]:
        response = await self.client.get(f"/videos/{video_id}")
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    async def over(self, video_id: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The video when it is ready or has failed."""
        async with asyncio.timeout(patience_s):
            async for _ in follow(self.live.engine, self.catalog, video_id, 0.05):
                pass
        return await self.video(video_id)

    async def search(self, text: str, **more: Any) -> dict[str, Any]:
        reply = await self.client.get("/search", params={"q": text, **more})
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
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
            beside = working(app, workspaces=stack.workspaces, poll=0.05, concurrency=2, grace=10.0)
            async with client, beside if worker else contextlib.nullcontext():
                yield stack
