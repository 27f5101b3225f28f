"""What a bad network does to a client of the real server: connections cut at random bytes, and servers that go away."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import callsheet.studio
from callsheet.client import Client, JobEvent, Patience
from callsheet.http.sse import PING_S
from tests import stores
from tests.client.conftest import QUICK, ServerState, at_work
from tests.client.proxy import anywhere, before
from tests.http.live import ADMIN, serving
from tests.time_limits import DEEP

LONGEST = 4_000  # bytes; the head and the hello take about a thousand of them
ENOUGH = 200


async def collected(events: AsyncIterator[JobEvent]) -> list[str]:
    return [event.id async for event in events]


@pytest.mark.parametrize("seed", range(3 if DEEP else 1))
async def test_each_event_comes_once_over_hundreds_of_cuts(site: ServerState, client: Client, seed: int) -> None:
    async with (
        before(site.url, anywhere(seed, LONGEST)) as proxy,
        Client(proxy.url, ADMIN, patience=QUICK) as reader,
    ):
        job_id = (await client.create("chat", {"prompt": "count 1600"})).job_id
        seen = await collected(reader.events(job_id))
        assert seen == await site.event_ids(job_id)
        assert len(seen) == 1604
        assert proxy.cuts >= ENOUGH


async def test_the_events_of_many_jobs_survive_cuts_too(site: ServerState, client: Client) -> None:
    async with (
        before(site.url, anywhere(7, 3 * LONGEST)) as proxy,
        Client(proxy.url, ADMIN, patience=QUICK) as reader,
    ):
        ids = [(await client.create("chat", {"prompt": "count 400"})).job_id for _ in range(3)]
        seen: dict[str, list[str]] = {job_id: [] for job_id in ids}
        async for event in reader.events_of(*ids):
            seen[event.job_id].append(event.id)
        assert seen == {job_id: await site.event_ids(job_id) for job_id in ids}
        assert proxy.cuts >= 20


async def test_a_job_is_made_once_however_often_its_answer_is_lost(idle: ServerState, client: Client) -> None:
    async with (
        before(idle.url, anywhere(1, 1_200)) as proxy,
        Client(proxy.url, ADMIN, patience=QUICK) as other,
    ):
        job_ids = [(await other.create("embed", {"input": str(number)})).job_id for number in range(20)]
        assert proxy.cuts >= 10
    assert [job.job_id async for job in client.list()] == job_ids[::-1]


async def test_a_cancel_whose_answer_is_lost_is_still_a_cancel(idle: ServerState, client: Client) -> None:
    budgets = iter([100, None, None, None])
    async with (
        before(idle.url, lambda: next(budgets)) as proxy,
        Client(proxy.url, ADMIN, patience=QUICK) as other,
    ):
        job_id = (await client.create("embed", {"input": "waits"})).job_id
        assert (await other.cancel(job_id)).status == "canceled"
        assert proxy.cuts == 1


async def test_a_server_may_restart_in_the_middle() -> None:
    url = stores.fresh_url("sqlite")
    seen: list[JobEvent] = []
    async with contextlib.AsyncExitStack() as stack:
        async with serving(url) as live:
            site = ServerState(live)
            await stack.enter_async_context(at_work(site))
            proxy = await stack.enter_async_context(before(live.url))
            client = await stack.enter_async_context(Client(proxy.url, ADMIN, patience=QUICK))
            job_id = (await client.create("chat", {"prompt": "gate 20"})).job_id
            stream = client.events(job_id)
            while len(seen) < 10:
                seen.append(await anext(stream))
        rest = asyncio.create_task(_rest(stream, seen))
        async with serving(url) as live:
            proxy.lead_to(live.url)
            site.gate.set()
            await rest
            site.live = live
            assert [event.id for event in seen] == await site.event_ids(job_id)
            assert (await client.wait(job_id))["text"].endswith("19 ")


async def _rest(stream: AsyncIterator[JobEvent], seen: list[JobEvent]) -> None:
    async for event in stream:
        seen.append(event)  # noqa: PERF401 - what came before a failure counts


async def test_waiting_survives_cuts(site: ServerState, client: Client) -> None:
    async with (
        before(site.url) as proxy,
        Client(proxy.url, ADMIN, patience=QUICK) as other,
    ):
        job_id = (await client.create("chat", {"prompt": "gate 1"})).job_id
        waiting = asyncio.create_task(other.wait(job_id))
        await site.begun.wait()
        for _ in range(5):
            cuts = proxy.cuts
            while proxy.cuts == cuts:
                proxy.cut_all()
                await asyncio.sleep(0.001)
        site.gate.set()
        assert (await waiting)["text"] == "0 "


def test_all_clients_give_a_silent_stream_up_after_three_pings() -> None:
    script = (Path(callsheet.studio.__file__).parent / "static" / "client.js").read_text("utf-8")
    (entry,) = re.findall(r"^export const SILENCE_MS = ([\d_]+);", script, re.MULTILINE)
    assert int(entry) / 1000 == Patience().silence_s == 3 * PING_S
