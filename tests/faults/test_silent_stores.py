"""A stopping worker with a silent store ends after its drain time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from callsheet import Callsheet
from callsheet.kernel.job import Job
from callsheet.store.postgres import connection
from callsheet.store.protocol import ClaimRequest
from callsheet.worker.options import WorkerOptions
from tests import stores

LONG_S = 3600.0  # no limit of a driver's ends a test


class Silence:
    """A proxy before a store that can stop forwarding while connections stay open."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._pipes: set[asyncio.Task[None]] = set()
        self._fallen = False

    def fall(self) -> None:
        """Stop forwarding bytes, with connections open."""
        self._fallen = True

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection's bytes both ways."""
        back, there = await asyncio.open_connection(*self._target)
        for source, sink in ((reader, there), (back, writer)):
            pipe = asyncio.create_task(self._carry(source, sink))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(65_536):
                if not self._fallen:
                    sink.write(piece)
                    await sink.drain()
        sink.close()

    async def close(self) -> None:
        """End all pipes."""
        pipes = list(self._pipes)
        for pipe in pipes:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)


@contextlib.asynccontextmanager
async def silence_before(url: str) -> AsyncIterator[tuple[str, Silence]]:
    """Start a proxy before a store; return its URL and the proxy."""
    parts = urlsplit(url)
    silence = Silence(parts.hostname or "127.0.0.1", parts.port or 0)
    server = await asyncio.start_server(silence.connected, "127.0.0.1", 0)
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    user = f"{parts.username}@" if parts.username else ""
    try:
        yield parts._replace(netloc=user + place).geturl(), silence
    finally:
        server.close()
        await silence.close()


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_a_worker_stops_though_its_store_does_not_answer(
    kind: str,
    hard: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(connection, "COMMAND_S", LONG_S)
    patience: WorkerOptions = {"grace": 0.0, "drain": LONG_S} if hard else {"drain": 0.0}
    async with silence_before(stores.fresh_url(kind)) as (url, silence):
        app = Callsheet(url if kind == "postgres" else f"{url}?socket_timeout={LONG_S:g}")
        app.task(name="one")(lambda: None)
        await app.migrate()
        async with app:
            store, query = (await app.engine()).store, asyncio.Event()
            claim = store.claim

            async def claim_in_silence(request: ClaimRequest, *, now: int | None = None) -> list[Job]:
                silence.fall()
                query.set()
                return await claim(request, now=now)

            monkeypatch.setattr(store, "claim", claim_in_silence)
            worker = app.worker(**patience)
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(60):  # nothing but the worker's own patience can be what ends it
                await query.wait()
                worker.stop()
                worker.stop(hard=hard)
                await running
    assert "the last claim was not answered" in caplog.text
