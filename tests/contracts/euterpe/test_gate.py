"""A requester's storage endpoint leads to judged addresses only, whatever its name comes to mean meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx2
import pytest

from callsheet.contracts.euterpe.access import s3_objects
from callsheet.contracts.euterpe.locations import Place
from callsheet.contracts.euterpe.models import Storage
from callsheet.contracts.euterpe.tasks import outcome_of
from callsheet.kernel.errors import Outage
from callsheet.net.guard import BlockedTarget, Rules, target_of
from callsheet.net.guarded_proxy import GuardedProxy
from callsheet.objects import HeldCredentials
from callsheet.objects.errors import ClockSkewed, ObjectsUnavailable
from callsheet.worker.signals import Fatal
from tests.outbox.certificate import certificate
from tests.outbox.sink import RULES
from tests.seaweed import ADMIN, BUCKET, s3_server

NAME = "storage.example.org"
ONE_ADDRESS = Rules(http=True, networks=(ipaddress.ip_network("127.0.0.2/32"),), any_port=True)


class Names:
    """A name server whose answers change: the last one stays."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        assert host == NAME
        self.asked += 1
        return [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]]


def place(prefix: str) -> Place:
    return Place("s3", BUCKET, prefix)


async def test_a_storage_is_read_and_written_through_its_gate(tmp_path: Path) -> None:
    prefix, names = f"gate-{uuid.uuid4().hex[:12]}", Names("127.0.0.1")
    port = httpx2.URL(s3_server().endpoint).port
    storage = Storage(endpoint=f"http://{NAME}:{port}")
    data = bytes(range(256)) * 4096 * 20  # more than one part
    (tmp_path / "in").write_bytes(data)
    async with s3_objects(place(prefix), storage, HeldCredentials(ADMIN), RULES, resolve=names) as objects:
        for key, path in (("a", tmp_path / "in"), ("b", tmp_path / "in")):
            await objects.put_file(f"{prefix}/{key}", path)
        await objects.copy(f"{prefix}/a", f"{prefix}/c")
        await objects.get_file(f"{prefix}/c", tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == data
        assert {info.key async for info in objects.list(prefix)} == {f"{prefix}/{key}" for key in "abc"}
        await objects.delete(f"{prefix}/a", f"{prefix}/b", f"{prefix}/c")
    assert names.asked > 1


@contextlib.asynccontextmanager
async def listening(host: str, port: int = 0) -> AsyncIterator[tuple[list[str], int]]:
    """Listen on a port and record its connections."""
    came: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(str(writer.get_extra_info("peername")[0]))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, host, port)
    try:
        yield came, server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_name_that_comes_to_mean_an_inner_address_is_not_connected_to(scheme: str) -> None:
    names = Names("127.0.0.2", "127.0.0.1")  # good when it is judged first, and then never again
    held = HeldCredentials(ADMIN)
    async with listening("127.0.0.1") as (inside, port), listening("127.0.0.2", port) as (outside, _):
        storage = Storage(endpoint=f"{scheme}://{NAME}:{port}")
        with pytest.raises(BlockedTarget) as excinfo:
            async with s3_objects(place("a"), storage, held, ONE_ADDRESS, resolve=names) as objects:
                await objects.get("a/b")
        assert (inside, outside) == ([], [])
        with pytest.raises(BlockedTarget):
            async with s3_objects(place("a"), storage, held, ONE_ADDRESS, resolve=names):
                pass
        assert inside == []
    assert names.asked >= 2
    assert isinstance(outcome_of(excinfo.value, 1), Fatal)


async def test_the_own_requests_of_an_upload_go_through_the_gate_too() -> None:
    names = Names("127.0.0.2", "127.0.0.1")
    async with listening("127.0.0.1") as (inside, port):
        storage = Storage(endpoint=f"http://{NAME}:{port}")
        with pytest.raises(BlockedTarget):
            async with s3_objects(place("a"), storage, HeldCredentials(ADMIN), ONE_ADDRESS, resolve=names) as objects:
                await objects.begin_multipart("a/b", part_bytes=8 * 1024 * 1024)
        assert inside == []


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1/", "http://elsewhere.example.org/", "/", "x"])
async def test_a_gate_leads_to_its_endpoint_alone(endpoint: str) -> None:
    target = target_of(f"http://{NAME}:81/", ONE_ADDRESS)
    async with GuardedProxy(target, ONE_ADDRESS, Names("127.0.0.2")) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(gate.url).port)
        writer.write(f"GET {endpoint} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
        assert gate.blocked_target is not None
        writer.close()


async def test_the_certificate_is_still_checked_by_the_name(tmp_path: Path) -> None:
    """TLS passes through the gate unchanged."""
    own_certificate = certificate(tmp_path, NAME)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(own_certificate.chain, own_certificate.key)
    known = ssl.create_default_context(cafile=str(own_certificate.chain))
    was_said = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        was_said.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_side)
    port = server.sockets[0].getsockname()[1]
    target = target_of(f"https://{NAME}:{port}/", RULES)
    async with server, GuardedProxy(target, RULES, Names("127.0.0.1")) as gate:
        async with httpx2.AsyncClient(proxy=gate.url, verify=known) as client:
            assert (await client.get(f"https://{NAME}:{port}/")).text == "ok"
        assert was_said.is_set()
        async with httpx2.AsyncClient(proxy=gate.url) as stranger:
            with pytest.raises(httpx2.ConnectError):
                await stranger.get(f"https://{NAME}:{port}/")


def test_a_wrong_clock_is_waited_for_and_is_nobodys_refusal() -> None:
    outcome = outcome_of(ClockSkewed("x", provider_code="RequestTimeTooSkewed"), 1)
    assert isinstance(outcome, Outage)
    assert outcome.code == "clock_skewed"
    assert isinstance(outcome_of(ObjectsUnavailable("x"), 1), Outage)
