"""Whoever signs out, or whose key is revoked, hears nothing more: open streams end too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx2
import pytest

from callsheet.asgi import ROUTERS
from callsheet.http import sse
from callsheet.http.keys import ApiKeys
from tests import stores
from tests.http.live import Live, serving

PROOF = {"X-Callsheet-Studio": "1", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture(params=stores.THREE)
async def live(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    async with serving(stores.fresh_url(request.param), routers=ROUTERS) as live:
        yield live


@pytest.fixture
def for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock triggers a check of the store: only an event can end a stream."""
    monkeypatch.setattr(sse, "RECHECK_S", 3600.0)


@contextlib.asynccontextmanager
async def signed_in(live: Live, key: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with live.bare() as client:
        answer = await client.post("/studio/session", json={"key": key}, headers=PROOF)
        assert answer.status_code == 201, answer.text
        yield client


@contextlib.asynccontextmanager
async def listening(client: httpx2.AsyncClient, path: str) -> AsyncIterator[asyncio.Task[None]]:
    """Open a stream and wait for its first frame; the task ends when the server ends it."""
    async with client.stream("GET", path) as answer:
        assert answer.status_code == 200, await answer.aread()
        lines = answer.aiter_lines()
        while not (await anext(lines)).startswith("event:"):
            pass

        async def rest() -> None:
            async for _ in lines:
                pass

        task = asyncio.create_task(rest())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_signing_out_ends_the_streams_of_this_session_alone(live: Live, for_ever: None) -> None:
    key = await live.text("acme")
    async with signed_in(live, key) as one, signed_in(live, key) as other:
        ticket = (await one.post("/v1/events/ticket", headers=PROOF)).json()["url"]
        async with (
            listening(one, "/v1/events?jobs=*") as first,
            listening(one, ticket) as by_ticket,
            listening(other, "/v1/events?jobs=*") as second,
        ):
            assert (await one.delete("/studio/session", headers=PROOF)).status_code == 204
            async with asyncio.timeout(60):
                await asyncio.gather(first, by_ticket)
            assert not second.done()
        assert (await one.get("/v1/events?jobs=*")).status_code == 401


async def test_a_ticket_of_a_session_ends_with_it(live: Live) -> None:
    async with signed_in(live, await live.text("acme")) as client, live.bare() as later:
        ticket = (await client.post("/v1/events/ticket", headers=PROOF)).json()["url"]
        await client.delete("/studio/session", headers=PROOF)
        async with later.stream("GET", ticket) as answer:
            assert answer.status_code == 401


async def test_a_revoked_key_ends_its_streams(live: Live, for_ever: None) -> None:
    key = await live.text("acme")
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        signed_in(live, key) as browser,
        httpx2.AsyncClient(base_url=live.url, headers=headers) as program,
        listening(browser, "/v1/events?jobs=*") as first,
        listening(program, "/v1/events?jobs=*") as second,
    ):
        (result,) = await ApiKeys(live.engine.store).list()
        assert (await live.client.delete(f"/v1/keys/{result.key_id}")).is_success
        async with asyncio.timeout(60):
            await asyncio.gather(first, second)


async def test_a_session_that_ended_elsewhere_ends_its_streams(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "RECHECK_S", 0.05)
    async with signed_in(live, await live.text("acme")) as client, listening(client, "/v1/events?jobs=*") as stream:
        store = live.engine.store
        for document in await store.documents("studio_session"):  # as another process does
            await store.delete_document("studio_session", document.id)
        async with asyncio.timeout(60):
            await stream
