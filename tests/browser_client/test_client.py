"""client.js under Node against the real server."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from callsheet.client import Client
from callsheet.http.keys import ApiKeys
from tests import stores
from tests.browser_client.node import Outcome, driven
from tests.client.conftest import ServerState, at_work
from tests.client.proxy import anywhere, before
from tests.http.live import ADMIN, serving

NOBODY = "00000000-0000-7000-8000-000000000000"


async def test_jobs_are_created_read_listed_and_canceled(idle: ServerState) -> None:
    async with driven(idle.url, ADMIN) as node:
        result = (await node.ask("create", task="embed", payload={"input": "ü"}, options={"ttlS": 60})).result
        assert (result["task"], result["status"], result["ttl_s"]) == ("embed", "queued", 60)
        job = (await node.ask("get", job=result["job_id"])).result
        assert (job["payload"], job["status"]) == ({"input": "ü"}, "queued")
        second = (await node.ask("create", task="embed", payload={"input": "b"})).result
        page = (await node.ask("list", filter={"limit": 1, "status": "queued"})).result
        assert [job["job_id"] for job in page["jobs"]] == [second["job_id"]]
        rest = (await node.ask("list", filter={"cursor": page["next"], "task": None, "queue": ""})).result
        assert ([job["job_id"] for job in rest["jobs"]], rest["next"]) == ([result["job_id"]], None)
        canceled = (await node.ask("cancel", job=result["job_id"], reason="enough")).result
        assert canceled["status"] == "canceled"


async def test_a_job_is_watched_to_its_end_and_from_any_point(site: ServerState, client: Client) -> None:
    job_id = (await client.create("chat", {"prompt": "count 3"})).job_id
    async with driven(site.url, ADMIN) as node:
        every = await node.ask("watch", job=job_id)
        assert every.ids == await site.event_ids(job_id)
        assert (every.types[-1], every.events[2]["data"], every.error) == ("done", {"text": "0 "}, None)
        assert (await node.ask("watch", job=job_id, after=every.ids[3])).ids == every.ids[4:]
        assert await node.ask("watch", job=job_id, after=every.ids[-1]) == Outcome([])


async def test_an_unknown_id_gets_a_reset_and_then_what_comes(site: ServerState, client: Client) -> None:
    job_id = (await client.create("chat", {"prompt": "gate 1"})).job_id
    await site.begun.wait()
    async with driven(site.url, ADMIN) as node:
        outcome = await node.ask("watch", lambda _: site.gate.set(), job=job_id, after="5-99")
        assert outcome.types == ["reset", "done"]
        assert outcome.events[0]["data"]["job"]["status"] == "running"
        assert (await node.ask("watch", job=job_id, after="5-99")).types == ["reset"]


async def test_each_event_comes_once_over_hundreds_of_cuts(site: ServerState, client: Client) -> None:
    job_id = (await client.create("chat", {"prompt": "count 1600"})).job_id
    async with before(site.url, anywhere(5, 4_000)) as proxy, driven(proxy.url, ADMIN) as node:
        outcome = await node.ask("watch", job=job_id)
        assert outcome.error is None
        assert outcome.ids == await site.event_ids(job_id)
        assert proxy.cuts >= 200


async def test_many_jobs_come_once_over_cuts(site: ServerState, client: Client) -> None:
    ids = [(await client.create("chat", {"prompt": "count 300"})).job_id for _ in range(3)]
    async with before(site.url, anywhere(6, 12_000)) as proxy, driven(proxy.url, ADMIN) as node:
        outcome = await node.ask("many", jobs=[*ids, ids[0]])
        assert outcome.error is None
        for job_id in ids:
            assert [e["id"] for e in outcome.events if e["job_id"] == job_id] == await site.event_ids(job_id)
        assert proxy.cuts >= 15


async def test_all_jobs_can_be_watched_until_the_page_leaves(idle: ServerState, client: Client) -> None:
    job_id = (await client.create("embed", {"input": "waits"})).job_id
    async with driven(idle.url, ADMIN) as node:
        ending: list[asyncio.Task[object]] = []
        outcome = await node.ask(
            "many",
            lambda event: ending.append(asyncio.ensure_future(client.cancel(job_id))) if not ending else None,
            jobs="*",
            stopAt="canceled",
        )
        assert (outcome.types, outcome.error) == (["reset", "canceled"], None)
    await _until_no_stream_is_open(idle)


async def test_a_server_may_restart_in_the_middle() -> None:
    url = stores.fresh_url("sqlite")
    async with contextlib.AsyncExitStack() as stack:
        was_heard = asyncio.Event()
        async with serving(url) as live:
            site = ServerState(live)
            await stack.enter_async_context(at_work(site))
            proxy = await stack.enter_async_context(before(live.url))
            node = await stack.enter_async_context(driven(proxy.url, ADMIN))
            job_id = (await node.ask("create", task="chat", payload={"prompt": "gate 20"})).result["job_id"]
            watching = asyncio.create_task(node.ask("watch", lambda _: was_heard.set(), job=job_id))
            await was_heard.wait()
        async with serving(url) as live:
            proxy.lead_to(live.url)
            site.gate.set()
            outcome = await watching
            site.live = live
            assert outcome.error is None
            assert outcome.ids == await site.event_ids(job_id)


async def test_leaving_and_throwing_end_the_watching(idle: ServerState, client: Client) -> None:
    job_id = (await client.create("embed", {"input": "waits"})).job_id
    async with driven(idle.url, ADMIN) as node:
        assert (await node.ask("watch", job=job_id, stopAt="queued")).error is None
        await _until_no_stream_is_open(idle)
        thrown = (await node.ask("watch", job=job_id, throwAt="queued")).error
        assert thrown is not None
        assert (thrown["name"], thrown["message"]) == ("RangeError", "of the page itself")
        await _until_no_stream_is_open(idle)


async def _until_no_stream_is_open(site: ServerState) -> None:
    async with asyncio.timeout(60):
        while site.live.state.open:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("key", ["", "cs_live_wrong"])
async def test_a_wrong_key_is_told_at_once(idle: ServerState, key: str) -> None:
    async with driven(idle.url, key) as node:
        for verb in ("get", "watch", "many"):
            error = (await node.ask(verb, job=NOBODY, jobs=[NOBODY])).error
            assert error is not None
            assert (error["code"], error["status"], error["ours"]) == ("unauthorized", 401, True)


async def test_refusals_keep_what_was_said(idle: ServerState) -> None:
    async with driven(idle.url, ADMIN) as node:
        for verb in ("get", "cancel", "watch"):
            error = (await node.ask(verb, job=NOBODY)).error
            assert error is not None
            assert (error["code"], error["status"], bool(error["requestId"])) == ("job_not_found", 404, True)
        wrong = (await node.ask("create", task="nothing", payload={})).error
        assert wrong is not None
        assert (wrong["code"], wrong["status"]) == ("unknown_task", 422)


async def test_a_revoked_key_ends_the_watching(idle: ServerState) -> None:
    assert idle.live.state.keys is not None
    text, key = await idle.live.state.keys.create("soon gone")
    async with before(idle.url) as proxy, driven(proxy.url, text) as node:
        job_id = (await node.ask("create", task="embed", payload={"input": "waits"})).result["job_id"]
        seen = asyncio.Event()
        watching = asyncio.create_task(node.ask("watch", lambda _: seen.set(), job=job_id))
        await seen.wait()
        assert await idle.live.state.keys.revoke(key.key_id)
        proxy.cut_all()
        outcome = await watching
        assert outcome.types == ["queued"]
        assert outcome.error is not None
        assert outcome.error["code"] == "unauthorized"


async def test_too_many_requests_are_sent_again_when_the_server_says(idle: ServerState) -> None:
    text, _ = await ApiKeys(idle.live.engine.store).create("slow", rate=1.0)
    async with driven(idle.url, text, retryForMs=0) as hasty:
        outcomes = [await hasty.ask("list") for _ in range(4)]
        error = next(outcome.error for outcome in outcomes if outcome.error)
        assert (error["status"], error["retryAfterS"] >= 1) == (429, True)
    async with driven(idle.url, text) as patient:
        assert [(await patient.ask("list")).error for _ in range(2)] == [None, None]
