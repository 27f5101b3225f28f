"""What the tests of objects and their owners share: keys of strangers, and a server with an app beside it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from callsheet import Callsheet
from callsheet.api import dead_letters, objects, uploads, workers
from callsheet.contracts.aura import routes as aura
from callsheet.contracts.control_plane import enrolment as enrolling
from callsheet.contracts.control_plane import files, routes
from callsheet.contracts.euterpe import routes as euterpe
from callsheet.contracts.redis_gateway import routes as gateway
from tests import stores
from tests.http.live import Live, serving

ROUTERS = [
    aura.router,
    gateway.router,
    gateway.direct,
    euterpe.router,
    routes.router,
    enrolling.router,
    workers.router,
    files.worker_router,
    files.router,
    objects.router,
    uploads.router,
    dead_letters.router,
]
JOB_OF_OTHER = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"
JOB_OF_OWN = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b2"
PIECES = (
    "object:", "..", ".", "%2e%2e", "%2f", "\0", "/", "//", "\\", "~", "uploads", "outputs", "jobs", "shared",
    "incoming", "videos/original", "frames", "steps", "acme", "other", "acme2", "a.bin", ".callsheet",
    JOB_OF_OTHER, JOB_OF_OWN,
)  # fmt: skip
hostile_keys = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).flatmap(
    lambda pieces: st.sampled_from(["/".join(pieces), "".join(pieces)])
)


class Place(NamedTuple):
    """A server and an app with one store and one object folder."""

    live: Live
    app: Callsheet
    root: Path


@contextlib.asynccontextmanager
async def placed(url: str, tmp_path: Path) -> AsyncIterator[Place]:
    """A server with all routes that take keys or jobs, and an app that can run its tasks."""
    app = Callsheet(url)
    app.objects_url = f"file://{tmp_path / 'objects'}"
    app.catalog_url = "off"
    await app.migrate()
    async with app, serving(url, routers=ROUTERS, objects_url=app.objects_url) as live:
        await stores.empty({url: live.engine.store})
        yield Place(live, app, tmp_path)
