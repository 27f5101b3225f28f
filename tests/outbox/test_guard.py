from __future__ import annotations

import asyncio
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.kernel.errors import InvalidInput
from callsheet.net.guard import (
    BlockedTarget,
    InvalidTarget,
    Rules,
    SystemResolver,
    addresses_of,
    is_public,
    networks,
    target_of,
)
from callsheet.net.guarded_client import GuardedClient, TlsFailed
from callsheet.outbox import Endpoints
from callsheet.outbox.attempt import Attempts
from callsheet.outbox.decide import attempts_in
from tests.outbox.certificate import certificate
from tests.outbox.kit import add_events, event
from tests.outbox.sink import CALM, QUICK, RULES, Sink, answer

INNER = [
    "0.0.0.0", "0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "100.100.100.200",
    "127.0.0.1", "127.1", "127.255.255.254", "127.0.1", "2130706433", "0x7f000001", "0x7F.0.0.1", "0177.0.0.1",
    "017700000001", "0x7f.1", "127.0.0.01", "168.63.129.16", "169.254.0.1", "169.254.169.254", "0xa9fea9fe",
    "2852039166", "0251.0376.0251.0376", "169.254.43518", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "3232235521", "198.18.0.1", "198.19.255.255",
    "198.51.100.7", "203.0.113.9", "224.0.0.1", "224.0.1.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "localhost", "localhost.", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]", "[0:0:0:0:0:ffff:a9fe:a9fe]", "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b::10.0.0.1]", "[64:ff9b:1::1]", "[100::1]", "[2001::1]",
    "[2001:0:7f00:1::]", "[2001:10::1]", "[2001:20::1]", "[2001:2::1]", "[2001:db8::1]", "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]", "[2002:808:808::1]", "[3fff::1]", "[5f00::1]", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]",
    "[fe80::1%25eth0]", "[fe80::1%eth0]", "[fec0::1]", "[ff02::1]", "[ff0e::1]", "[::ffff:0:127.0.0.1]", "[1::1]",
]  # fmt: skip
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "2606:4700::1111",
    "2a00:1450::1",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
]
resolve = SystemResolver(2)


def test_the_table_has_its_sixty_addresses() -> None:
    assert len(set(INNER)) >= 60


@pytest.mark.parametrize("host", INNER)
async def test_an_inner_address_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises((InvalidTarget, BlockedTarget)):
        await addresses_of(target_of(f"https://{host}/hook", Rules()), Rules(), resolve)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
    assert target_of(f"https://{f'[{address}]' if ':' in address else address}/", Rules())


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "https://user@example.org/",
        "https://user:pw@example.org/",
        "https://@example.org/",
        "https://example.org:22/",
        "https://example.org:6379/",
        "https://example.org:0x50/",
        "https://example.org:99999/",
        "https:///path",
        "https://",
        "//example.org/",
        "example.org",
        "https://exa mple.org/",
        "https://example.org/\r\nx: y",
        "https://example.org\\@127.0.0.1/",
        "https://exämple.org/",
        "https://[::1/",
        "https://[v1.x]/",
        "https://a%2eexample/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_",
        "https://" + "a" * 2_050,
    ],
)
def test_a_url_that_is_none_of_ours_is_refused(url: str) -> None:
    with pytest.raises(InvalidTarget):
        target_of(url, Rules())


def test_ports_and_http_are_opened_by_the_operator_alone() -> None:
    assert target_of("https://example.org:8443/", Rules()).port == 8443
    assert target_of("http://example.org/", Rules(http=True)).port == 80
    assert target_of("https://example.org:9000/", Rules(ports=frozenset({9000}))).port == 9000
    with pytest.raises(InvalidTarget):
        target_of("https://example.org/", Rules(ports=frozenset({9000})))
    with pytest.raises(InvalidInput):
        networks(["10.0.0.0/33"])


async def test_one_inner_address_among_public_ones_refuses_the_name() -> None:
    async def mixed(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "2606:4700::1111", "10.0.0.1"]

    with pytest.raises(BlockedTarget):
        await addresses_of(target_of("https://example.org/", Rules()), Rules(), mixed)
    with pytest.raises(BlockedTarget):
        await addresses_of(target_of("https://nowhere.invalid/", Rules()), Rules(), resolve)


async def test_a_name_that_changes_its_mind_reaches_nothing_inside(sink: Sink) -> None:
    """Each query answers otherwise: connections go to the checked address, and each attempt resolves again."""
    requests: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        requests.append(host)
        return ["203.0.113.1" if len(requests) % 2 else "127.0.0.1"]

    documentation = ipaddress.ip_network("203.0.113.0/24")  # stands for the public internet, and goes nowhere
    outlet = GuardedClient(Rules(http=True, networks=(documentation,), any_port=True), QUICK, resolve=rebinding)
    for _ in range(4):
        with pytest.raises(Exception, match=r"no connection|not public"):
            await outlet.post(f"http://rebinding.example:{sink.port}/", b"{}", {})
    assert (len(requests), sink.connections) == (4, 0)


async def test_a_connection_that_ended_up_elsewhere_is_cut_before_a_byte_is_sent(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    real = loop.create_connection

    async def astray(protocol: Any, address: str, port: int, **more: Any) -> Any:
        return await real(protocol, "127.0.0.1", port, **more)

    async def elsewhere(host: str, port: int) -> list[str]:
        return ["127.0.0.2"]

    monkeypatch.setattr(loop, "create_connection", astray)
    with pytest.raises(BlockedTarget, match="another address"):
        await GuardedClient(RULES, CALM, resolve=elsewhere).post(f"http://h.example:{sink.port}/", b"{}", {})
    assert not sink.got


async def test_a_blocked_target_looks_like_a_closed_port_to_the_tenant(engine: Engine, endpoints: Endpoints) -> None:
    await endpoints.new_own_secret("acme")
    async with Sink() as closed:
        url = closed.url

    async def inner(host: str, port: int) -> list[str]:
        return ["10.0.0.1"]

    logs = []
    for where, rule, resolver in ((url, RULES, None), ("https://intranet.example/", Rules(), inner)):
        (event_id,) = await add_events(engine, where)
        attempts = Attempts(endpoints, GuardedClient(rule, CALM, resolve=resolver))
        attempt = await attempts.make(await event(engine, event_id))
        entry = attempts_in(attempt.settlement.error)[0]
        logs.append({**entry, "at_ms": 0, "response": "response" in (attempt.settlement.error or "")})
    assert logs[0] == logs[1]
    assert logs[0]["code"] == "unreachable"


async def test_tls_is_checked_against_the_name_and_not_the_address(tmp_path: Path) -> None:
    own_certificate = certificate(tmp_path, "hooks.example")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(own_certificate.chain, own_certificate.key)
    names: list[str | None] = []
    server_side.sni_callback = lambda _sock, name, _context: names.append(name)
    trusting = ssl.create_default_context(cafile=str(own_certificate.chain))
    sink = Sink(answer())
    server = await asyncio.start_server(sink._serve, "127.0.0.1", 0, ssl=server_side)
    sink._tasks = set()
    port = server.sockets[0].getsockname()[1]

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    rules = Rules(networks=RULES.networks, any_port=True)
    async with server:
        outlet = GuardedClient(rules, CALM, resolve=here, tls=trusting)
        assert (await outlet.post(f"https://hooks.example:{port}/", b"{}", {})).status == 200
        assert names == ["hooks.example"]
        with pytest.raises(TlsFailed):
            await outlet.post(f"https://other.example:{port}/", b"{}", {})
        with pytest.raises(TlsFailed):
            await GuardedClient(rules, CALM, resolve=here).post(f"https://hooks.example:{port}/", b"{}", {})
