"""The closed set of answers: which statuses are answers, which are retried, and which end the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from callsheet.cli.testkit.proxy import Answered, Asked, Fate, FaultProxy, page, problem
from callsheet.kernel.errors import InvalidInput
from callsheet.worker.remote import RemoteOptions, ServerAway, ServerRefused
from callsheet.worker.remote import caller as caller_module
from callsheet.worker.remote.caller import Caller, pause, proxy_of, read
from callsheet.worker.remote.credentials import Credentials
from tests.time_limits import within

JSON = {"content-type": "application/json"}
STOPS = (400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 426, 301, 308)
AGAIN = (408, 425, 429, 500, 502, 503, 504, 520, 302, 307)
TOKEN = "a-token-that-must-not-be-told"


def caller(url: str) -> Caller:
    return Caller(url, Credentials(RemoteOptions(url, TOKEN), "w1"), lambda: None)


@pytest.mark.parametrize("status", STOPS)
@pytest.mark.parametrize("body", [b'{"code":"x","detail":"why"}', b"<html>", b"", b"[1]", b'"text"'])
def test_a_final_answer_stops(status: int, body: bytes) -> None:
    with pytest.raises(ServerRefused) as excinfo:
        read(status, JSON, body)
    assert excinfo.value.status == status


@pytest.mark.parametrize("status", AGAIN)
@pytest.mark.parametrize("body", [b'{"code":"x"}', b"<html>"])
def test_trouble_is_asked_again(status: int, body: bytes) -> None:
    with pytest.raises(ServerAway):
        read(status, JSON, body)


@pytest.mark.parametrize("body", [b"<!doctype html><p>Sign in", b"", b"null", b"[]", b'{"ok":', b"\xff\xfe"])
def test_a_200_that_cannot_be_read_is_asked_again(body: bytes) -> None:
    with pytest.raises(ServerAway, match="no JSON object"):
        read(200, JSON, body)


def test_an_answer_is_its_object() -> None:
    assert read(201, JSON, b'{"ok":true}') == {"ok": True}


DATE = "Wed, 21 Oct 2099 07:28:00 GMT"  # would be judged by this machine's clock


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3.0), ("0", 0.0), ("", 0.0), ("-1", 0.0), ("soon", 0.0), ("99999", 60.0), ("\u0663", 0.0), (DATE, 0.0)],
)
def test_retry_after_counts_in_seconds_only(text: str, seconds: float) -> None:
    with pytest.raises(ServerAway) as excinfo:
        read(503, {"retry-after": text}, b"")
    assert excinfo.value.retry_after_s == seconds


def test_pauses_have_full_jitter_and_honour_the_server() -> None:
    pauses = [pause(5, ServerAway("")) for _ in range(300)]
    assert min(pauses) < 0.7
    assert max(pauses) > 5.5
    assert max(pauses) <= 6.4
    assert min(pause(0, ServerAway("", 7.0)) for _ in range(50)) >= 7.0


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (page(), ServerAway),
        (page(502), ServerAway),
        (problem(503, "store_unavailable"), ServerAway),
        (problem(401, "unauthorized"), ServerRefused),
        (problem(426, "upgrade_required"), ServerRefused),
        (Answered(301, {"Location": "https://elsewhere.invalid"}, b""), ServerRefused),
    ],
)
async def test_each_over_a_real_connection(answer: Answered, raised: type[Exception]) -> None:
    async with FaultProxy.before("http://127.0.0.1:1", lambda _: Fate(instead=answer)) as proxy:
        asking = caller(proxy.url)
        with pytest.raises(raised) as excinfo:
            await asking.call("claim", {"streams": ["x"]})
        await asking.close()
    assert TOKEN not in str(excinfo.value)


async def test_a_server_that_is_not_there_is_away() -> None:
    asking = caller("http://127.0.0.1:9")
    with pytest.raises(ServerAway, match="no answer"):
        await asking.call("claim", {})
    await asking.close()


async def test_an_answer_that_comes_in_drops_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte arrives in time, the whole body does not."""
    monkeypatch.setattr(caller_module, "SLACK_S", 0.5)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        while True:  # a thousand never come
            writer.write(b" ")
            await asyncio.sleep(0.1)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    asking = caller(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with asyncio.timeout(within(3)):
        with pytest.raises(ServerAway, match="within"):
            await asking.call("claim", {}, wait_s=0.5)
    await asking.close()
    server.close()


async def test_patience_ends() -> None:
    async with FaultProxy.before("http://127.0.0.1:1", lambda _: Fate(instead=page(503))) as proxy:
        asking = caller(proxy.url)
        with pytest.raises(ServerAway):
            await asking.patiently("moves", {}, for_s=0.5)
        await asking.close()
        assert proxy.count("moves") >= 2


async def test_a_drain_is_heard_in_any_answer() -> None:
    messages: list[int] = []

    def fate(request: Asked) -> Fate:
        return Fate(instead=Answered(200, JSON, b'{"ok":true,"drain":true}'))

    async with FaultProxy.before("http://127.0.0.1:1", fate) as proxy:
        asking = Caller(proxy.url, Credentials(RemoteOptions(proxy.url, TOKEN), "w1"), lambda: messages.append(1))
        for verb in ("claim", "heartbeats", "moves"):
            await asking.call(verb, {})
        await asking.close()
    assert len(messages) == 3


async def test_a_broken_connection_is_away_whatever_broke() -> None:
    async def slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(slam, "127.0.0.1", 0)
    asking = caller(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with pytest.raises(ServerAway):
        await asking.call("claim", {})
    await asking.close()
    server.close()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RemoteOptions("ftp://x", "t"),
        lambda: RemoteOptions("jobs.example.org", "t"),
        lambda: RemoteOptions("https://user:secret@x", "t"),
        lambda: RemoteOptions("https://x/?token=secret", "t"),
        lambda: RemoteOptions("https://x"),
        lambda: RemoteOptions("https://x", "secret\n"),
        lambda: RemoteOptions("https://x", "t", labels=("a b",)),
        lambda: RemoteOptions("https://x", "t", wait="2m"),
    ],
)
def test_wrong_options_are_told_without_secrets(wrong: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput) as excinfo:
        wrong()
    assert "secret" not in str(excinfo.value)


def test_a_token_is_not_shown() -> None:
    options = RemoteOptions("https://x", TOKEN)
    assert TOKEN not in repr(options) + repr(Credentials(options, "w1"))


def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", "inside.invalid")
    assert proxy_of("https://jobs.invalid") == "http://proxy.invalid:3128"
    assert proxy_of("https://inside.invalid") is None
