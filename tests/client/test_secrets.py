"""Allowed redirects of the client, and secrets that it never prints: its key, and credentials in a URL."""

from __future__ import annotations

import logging

import httpx2
import pytest

from callsheet.client import Client, ServerUnreachable
from callsheet.kernel.errors import InvalidInput
from tests.client.conftest import QUICK
from tests.client.scripted import CUT, job, problem, scripted, told

KEY = "cs_live_a-secret-that-must-not-be-seen"
IMPATIENT = QUICK._replace(retry_for_s=0.05, reconnect_for_s=0.05)


@pytest.mark.parametrize(
    "url", ["", "ftp://h", "127.0.0.1:8484", "http://user:pw@h", "http://h?key=pw", "http://h#pw", "http://h:pw/"]
)
def test_a_url_that_cannot_be_right_is_refused_without_telling_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_URL", "nonsense")
    with pytest.raises(InvalidInput) as excinfo:
        Client(url)
    assert "pw" not in str(excinfo.value)


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY} ", f"{KEY}ü", f"{KEY}\0"])
def test_a_key_with_odd_characters_is_refused_without_telling_it(key: str) -> None:
    with pytest.raises(InvalidInput) as excinfo:
        Client("http://127.0.0.1:1", key)
    assert KEY not in f"{excinfo.value!r} {excinfo.value}"


async def test_the_key_is_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refusal = problem(401, "unauthorized")
    async with scripted(CUT, refusal, told(job())) as server, Client(server.url, KEY, patience=QUICK) as client:
        texts = [repr(client), repr(vars(client)), str(client)]
        with pytest.raises(Exception, match="unauthorized") as excinfo:
            await client.get("j")
        texts += [repr(excinfo.value), str(excinfo.value), repr(vars(excinfo.value))]
        await client.get("j")
    assert {request.headers["authorization"] for request in server.asked} == {f"Bearer {KEY}"}
    assert KEY not in " ".join([*texts, caplog.text])


async def test_no_server_is_told_with_its_address() -> None:
    async with Client("http://127.0.0.1:9", KEY, patience=IMPATIENT) as client:
        with pytest.raises(ServerUnreachable, match=r"http://127\.0\.0\.1:9 ") as excinfo:
            await client.get("j")
    assert isinstance(excinfo.value.__cause__, httpx2.ConnectError)
