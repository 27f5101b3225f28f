"""`Callsheet.asgi()` is a whole server: real uvicorn runs it, jobs go in by HTTP and come back from a worker."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import httpx2
import pytest
import uvicorn

from callsheet import Callsheet
from callsheet.http.server import listen
from callsheet.kernel.errors import InvalidInput, MissingExtra

KEY = {"Authorization": "Bearer the-admins-own-key"}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callsheet:
    monkeypatch.setenv("CALLSHEET_API_KEY", "the-admins-own-key")
    app = Callsheet(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="chat")
    async def chat(prompt: str) -> str:
        return prompt.upper()

    return app


@contextlib.asynccontextmanager
async def running(config: uvicorn.Config) -> AsyncIterator[httpx2.AsyncClient]:
    """Run uvicorn on a free port of this machine and yield a client of it."""
    sock = listen("127.0.0.1", 0)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        while not server.started:
            assert not serving.done(), "uvicorn could not start"
            await asyncio.sleep(0.01)
        host, port = sock.getsockname()[:2]
        async with httpx2.AsyncClient(base_url=f"http://{host}:{port}", headers=KEY, timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


async def test_uvicorn_runs_the_factory_and_a_job_goes_through(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = ModuleType("shop_of_asgi")
    vars(shop)["app"] = app
    monkeypatch.setitem(sys.modules, "shop_of_asgi", shop)
    async with running(uvicorn.Config("shop_of_asgi:app.asgi", factory=True, lifespan="on", log_config=None)) as client:
        assert (await client.get("/readyz")).status_code == 200
        made = (await client.post("/v1/jobs", json={"task": "chat", "payload": {"prompt": "hello"}})).json()
        await app.worker().run(burst=True)
        job = (await client.get(made["links"]["self"])).json()
    assert (job["status"], job["result"]) == ("done", "HELLO")


async def test_the_server_has_the_settings_of_its_flags_and_asks_for_a_key(app: Callsheet) -> None:
    async with running(uvicorn.Config(app.asgi(body_idle="5s"), lifespan="on", log_config=None)) as client:
        assert (await client.get("/v1/jobs", headers={"Authorization": "Bearer wrong"})).status_code == 401
        assert (await client.get("/v1/jobs")).status_code == 200


def test_wrong_settings_are_refused_when_the_server_is_made(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="no setting 'colour'"):
        app.asgi(colour="red")
    with pytest.raises(InvalidInput, match="at most 25"):
        app.asgi(webhook_batch=26)
    monkeypatch.setenv("CALLSHEET_RATE_LIMIT", "many")
    with pytest.raises(InvalidInput, match="CALLSHEET_RATE_LIMIT: 'many' is no whole number"):
        app.asgi()


def test_a_missing_extra_is_named(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "callsheet.asgi", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    for name in [name for name in sys.modules if name.startswith(("callsheet.api", "callsheet.http"))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=r"callsheet\[server\]"):
        app.asgi()
