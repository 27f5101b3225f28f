"""Tickets for browsers: one use, one stream, one minute."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from callsheet.http import tickets
from callsheet.http.keys import ApiKeys
from callsheet.http.problems import Problem
from tests.http.live import Live, frames, problem


async def made(live: Live, path: str) -> dict[str, Any]:
    answer = await live.client.post(path)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_ticket_opens_its_stream_once(live: Live) -> None:
    job_id = await live.job()
    ticket = await made(live, f"/v1/jobs/{job_id}/events/ticket")
    assert ticket["expires_in_s"] <= 60
    async with live.bare() as browser:
        async with browser.stream("GET", ticket["url"]) as answer:
            assert (await anext(frames(answer))).data["job"]["job_id"] == job_id
        problem(await browser.get(ticket["url"]), 401, "unauthorized")


async def test_of_many_that_use_a_ticket_at_once_one_wins(live: Live) -> None:
    job_id = await live.job()
    await live.client.post(f"/v1/jobs/{job_id}/cancel")
    ticket = await made(live, f"/v1/jobs/{job_id}/events/ticket")
    async with live.bare() as browser:
        answers = await asyncio.gather(*(browser.get(ticket["url"]) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200, *[401] * 19]


async def test_a_ticket_of_a_clock_that_was_ahead_is_over(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, ahead = await live.job(), await live.engine.store.now() + 6 * 3_600_000

    async def wrong() -> int:
        return ahead

    with monkeypatch.context() as clock:
        clock.setattr(live.engine.store, "now", wrong)
        once, again = [await made(live, f"/v1/jobs/{job_id}/events/ticket") for _ in range(2)]
    async with live.bare() as browser:
        problem(await browser.get(once["url"]), 401, "unauthorized")
    ticket = again["url"].partition("ticket=")[2].partition("&")[0]
    (document,) = await live.engine.store.documents(tickets.KIND, tickets.window_of(ticket))
    subject = json.loads(document.body)["subject"]
    with pytest.raises(Problem, match="too old"):
        await tickets.redeem_again(live.engine.store, ticket, subject, "me")


async def test_a_ticket_ends_after_a_minute(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tickets.LIFE_S <= 60
    job_id = await live.job()
    monkeypatch.setattr(tickets, "LIFE_S", 0)
    ticket = await made(live, f"/v1/jobs/{job_id}/events/ticket")
    async with live.bare() as browser:
        problem(await browser.get(ticket["url"]), 401, "unauthorized")


async def test_a_ticket_is_for_one_stream_and_no_other_route(live: Live) -> None:
    one, two = await live.job(), await live.job()
    async with live.bare() as browser:
        for path, other in (
            (f"/v1/jobs/{one}/events/ticket", f"/v1/jobs/{two}/events?"),
            (f"/v1/jobs/{one}/events/ticket", f"/v1/events?jobs={one}&"),
            (f"/v1/jobs/{one}/events/ticket", "/v1/events?"),
            (f"/v1/events/ticket?jobs={one}", f"/v1/jobs/{one}/events?"),
            (f"/v1/events/ticket?jobs={one}", f"/v1/events?jobs={one},{two}&"),
            (f"/v1/events/ticket?jobs={one}", "/v1/events?"),
            (f"/v1/jobs/{one}/events/ticket", f"/v1/jobs/{one}?"),
            (f"/v1/jobs/{one}/events/ticket", "/v1/jobs?"),
        ):
            ticket = (await made(live, path))["ticket"]
            problem(await browser.get(f"{other}ticket={ticket}"), 401, "unauthorized")


async def test_a_ticket_that_was_never_made_opens_nothing(live: Live) -> None:
    for text in ["", "x", "%00", "%F0%9F%98%80", "a" * 200, "../../x"]:
        job_id = await live.job()
        problem(await live.client.get(f"/v1/jobs/{job_id}/events?ticket={text}"), 401, "unauthorized")


async def test_a_ticket_is_worth_no_more_than_its_key(live: Live) -> None:
    async with await live.key("a") as client, live.bare() as browser:
        job_id = await live.job(client)
        url = (await client.post(f"/v1/jobs/{job_id}/events/ticket")).json()["url"]
        await ApiKeys(live.engine.store).revoke(client.headers["authorization"].removeprefix("Bearer cs_live_")[:10])
        problem(await browser.get(url), 401, "unauthorized")


async def test_a_ticket_of_a_page_can_be_resumed(live: Live) -> None:
    job = await live.running()
    await live.note(job, "1")
    last = (await live.client.get(f"/v1/jobs/{job.job_id}")).json()["last_event_id"]
    await live.done(job)
    ticket = await made(live, f"/v1/jobs/{job.job_id}/events/ticket")
    async with live.bare() as browser:
        answer = await browser.get(ticket["url"], headers={"Last-Event-ID": last})
    assert [line for line in answer.text.split("\n") if line.startswith("event: ")] == ["event: hello", "event: done"]


async def test_the_store_holds_no_ticket_and_forgets_old_ones(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "SWEEP", 1.0)
    store = live.engine.store
    fresh = await made(live, "/v1/events/ticket")
    monkeypatch.setattr(tickets, "LIFE_S", 0)
    old = await made(live, "/v1/events/ticket")
    stored_text = json.dumps(await store.documents(tickets.KIND))
    assert fresh["ticket"] not in stored_text
    assert old["ticket"] not in stored_text
    assert len(await store.documents(tickets.KIND)) == 2
    await made(live, "/v1/events/ticket")
    assert len(await store.documents(tickets.KIND)) == 2  # the old one has gone, the newest has come


async def test_a_stream_opened_by_a_ticket_ends_with_its_key(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "callsheet.access")
    monkeypatch.setattr("callsheet.http.sse.RECHECK_S", 0.05)
    monkeypatch.setattr("callsheet.http.sse.PING_S", 0.02)
    async with await live.key("a") as client:
        await live.job(client)
        url = (await client.post("/v1/events/ticket")).json()["url"]
        key_id = client.headers["authorization"].removeprefix("Bearer cs_live_")[:10]
    async with live.bare() as browser, browser.stream("GET", url) as answer:
        stream = frames(answer)
        await anext(stream)
        await ApiKeys(live.engine.store).revoke(key_id)
        async with asyncio.timeout(60):
            assert [frame async for frame in stream] == []
    (told,) = [record for record in caplog.records if record.getMessage().startswith("GET /v1/events 200")]
    assert told.fields["key"] == key_id  # type: ignore[attr-defined]
