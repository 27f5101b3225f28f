"""Followers of a live job, and their starting points.

Windows, tickets that survive a reconnection, and ids of other makers.
"""

from __future__ import annotations

import contextlib

import pytest

from callsheet.contracts.aura import routes
from callsheet.http import tickets
from callsheet.kernel import commands
from callsheet.studio import mount
from tests import stores
from tests.http.live import ADMIN, Live, frames, problem, serving
from tests.http.test_sessions import signed_in

from .conftest import running, through_all_stages
from .test_sse import read

EXAMPLE = "1704067200000-5"  # the document's own


async def test_two_windows_of_one_user_stay_and_a_newer_one_of_the_same_window_wins(live: Live) -> None:
    job = await running(live)
    path = f"/api/jobs/{job.job_id}/events"
    async with contextlib.AsyncExitStack() as stack:
        one, two, again = [
            frames(await stack.enter_async_context(live.client.stream("GET", path, params={"window": name})))
            for name in ("left", "right", "left")
        ]
        assert (await anext(two)).event == (await anext(again)).event == "job-status"
        assert {f.event async for f in one} <= {"job-status"}, "its window has a newer one: it was ended"
        await live.engine.settle([commands.cancel(job, "")])
        assert [f.event async for f in two][-1] == [f.event async for f in again][-1] == "job-cancelled"


@pytest.mark.parametrize("name", ["a b", "x" * 65, "a\nb", "é"])
async def test_a_window_has_a_plain_name(live: Live, name: str) -> None:
    job = await running(live)
    answer = await live.client.get(f"/api/jobs/{job.job_id}/events", params={"window": name})
    problem(answer, 422, "validation_failed")


async def url_of(live: Live, job_id: str) -> str:
    answer = await live.client.post(f"/api/jobs/{job_id}/events/ticket")
    assert answer.status_code == 201
    return str(answer.json()["url"])


async def test_a_ticket_survives_a_reconnection_of_the_same_client(live: Live) -> None:
    job = await running(live)
    url = await url_of(live, job.job_id)
    async with live.bare() as browser:
        async with browser.stream("GET", url) as answer:
            first = await anext(frames(answer))
        await live.engine.settle([commands.cancel(job, "")])
        async with browser.stream("GET", url, headers={"Last-Event-ID": first.id}) as answer:
            assert answer.status_code == 200
            rest = [f async for f in frames(answer)]
        assert first not in rest
        assert rest[-1].event == "job-cancelled"
        over = await browser.get(url, headers={"Last-Event-ID": rest[-1].id})
        assert over.status_code == 204, "EventSource comes back once more and is told to stay away"


async def test_another_client_cannot_use_a_ticket_that_was_used(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.cancel(job, "")])
    url = await url_of(live, job.job_id)
    async with live.bare() as browser:
        assert (await browser.get(url, headers={"User-Agent": "theirs"})).status_code == 200
        problem(await browser.get(url, headers={"User-Agent": "another"}), 401, "unauthorized")


async def test_a_ticket_is_first_used_within_a_minute(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await running(live)
    monkeypatch.setattr(tickets, "LIFE_S", 0)
    url = await url_of(live, job.job_id)
    async with live.bare() as browser:
        problem(await browser.get(url), 401, "unauthorized")


async def test_a_client_that_was_away_for_long_needs_a_new_ticket(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await running(live)
    await live.engine.settle([commands.cancel(job, "")])
    monkeypatch.setattr(tickets, "RETURN_S", 0)
    url = await url_of(live, job.job_id)
    async with live.bare() as browser:
        assert (await browser.get(url)).status_code == 200
        problem(await browser.get(url), 401, "unauthorized")


async def test_each_ticket_is_a_window_of_its_own(live: Live) -> None:
    job = await running(live)
    async with live.bare() as browser, contextlib.AsyncExitStack() as stack:
        one, two = [
            frames(await stack.enter_async_context(browser.stream("GET", await url_of(live, job.job_id))))
            for _ in range(2)
        ]
        await live.engine.settle([commands.cancel(job, "")])
        assert [f.event async for f in one][-1] == [f.event async for f in two][-1] == "job-cancelled"


async def test_a_session_opens_a_stream_and_each_session_is_a_window_of_its_own() -> None:
    async with serving(stores.fresh_url("sqlite"), routers=[routes.router, mount.router]) as live:
        job = await running(live)
        path = f"/api/jobs/{job.job_id}/events"
        async with contextlib.AsyncExitStack() as stack:
            streams = []
            for _ in range(2):
                browser = await stack.enter_async_context(signed_in(live, ADMIN))
                answer = await stack.enter_async_context(browser.stream("GET", path))
                assert answer.status_code == 200
                streams.append(frames(answer))
                assert (await anext(streams[-1])).event == "job-status"
            await live.engine.settle([commands.cancel(job, "")])
            ends = [[f.event async for f in reading][-1] for reading in streams]
        assert ends == ["job-cancelled", "job-cancelled"]


@pytest.mark.parametrize("unknown", [EXAMPLE, "x", "9999999999999-999999"])
async def test_an_unknown_id_on_an_ended_job_gets_the_present_state_and_the_end(live: Live, unknown: str) -> None:
    job = await running(live)
    await through_all_stages(live, job)
    whole = await read(live, job.job_id)
    assert await read(live, job.job_id, unknown) == whole[-2:]
    assert [f.event for f in whole[-2:]] == ["job-status", "job-completed"]


async def test_the_documents_own_example_id_gets_the_present_state(live: Live) -> None:
    """Callsheet assigns the counter of an event id; the time comes from the event.

    It is from another server, or from another job.
    """
    job = await running(live)
    await live.engine.settle([commands.advance(job, "Voice"), commands.progress(job, 25)])
    path = f"/api/jobs/{job.job_id}/events"
    async with live.client.stream("GET", path, headers={"Last-Event-ID": EXAMPLE}) as answer:
        first = await anext(frames(answer))
    assert (first.event, first.data["stage"], first.data["percent"]) == ("job-status", "Voice", 25)


async def test_an_empty_header_does_not_hide_the_query(live: Live) -> None:
    job = await running(live)
    await through_all_stages(live, job)
    whole = await read(live, job.job_id)
    query, headers = {"lastEventId": whole[-3].id}, {"Last-Event-ID": ""}
    answer = await live.client.get(f"/api/jobs/{job.job_id}/events", params=query, headers=headers)
    assert answer.text.count("event: ") == 2
