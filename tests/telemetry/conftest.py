from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from callsheet import Callsheet, Worker
from callsheet.worker import health as health_module
from callsheet.worker.health import Health
from tests import stores
from tests.running_worker import running_worker, until

HOST = "127.0.0.1"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
async def app() -> AsyncIterator[Callsheet]:
    async with Callsheet(stores.fresh_url("sqlite")) as app:
        yield app


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise timeouts, so that a busy machine cuts off no caller."""
    monkeypatch.setattr(health_module, "REQUEST_S", 60.0)


@contextlib.asynccontextmanager
async def working(app: Callsheet, **options: Any) -> AsyncIterator[tuple[Worker, Health]]:
    """A worker beside the test, ready to claim, with a health server; it stays ready for three polls."""
    worker = app.worker(**{"poll": 60.0, "grace": 2.0, "drain": 5.0, **options})
    async with Health(worker, HOST, 0) as health, running_worker(worker):
        await until(lambda: worker.ready)
        yield worker, health


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def send(port: int, data: bytes) -> bytes:
    """Bytes to the server, and all that comes back until it closes the connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
            return await reader.read()
        return b""
    finally:
        writer.close()


async def ask(health: Health, path: str, method: str = "GET") -> Reply:
    answer = await send(health.port, f"{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return Reply(int(first.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in rest)}, body)


async def scrape(health: Health) -> Samples:
    """Every callsheet sample, by its name and its labels other than the scope's."""
    reply = await ask(health, "/metrics")
    assert reply.status == 200
    return {
        (s.name, frozenset((k, v) for k, v in s.labels.items() if not k.startswith("otel_"))): s.value
        for family in text_string_to_metric_families(reply.body.decode())
        for s in family.samples
        if s.name.startswith("callsheet_")
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)
