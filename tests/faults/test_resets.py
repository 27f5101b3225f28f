"""Connections that are reset at any byte, under both event loops: a caller sees an answer or an outage, never more."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import urlsplit

import pytest
import uvloop
from redis.asyncio import Connection

from callsheet.kernel.errors import CallsheetError, Outage, StoreUnavailable
from callsheet.kernel.job import NewJob
from callsheet.objects.credentials import Credentials, HeldCredentials
from callsheet.objects.s3 import S3Objects
from callsheet.objects.s3_wire import Bucket
from callsheet.objects.storage_breaker import StorageBreaker
from callsheet.store import store_from_url
from callsheet.worker.remote.caller import Caller
from callsheet.worker.remote.credentials import Credentials as WorkerCredentials
from callsheet.worker.remote.options import RemoteOptions
from tests import stores

from .resetting import ResettingProxy, resetting

CALLS = 300
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class NeverOpen(StorageBreaker):
    """A breaker that admits every call."""

    def check(self, doing: str) -> None:
        """Accept the connection unchecked."""


def many_limits() -> Iterator[int | None]:
    """Yield byte limits: none, within the greeting, and within later answers."""
    return itertools.cycle([0, 1, 7, 40, 100, 300, 333, 360, 400, 450, 500, 700, 1_000, 2_000, 5_000])


def run(loop: str, work: Awaitable[None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(work)  # type: ignore[arg-type]


async def leaks_of(call: Callable[[], Awaitable[object]], proxy: ResettingProxy) -> list[BaseException]:
    """Call until the proxy has reset many connections; yield errors that are neither an answer nor an outage."""
    leaks: list[BaseException] = []
    while proxy.resets < CALLS:
        outcomes = await asyncio.gather(*(call() for _ in range(4)), return_exceptions=True)
        leaks += [e for e in outcomes if isinstance(e, BaseException) and not isinstance(e, Outage)]
        await asyncio.sleep(0)
    return leaks


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", ["postgres", "redis"])
def test_a_store_whose_connections_are_reset_is_away(name: str, loop: str) -> None:
    url = stores.fresh_url(name)
    place = urlsplit(url)
    assert place.port is not None

    async def work() -> None:
        direct = store_from_url(url)
        await direct.migrate()
        await direct.open()
        await direct.close()
        with resetting(place.hostname or "", place.port or 0, many_limits()) as proxy:
            there = place._replace(netloc=place.netloc.replace(f":{place.port}", f":{proxy.port}"))
            store = store_from_url(there.geturl())

            async def call() -> None:
                await store.open()
                await store.enqueue([NewJob(str(uuid.uuid4()), "work")])
                await store.events({"00000000-0000-4000-8000-000000000001": 0}, 10)

            leaks = await leaks_of(call, proxy)
            await store.close()
        assert leaks == []

    run(loop, work())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_redis_connection_that_closes_before_a_write_is_an_outage(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under uvloop the driver raises a plain RuntimeError here, each time; the proxy resets connections at random."""
    send = Connection.send_packed_command

    async def close_and_send(self: Connection, *args: object, **options: object) -> None:
        if isinstance(writer := vars(self)["_writer"], asyncio.StreamWriter):
            writer.transport.abort()
            await asyncio.sleep(0)
        await send(self, *args, **options)  # type: ignore[arg-type]

    async def work() -> None:
        store = store_from_url(stores.fresh_url("redis"))
        await store.open()
        monkeypatch.setattr(Connection, "send_packed_command", close_and_send)
        with pytest.raises(StoreUnavailable):
            await store.get(["00000000-0000-4000-8000-000000000001"])
        with pytest.raises(StoreUnavailable):
            await store.enqueue([NewJob(str(uuid.uuid4()), "work")])
        monkeypatch.undo()
        await store.close()

    run(loop, work())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_whose_connections_are_reset_is_away(loop: str) -> None:
    async def work() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 600\r\nConnection: close\r\n\r\n"
            )
            writer.write(b"{" + b" " * 598 + b"}")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with resetting("127.0.0.1", port, many_limits()) as proxy:
            url = f"http://127.0.0.1:{proxy.port}"
            caller = Caller(url, WorkerCredentials(RemoteOptions(url, "t" * 40), "w1"), lambda: None)
            worker = await leaks_of(lambda: caller.call("claim", {}), proxy)
            await caller.close()
            proxy.resets = 0
            held = HeldCredentials(Credentials("key", "a-secret"))
            objects = S3Objects(Bucket("media", url, "us-east-1"), held, breaker=NeverOpen())
            storage = await leaks_of(lambda: objects.begin_multipart("x", part_bytes=5 << 20), proxy)
            await objects.close()
        server.close()
        assert worker == []
        assert [e for e in storage if not isinstance(e, CallsheetError)] == []

    run(loop, work())
