from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callsheet import Callsheet, JobHandle, Worker
from callsheet.contracts.redis_gateway.tasks import add_tasks
from callsheet.kernel.job import Event
from tests import stores
from tests.running_worker import running_worker

from . import toolbox
from .server import Server

VARIABLES = ("LLM_URL", "LLM_API_KEY", "LLM_MODEL", "EMBED_URL", "EMBED_API_KEY", "EMBED_MODEL", "VECTORS_URL")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*(f"CALLSHEET_{variable}" for variable in VARIABLES), *PROXIES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def app() -> AsyncIterator[Callsheet]:
    """The six tasks on SQLite."""
    async with gateway(stores.fresh_url("sqlite")) as app:
        yield app


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """A model's server that the environment names."""
    async with Server.running() as server:
        monkeypatch.setenv("CALLSHEET_LLM_URL", server.url)
        yield server


@contextlib.asynccontextmanager
async def gateway(url: str) -> AsyncIterator[Callsheet]:
    app = Callsheet(url)
    add_tasks(app, toolbox.tools)
    await app.migrate()
    async with app:
        yield app


def working(app: Callsheet) -> contextlib.AbstractAsyncContextManager[Worker]:
    """A worker beside the test, stopped hard at its end."""
    return running_worker(app.worker(poll=0.1, grace=5.0, drain=5.0))


async def enqueued(app: Callsheet, task: str, requester: str = "", **payload: Any) -> JobHandle[Any]:
    return await app.task_named(task).options(requester_id=requester).enqueue(**payload)


async def run(app: Callsheet, task: str, requester: str = "", **payload: Any) -> JobHandle[Any]:
    """Enqueue and work until nothing is due; a job waiting for a retry stays queued."""
    job = await enqueued(app, task, requester, **payload)
    await app.worker().run(burst=True)
    return job


async def events_of(app: Callsheet, job: JobHandle[Any]) -> list[Event]:
    engine = await app.engine()
    return await engine.store.events({job.id: 0}, 1000)


async def error_of(job: JobHandle[Any]) -> dict[str, Any]:
    by_name: dict[str, Any] = json.loads((await job.get()).error or "{}")
    return by_name


def alive(pid: int) -> bool:
    """True for a process that runs; zombies do not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
