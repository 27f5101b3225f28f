"""A request is authenticated before its body is read, and a stalled body times out."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from callsheet.asgi import ROUTERS
from callsheet.http.body_pace import Meter, Pace
from callsheet.http.connections import ConnectionCounter, ConnectionLimits
from callsheet.http.json_bodies import read
from callsheet.http.limits import BODY_BYTES
from callsheet.http.middleware import OPEN_BODIES, OPEN_BYTES, EdgeRules
from callsheet.http.routing import RawRoute
from callsheet.objects.errors import ObjectNotFound
from callsheet.studio.session import SignIn
from tests import stores
from tests.http.live import ADMIN, Live, problem, serving
from tests.http.raw import exchange, parts_of
from tests.running_worker import until

NEVER = Pace(600.0, 0)
IMPATIENT = Pace(0.05, 0)
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
OPEN = sorted(OPEN_BODIES)
STUDIO = ("X-Callsheet-Studio: 1", "Sec-Fetch-Site: same-origin")


def head(method: str, path: str, *headers: str, key: str = "", length: int | None = 100) -> bytes:
    """The head of a request for JSON, of which no body follows."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *STUDIO, *headers]
    lines += [f"Content-Length: {length}"] if length is not None else ["Transfer-Encoding: chunked"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([*lines, "", ""]).encode()


def connections_of(live: Live) -> ConnectionCounter:
    connections: ConnectionCounter = live.server._app.state.connections
    return connections


@contextlib.asynccontextmanager
async def site(tmp_path: Path, **edge: Any) -> AsyncIterator[Live]:
    """A server with every route there is."""
    url = f"file://{tmp_path}/objects"
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, objects_url=url, edge=EdgeRules(**edge)) as live:
        yield live


def unsafe_routes() -> Iterator[tuple[str, str]]:
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute):
                yield from ((method, route.path) for method in route.methods or () if method in UNSAFE)


@pytest.mark.parametrize("path", ["/internal/worker/enroll", "/studio/session"])
async def test_a_stranger_s_body_that_stalls_is_not_waited_for(tmp_path: Path, path: str) -> None:
    async with site(tmp_path, bodies=IMPATIENT) as live:
        for start in (b"", b'{"key":'):
            response = await exchange(live, head("POST", path) + start)
            status, headers, body = parts_of(response)
            assert (status, body["code"], headers["connection"]) == (408, "request_timeout", "close")
        await until(lambda: not connections_of(live).connections)


@pytest.mark.parametrize("path", ["/v1/jobs", "/internal/worker/uploads", "/internal/worker/uploads/complete"])
async def test_the_body_of_a_known_client_that_stalls_is_not_waited_for(tmp_path: Path, path: str) -> None:
    async with site(tmp_path, bodies=IMPATIENT) as live:
        for length, start in ((100, b""), (100, b'{"task"'), (None, b'7\r\n{"task"\r\n')):
            status, headers, body = parts_of(await exchange(live, head("POST", path, key=ADMIN, length=length) + start))
            assert (status, body["code"], headers["connection"]) == (408, "request_timeout", "close")


async def test_an_upload_that_stalls_has_a_pace_of_its_own(tmp_path: Path) -> None:
    async with site(tmp_path, bodies=NEVER, uploads=IMPATIENT) as live:
        assert live.state.objects is not None
        signed_url = await live.state.objects.sign_put("outputs/acme/x", 600, size_bytes=100)
        status, _, body = parts_of(await exchange(live, head("PUT", signed_url.url) + b"12345"))
        assert (status, body["code"]) == (408, "request_timeout")
        with pytest.raises(ObjectNotFound):
            await live.state.objects.head("outputs/acme/x")


async def test_a_body_that_trickles_is_too_slow_on_the_whole(tmp_path: Path) -> None:
    async with site(tmp_path, bodies=Pace(600.0, 1e12, 0.0)) as live:
        reader, writer = await asyncio.open_connection(*live.server.address)
        writer.write(head("POST", "/v1/jobs", key=ADMIN))
        with contextlib.suppress(ConnectionError):
            for byte in b'{"task":"chat"':
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            response = await asyncio.wait_for(reader.read(), 60)
            assert parts_of(response)[0] == 408
        writer.close()


async def test_a_body_in_many_pieces_that_come_in_time_is_read(tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in b'{"task":"chat","payload":{}}':
            await asyncio.sleep(0)
            yield bytes([byte])

    async with site(tmp_path, bodies=NEVER) as live:
        answer = await live.client.post("/v1/jobs", content=pieces(), headers={"Content-Type": "application/json"})
        assert answer.status_code == 202


def test_the_meter_counts_pauses_and_the_whole() -> None:
    meter = Meter(Pace(idle_s=10, rate=100, grace_s=20))
    assert meter.patience_s(0) == 10
    meter.add_wait(15)
    assert meter.patience_s(0) == 5  # of the grace
    assert meter.patience_s(1000) == 10  # it has sent enough for ten seconds more
    meter.add_wait(10)
    assert meter.patience_s(0) == -5
    assert meter.patience_s(500) == 0
    assert Meter(Pace(10, 0)).patience_s(0) == 10


@pytest.mark.parametrize("path", OPEN)
async def test_a_stranger_s_body_is_small(tmp_path: Path, path: str) -> None:
    async with site(tmp_path) as live, live.bare() as client:
        for body in (b" " * (OPEN_BYTES + 1), b" " * BODY_BYTES):
            headers = {"Content-Type": "application/json", "X-Callsheet-Studio": "1", "Sec-Fetch-Site": "same-origin"}
            problem(await client.post(path, content=body, headers=headers), 413, "body_too_large")


async def test_every_route_asks_who_is_there_before_it_reads(tmp_path: Path) -> None:
    """Nobody sends a body: whoever waits for one says 408, whoever breaks says 500."""
    routes = sorted(set(unsafe_routes()))
    assert len(routes) > 30
    async with site(tmp_path, bodies=IMPATIENT, uploads=IMPATIENT) as live:
        for method, route in routes:
            path = route.replace("{key:path}", "a/b").replace("{key}", "a").replace("{", "").replace("}", "")
            response = await exchange(live, head(method, path, "Expect: 100-continue"))
            status = int(re.findall(rb"HTTP/1.1 (\d+)", response)[-1])
            if path in OPEN_BODIES:
                assert status == (204 if method == "DELETE" else 408), (method, route, response)
            else:
                assert status in {401, 403, 404}, (method, route, response)
                assert b"100 Continue" not in response


async def test_a_route_that_reads_before_it_asks_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    forgetful = APIRouter(route_class=RawRoute)

    @forgetful.post("/forgets")
    async def forgets(request: Request) -> Response:
        return Response((await read(request, SignIn)).key.get_secret_value())

    @forgetful.get("/looks-at-nothing")
    async def looks(request: Request) -> Response:
        return Response(await request.body())

    async with serving(stores.fresh_url("sqlite"), routers=[forgetful]) as live:
        problem(await live.client.post("/forgets", json={"key": "x"}), 500, "internal")
        assert "reads its body before it knows who asks" in caplog.text
        assert (await live.client.get("/looks-at-nothing")).status_code == 200


async def test_one_address_has_so_many_connections_without_a_key(tmp_path: Path) -> None:
    async with site(tmp_path, connections=ConnectionLimits(10, 3)) as live:
        connections = connections_of(live)
        waiting = [await asyncio.open_connection(*live.server.address) for _ in range(3)]
        await until(lambda: connections.connections == 3)
        status, headers, body = parts_of(await exchange(live, head("GET", "/healthz", length=0)))
        assert (status, body["code"], headers["retry-after"]) == (429, "too_many_requests", "5")
        waiting.pop()[1].close()
        await until(lambda: connections.connections == 2)
        assert (await exchange(live, head("GET", "/healthz", length=0))).startswith(b"HTTP/1.1 200")
        for _, writer in waiting:
            writer.close()
        await until(lambda: connections.connections == 0)


async def test_a_server_has_so_many_connections_without_a_key(tmp_path: Path) -> None:
    async with site(tmp_path, connections=ConnectionLimits(2, 10)) as live:
        waiting = [await asyncio.open_connection(*live.server.address) for _ in range(2)]
        await until(lambda: connections_of(live).connections == 2)
        status, headers, body = parts_of(await exchange(live, head("GET", "/healthz", length=0)))
        assert (status, body["code"], headers["retry-after"]) == (503, "too_many_connections", "5")
        for _, writer in waiting:
            writer.close()


async def test_a_connection_whose_client_is_known_is_no_stranger_s(tmp_path: Path) -> None:
    async with site(tmp_path, connections=ConnectionLimits(2, 2)) as live:
        known = [await asyncio.open_connection(*live.server.address) for _ in range(2)]
        for reader, writer in known:
            writer.write(head("GET", "/v1/jobs", key=ADMIN, length=0))
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        assert connections_of(live).connections == 0
        assert (await live.client.get("/v1/jobs")).status_code == 200
        for _, writer in known:
            writer.close()
