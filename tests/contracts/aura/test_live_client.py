"""The client of live jobs: its pauses, what it makes of events, and cut connections to a real server."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import tracemalloc
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import callsheet.studio
from callsheet.client import Client, LiveEvent, LiveState, NoSuchJob, ServerUnreachable, Unauthorized
from callsheet.client import live as live_client
from callsheet.client.live import ATTEMPTS, FIRST_S, LONGEST_S, SILENCE_S, follow_live
from callsheet.client.patience import Patience
from callsheet.client.transport import Transport
from callsheet.contracts.aura import routes
from callsheet.contracts.aura.stream import KEEPALIVE_S
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent
from callsheet.net.backoff import pause_after
from tests import stores
from tests.client.proxy import anywhere, before
from tests.client.scripted import scripted, stream
from tests.http.live import ADMIN, Live, serving

from .conftest import running, through_all_stages


def test_the_backoff_is_the_contracts() -> None:
    assert [pause_after(n, FIRST_S, LONGEST_S) for n in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert ATTEMPTS == 5


def _event(type: str, **data: Any) -> LiveEvent:
    return LiveEvent("", type, data)


def test_progress_never_falls_whatever_the_order() -> None:
    reports = list(range(0, 101, 5))
    for seed in range(20):
        random.Random(seed).shuffle(reports)
        state = LiveState()
        percents: list[float] = []
        for percent in reports:
            taken = state.merge(_event("step-progress", step="Rendering", phase="render", progressPct=percent))
            assert taken is (percent >= max([0, *percents]))
            percents.append(state.percent)
        assert percents == sorted(percents)
        assert percents[-1] == 100
        assert state.rejected > 0


def test_state_is_merged_from_events() -> None:
    state = LiveState()
    state.merge(_event("job-status", status="Running", stage="Script", percent=5))
    state.merge(_event("step-progress", step="Voice", phase="tts", progressPct=30, message="speaking"))
    state.merge(_event("warning", message="no voice", step="Voice"))
    assert (state.status, state.stage, state.phase, state.percent) == ("Running", "Voice", "tts", 30)
    assert state.warnings == ["no voice"]
    state.merge(_event("step-progress", step="Voice", phase="tts", progressPct=35, message="scene 7 of 7"))
    state.merge(_event("step-status", step="Voice", phase="tts", status="completed"))
    assert state.message == "scene 7 of 7"
    state.merge(_event("step-status", step="Visuals", phase="visuals", status="started"))
    assert (state.stage, state.message) == ("Visuals", ""), "what was said of the voice is not true of the pictures"
    state.merge(_event("job-completed", status="Done", output={"a": 1}, stage="Complete"))
    state.merge(_event("job-status", status="Running", stage="Voice", percent=30))  # late
    assert (state.status, state.percent, state.output, state.ended) == ("Done", 100, {"a": 1}, True)


async def _followed(url: str, job_id: str, pauses: list[float], key: str = ADMIN) -> list[LiveEvent]:
    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async with Transport(url, key, Patience(connect_s=20, silence_s=60)) as transport:
        return [event async for event in follow_live(transport, job_id, pause=pause)]


async def test_two_hundred_cuts_lose_and_double_nothing(live: Live, url: str) -> None:
    limit_ms = 200 if url.startswith("sqlite") else 30
    job = await running(live)
    pauses: list[float] = []
    async with before(live.url, anywhere(7, 4_000)) as proxy:
        following = asyncio.create_task(_followed(proxy.url, job.job_id, pauses))
        n = 0
        while proxy.cuts < limit_ms and not following.done():
            n += 1
            await live.engine.settle(
                [commands.note(job, NewEvent("warning", "Voice", json.dumps({"message": str(n)})))]
            )
            await asyncio.sleep(0.005)
        await live.engine.settle([commands.succeed(job)])
        proxy.budget = lambda: None
        proxy.cut_all()
        outcome = await asyncio.wait_for(following, 60)
    assert [e.data["message"] for e in outcome if e.type == "warning"] == [str(m) for m in range(1, n + 1)]
    assert outcome[-1].type == "job-completed"
    assert len({e.id for e in outcome}) == len(outcome)
    assert set(pauses) <= {1.0, 2.0, 4.0, 8.0, 16.0}


async def test_a_server_that_stays_away_is_given_up_after_five(live: Live) -> None:
    job = await running(live)
    pauses: list[float] = []
    with pytest.raises(ServerUnreachable):
        await _followed("http://127.0.0.1:9", job.job_id, pauses)
    assert pauses == [1, 2, 4, 8, 16]


async def test_a_connection_without_a_keepalive_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a client with a patience of one minute on other streams."""
    monkeypatch.setattr(live_client, "SILENCE_S", 0.2)
    end = b'id: 1-9\nevent: job-completed\ndata: {"status":"Done"}\n\n'
    first = b'id: 1-5\nevent: warning\ndata: {"message":"one"}\n\n'
    pauses: list[float] = []
    async with scripted(stream(first, hang=True), stream(b": keepalive\n\n", hang=True), stream(end)) as server:
        outcome = await asyncio.wait_for(_followed(server.url, "j", pauses), 30)  # less than that patience
    assert [event.type for event in outcome] == ["warning", "job-completed"]
    assert pauses == [1, 2]
    assert [parse_qs(urlsplit(request.path).query).get("lastEventId") for request in server.asked] == [
        None,
        ["1-5"],
        ["1-5"],
    ]


def test_both_clients_bear_two_and_a_half_keepalives_of_silence() -> None:
    script = (Path(callsheet.studio.__file__).parent / "static" / "live.js").read_text("utf-8")
    (in_the_page,) = re.findall(r"LIVE_SILENCE_MS = ([\d_]+);", script)
    assert int(in_the_page) / 1000 == SILENCE_S == 2.5 * KEEPALIVE_S


async def test_permanent_errors_are_not_tried_again(live: Live) -> None:
    job = await running(live)
    pauses: list[float] = []
    with pytest.raises(NoSuchJob):
        await _followed(live.url, "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1", pauses)
    with pytest.raises(Unauthorized):
        await _followed(live.url, job.job_id, pauses, key="wrong")
    assert pauses == []


async def test_the_client_follows_a_live_job(live: Live) -> None:
    job = await running(live)
    await through_all_stages(live, job)
    state = LiveState()
    async with Client(live.url, ADMIN) as client:
        async for event in client.live(job.job_id):
            state.merge(event)
    assert (state.status, state.percent, state.output) == ("Done", 100, {"video": "v.mp4"})


async def test_a_watcher_holds_no_more_after_ten_thousand_events() -> None:
    async with serving(stores.fresh_url("sqlite"), routers=[routes.router]) as live:
        job, state, seen, sizes = await running(live), LiveState(), 0, []
        writing = asyncio.create_task(_write(live, job, 10_000))
        tracemalloc.start()
        try:
            async with Client(live.url, ADMIN) as client:
                async for event in client.live(job.job_id):
                    state.merge(event)
                    seen += 1
                    if seen in (3_000, 9_900):
                        gc.collect()
                        sizes.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        await writing
    assert seen > 10_000
    assert len(state.warnings) == 100
    assert sizes[1] - sizes[0] < 2_000_000, sizes


async def _write(live: Live, job: Job, count: int) -> None:
    for n in range(0, count, 100):
        notes = [NewEvent("warning", "Voice", json.dumps({"message": str(m)})) for m in range(n, n + 100)]
        await live.engine.settle([commands.note(job, note) for note in notes])
    await live.engine.settle([commands.succeed(job)])
