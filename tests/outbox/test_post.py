from __future__ import annotations

import asyncio
import gzip
import resource
import time

import pytest

from callsheet.net.guard import Rules
from callsheet.net.guarded_client import Answer, BadAnswer, GuardedClient, Limits, NoAnswer, PostFailed, Unreachable
from tests.outbox.sink import CALM, QUICK, RULES, Behave, Sink, answer, never_accepts, raw, silent
from tests.time_limits import within

OK = b"HTTP/1.1 200 OK\r\n"


async def posted(url: str, limits: Limits, headers: dict[str, str] | None = None) -> Answer:
    client = GuardedClient(RULES, limits)
    try:
        return await client.post(url, b"{}", headers or {})
    finally:
        client.close()


async def post(sink: Sink, *turns: Behave, limits: Limits = CALM) -> object:
    sink.turns = list(turns)
    return await posted(sink.url, limits, {"x": "y"})


async def test_one_that_never_accepts_ends_at_the_deadline() -> None:
    async with never_accepts() as url:
        start = time.monotonic()
        with pytest.raises(Unreachable):
            await posted(url, QUICK)
        assert 0.4 < time.monotonic() - start < within(1.5)


@pytest.mark.parametrize(
    "turn",
    [
        silent,
        raw(OK, b"X: y\r\n", every_s=0.05, times=1000),
        raw(OK + b"Content-Length: 1000\r\n\r\n", b"x", every_s=0.05, times=1000),
        raw(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", every_s=0.05, times=1000),
        raw(b"HTTP/1.1 100 Continue\r\n\r\n", every_s=0.05, times=1000),
    ],
    ids=["no head", "drips its head", "drips its body", "drips chunks", "goes on with 100"],
)
async def test_one_deadline_holds_for_the_whole_answer(sink: Sink, turn: Behave) -> None:
    start = time.monotonic()
    with pytest.raises(NoAnswer):
        await post(sink, turn, limits=QUICK)
    assert 0.4 < time.monotonic() - start < within(1.5)


async def test_an_endless_body_is_cut_off_and_fills_no_memory(sink: Sink) -> None:
    block = b"x" * 65_536
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for head in (b"Content-Length: 10000000000\r\n\r\n", b"\r\n"):
        outcome = await post(sink, raw(OK + head, block, times=160_000), limits=Limits(deadline_s=10))
        assert (outcome.status, len(outcome.body)) == (200, 1024)  # type: ignore[attr-defined]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024


async def test_nothing_is_unpacked(sink: Sink) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    outcome = await post(sink, answer(body=bomb, Content_Encoding="gzip"))
    assert outcome.body == bomb[:1024]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "turn",
    [
        raw(OK, b"X-Header: y\r\n" * 500, times=2_000),
        raw(OK + b"X: " + b"y" * 20_000),
        raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 500, times=2_000),
        raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
        raw(OK + b"Content-Length: -1\r\n\r\n"),
    ],
    ids=["a million headers", "one long header", "100 without end", "ssh", "a negative length"],
)
async def test_a_head_that_is_none_is_refused(sink: Sink, turn: Behave) -> None:
    with pytest.raises(BadAnswer):
        await post(sink, turn, limits=CALM)


async def test_an_answer_that_is_cut_off_is_none(sink: Sink) -> None:
    async def cut(_: Sink, __: object, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 10\r\n\r\nhalf")

    with pytest.raises(BadAnswer):
        await post(sink, cut)


async def test_a_closed_port_and_an_inner_address_are_told_the_same_way(sink: Sink) -> None:
    """Tenants see `unreachable` in both cases: see test_guard for the inner address, attempt.py for the word."""
    async with Sink() as closed:
        url = closed.url
    with pytest.raises(Unreachable) as excinfo:
        await posted(url, CALM)
    assert isinstance(excinfo.value, PostFailed)
    assert "127.0.0.1" not in str(excinfo.value)


async def test_proxies_of_the_environment_are_not_used(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Sink() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        await post(sink, answer())
        assert (proxy.connections, sink.connections) == (0, 1)


async def test_the_host_header_is_the_name_and_the_connection_goes_to_the_address(sink: Sink) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    outlet = GuardedClient(Rules(http=True, networks=RULES.networks, any_port=True), CALM, resolve=resolve)
    await outlet.post(f"http://hooks.example:{sink.port}/a?b=c", b"{}", {})
    assert (sink.got[0].headers["host"], sink.got[0].path) == (f"hooks.example:{sink.port}", "/a?b=c")


async def test_the_next_address_is_tried_when_one_is_closed(sink: Sink) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.9", "::1", "127.0.0.1"]

    outcome = await GuardedClient(RULES, CALM, resolve=resolve).post(f"http://hooks.example:{sink.port}/", b"{}", {})
    assert outcome.status == 200
