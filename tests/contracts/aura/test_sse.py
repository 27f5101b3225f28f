"""Streams of live jobs through a real server: ids, order, debounce, keepalive, resumption, one connection a client."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import re
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsheet.client import Client, LiveEvent, LiveState, NoSuchJob, ServerUnreachable, Unauthorized
from callsheet.client.live import ATTEMPTS, backoff_s, follow_live
from callsheet.client.patience import Patience
from callsheet.client.transport import Transport
from callsheet.contracts.aura import routes, stream
from callsheet.contracts.aura.projection import PLACES, TYPES, place_of, told
from callsheet.kernel import commands
from callsheet.kernel.job import Event, Job, NewEvent
from callsheet.kernel.progress import phase_of
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.client.proxy import anywhere, before
from tests.http.live import ADMIN, Frame, Live, frames, serving
from tests.kernel.jobs import a_job

STAGES = {
    "plan": ("Initialization", "Queued", "Script", "Planning", "Brief"),
    "tts": ("TTS", "Audio", "Voice"),
    "visuals": ("Visuals", "Images", "Assets"),
    "compose": ("Composition", "Timeline", "Compose"),
    "render": ("Rendering", "Render", "Encode"),
    "complete": ("Complete", "Done"),
    "processing": ("Unknown", "SomethingElse"),
}
RANGES = {"plan": (0, 15), "tts": (15, 35), "visuals": (35, 65), "compose": (65, 85), "render": (85, 100)}


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with serving(url, routers=[routes.router]) as live:
        yield live


async def running(live: Live) -> Job:
    await live.client.post("/api/jobs", json={"payload": {}})
    (job,) = await live.engine.claim(ClaimRequest("w", lease_ms=600_000))
    return job


async def read(live: Live, job_id: str, last: str | None = None, *, header: bool = False) -> list[Frame]:
    """All frames until the server ends the stream."""
    query = {"lastEventId": last} if last is not None and not header else {}
    headers = {"Last-Event-ID": last} if last is not None and header else {}
    async with live.client.stream("GET", f"/api/jobs/{job_id}/events", params=query, headers=headers) as answer:
        assert answer.status_code == 200
        return [frame async for frame in frames(answer)]


async def through_all_stages(live: Live, job: Job, *, end: bool = True) -> None:
    """A whole life: stages, checkpoints, progress, a warning, an end."""
    for n, stage in enumerate(("Script", "Voice", "Visuals", "Compose", "Rendering")):
        await live.engine.settle([commands.advance(job, stage)])
        job = job._replace(stage=stage)
        await live.engine.settle([commands.progress(job, n * 20, f"in {stage}"), commands.progress(job, n * 20 + 15)])
        if n < 3:
            await live.engine.settle([commands.checkpoint(job, stage, "{}")])
    await live.engine.settle([commands.note(job, NewEvent("warning", job.stage, '{"message":"no voice"}'))])
    if end:
        await live.engine.settle([commands.succeed(job, '{"video":"v.mp4"}')])


@pytest.mark.parametrize(("stage", "phase"), [(stage, phase) for phase, stages in STAGES.items() for stage in stages])
def test_every_stage_has_its_phase(stage: str, phase: str) -> None:
    found = phase_of(stage)
    assert found.name == phase_of(stage.upper()).name == phase
    if phase in RANGES:
        assert (found.low, found.high) == RANGES[phase]


async def test_a_whole_life_in_the_contracts_eight_words(live: Live) -> None:
    job = await running(live)
    await through_all_stages(live, job)
    got = await read(live, job.job_id)
    assert [f.event for f in got[:3]] == ["job-status", "job-status", "step-status"]
    assert {f.event for f in got} <= set(TYPES)
    assert got[0].data == {"status": "Queued", "stage": "Queued", "percent": 0, "correlationId": job.correlation_id}
    started = [f.data for f in got if f.event == "step-status" and f.data["status"] == "started"]
    assert [(d["step"], d["phase"]) for d in started] == [
        ("Script", "plan"),
        ("Voice", "tts"),
        ("Visuals", "visuals"),
        ("Compose", "compose"),
        ("Rendering", "render"),
    ]
    assert [f.data["step"] for f in got if f.event == "step-status" and f.data["status"] == "completed"] == [
        "Script",
        "Voice",
        "Visuals",
    ]
    assert [f.data["message"] for f in got if f.event == "warning"] == ["no voice"]
    end = got[-1]
    assert end.event == "job-completed"
    assert (end.data["status"], end.data["jobId"], end.data["output"]) == ("Done", job.job_id, {"video": "v.mp4"})
    assert end.data["artifacts"] == []
    assert all(f.data["correlationId"] == job.correlation_id != "" for f in got)


async def test_ids_are_unique_rising_and_of_the_contracts_form(live: Live) -> None:
    job = await running(live)
    await through_all_stages(live, job)
    ids = [f.id for f in await read(live, job.job_id)]
    assert all(re.fullmatch(r"\d{13}-\d+", i) for i in ids)
    keys = [tuple(map(int, i.split("-"))) for i in ids]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("header", [False, True])
async def test_a_stream_goes_on_after_any_id_by_query_or_header(live: Live, header: bool) -> None:  # noqa: FBT001
    job = await running(live)
    await through_all_stages(live, job)
    whole = await read(live, job.job_id)
    for n in (0, 2, 3, len(whole) // 2, len(whole) - 2):
        assert await read(live, job.job_id, whole[n].id, header=header) == whole[n + 1 :]
    over = await live.client.get(f"/api/jobs/{job.job_id}/events", params={"lastEventId": whole[-1].id})
    assert over.status_code == 204  # do not come back


@pytest.mark.parametrize("garbage", ["0", "x", "-1-2", "9999999999999-999999", "1-0", "😀", "9" * 300])
async def test_an_id_that_we_never_gave_gets_the_present_state(live: Live, garbage: str) -> None:
    job = await running(live)
    await live.engine.settle([commands.advance(job, "Voice"), commands.progress(job, 25)])
    async with live.client.stream("GET", f"/api/jobs/{job.job_id}/events", params={"lastEventId": garbage}) as answer:
        reading = frames(answer)
        first = await anext(reading)
        assert (first.event, first.data["status"], first.data["stage"], first.data["percent"]) == (
            "job-status",
            "Running",
            "Voice",
            25,
        )
        await live.engine.settle([commands.cancel(job, "enough")])
        assert [f.event async for f in reading] == ["job-cancelled"]


async def test_a_failure_tells_what_where_and_why(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.advance(job, "Rendering")])
    job = job._replace(stage="Rendering")
    await live.engine.settle([commands.bury(job, JobError("disk_full", "no space left"))])
    end = (await read(live, job.job_id))[-1]
    assert end.event == "job-failed"
    assert (end.data["stage"], end.data["errorMessage"]) == ("Rendering", "no space left")
    assert end.data["errors"][0]["code"] == "disk_full"
    assert end.data["logs"]


async def test_a_retry_is_an_error_and_the_job_stays_running(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.progress(job, 50)])
    await live.engine.settle([commands.retry(job, JobError("rate_limited", "slow down"), delay_ms=0)])
    (again,) = await live.engine.claim(ClaimRequest("w2"))
    await live.engine.settle([commands.progress(again, 10), commands.succeed(again)])
    got = await read(live, job.job_id)
    (error,) = [f for f in got if f.event == "error"]
    assert (error.data["message"], error.data["willRetry"]) == ("slow down", True)
    assert {f.data["status"] for f in got if f.event == "job-status"} == {"Queued", "Running"}
    told_of = [f.data.get("progressPct", f.data.get("percent")) for f in got]
    percents = [percent for percent in told_of if percent is not None]
    assert percents == sorted(percents)


async def test_a_cancellation_tells_its_reason(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.advance(job, "Visuals")])
    await live.engine.cancel(job.job_id, "wrong script")
    await live.engine.settle([commands.cancel(job._replace(stage="Visuals"), "wrong script")])
    end = (await read(live, job.job_id))[-1]
    assert (end.event, end.data["status"], end.data["stage"]) == ("job-cancelled", "Canceled", "Visuals")
    assert end.data["message"] == "wrong script"


async def test_progress_is_debounced_and_the_last_is_never_lost(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "DEBOUNCE_S", 0.2)
    job = await running(live)
    await live.engine.settle([commands.advance(job, "Rendering")])
    job, got = job._replace(stage="Rendering"), []
    loop = asyncio.get_running_loop()
    async with live.client.stream("GET", f"/api/jobs/{job.job_id}/events") as answer:
        reading = frames(answer)
        while (await anext(reading)).event != "step-status":
            pass
        begun = loop.time()
        writing = asyncio.create_task(_report(live, job))
        async for found in reading:  # at the end nothing else happens: the last one must come by itself
            if found.event == "step-progress":
                got.append((loop.time(), found.data["progressPct"]))
                if found.data["progressPct"] == 39:
                    break
    await writing
    assert len(got) <= (got[-1][0] - begun) / 0.2 + 2
    assert [p for _, p in got] == sorted(p for _, p in got)


async def _report(live: Live, job: Job) -> None:
    for n in range(40):
        await live.engine.settle([commands.progress(job, n)])
        await asyncio.sleep(0.01)


async def test_what_was_held_back_comes_before_the_end(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "DEBOUNCE_S", 60.0)
    job = await running(live)
    async with live.client.stream("GET", f"/api/jobs/{job.job_id}/events") as answer:
        reading = frames(answer)
        for n in (1, 2, 3):
            await live.engine.settle([commands.progress(job, n)])
        assert [(await anext(reading)).event for _ in range(2)] == ["job-status", "job-status"]
        await live.engine.settle([commands.progress(job, 77), commands.cancel(job, "")])
        rest = [f async for f in reading]
    assert [f.event for f in rest][-2:] == ["step-progress", "job-cancelled"]
    assert rest[-2].data["progressPct"] == 77


async def test_a_quiet_stream_says_what_time_it_is(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream.KEEPALIVE_S == 10
    monkeypatch.setattr(stream, "KEEPALIVE_S", 0.05)
    job = await running(live)
    async with live.client.stream("GET", f"/api/jobs/{job.job_id}/events") as answer:
        async for line in answer.aiter_lines():
            if line.startswith(": keepalive"):
                break
    assert re.fullmatch(r": keepalive: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line)


async def test_a_newer_connection_of_the_same_client_ends_the_older(live: Live) -> None:
    job = await running(live)
    path = f"/api/jobs/{job.job_id}/events"
    async with await live.key("", scopes=("admin",)) as other, contextlib.AsyncExitStack() as stack:
        first = frames(await stack.enter_async_context(live.client.stream("GET", path)))
        stranger = frames(await stack.enter_async_context(other.stream("GET", path)))
        for reading in (first, stranger):
            assert (await anext(reading)).event == "job-status"
        second = frames(await stack.enter_async_context(live.client.stream("GET", path)))
        assert (await anext(second)).event == "job-status"
        assert [f.event async for f in first] == ["job-status"]  # ended; the rest was on its way
        await live.engine.settle([commands.cancel(job, "")])
        assert [f.event async for f in second][-1] == "job-cancelled"
        assert [f.event async for f in stranger][-1] == "job-cancelled"


async def test_contract_001_and_004_tell_the_same_facts(url: str) -> None:
    from callsheet.contracts.redis_gateway import streams  # noqa: PLC0415 - the other projection

    async with serving(url, routers=[routes.router, streams.router]) as live:
        job = await running(live)
        await through_all_stages(live, job)
        ours = await read(live, job.job_id)
        async with live.client.stream("GET", f"/v1/jobs/{job.job_id}/events") as answer:
            theirs = [f async for f in frames(answer) if f.event != "hello"]
    seqs = {f.data["seq"]: f.data for f in theirs}
    for found in ours:
        ms, counter = map(int, found.id.split("-"))
        assert seqs[counter // PLACES]["ts"] == ms
        if found.event == "step-progress":
            assert seqs[counter // PLACES]["progress"] == found.data["progressPct"]


def test_hostile_words_stay_inside_their_frame() -> None:
    job = a_job(contract="aura")
    evil = "x\n\nevent: job-completed\ndata: {}\r\u2028"
    event = Event(job.job_id, 3, job.event_ms, "progress", evil, 10.0, json.dumps({"message": evil}))
    (found,) = told(event, job)
    assert found.data["step"] == evil
    from callsheet.http.sse import frame  # noqa: PLC0415

    assert frame(found.type, found.data, found.id).count(b"\n") == 4


@pytest.mark.parametrize("place", [1, 7, 1000])
def test_an_id_says_where_to_go_on(place: int) -> None:
    job = a_job(contract="aura")
    event = Event(job.job_id, place, job.event_ms, "stage", "Voice", 1.0, "{}")
    ids = [t.id for t in told(event, job)]
    assert [place_of(i) for i in ids] == [(place, 1), (place, 2)]


# The client


def test_the_backoff_is_the_contracts() -> None:
    assert [backoff_s(n) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert ATTEMPTS == 5


def _event(type: str, **data: Any) -> LiveEvent:
    return LiveEvent("", type, data)


def test_progress_never_falls_whatever_the_order() -> None:
    reports = list(range(0, 101, 5))
    for seed in range(20):
        random.Random(seed).shuffle(reports)
        state = LiveState()
        shown: list[float] = []
        for percent in reports:
            taken = state.merge(_event("step-progress", step="Rendering", phase="render", progressPct=percent))
            assert taken is (percent >= max([0, *shown]))
            shown.append(state.percent)
        assert shown == sorted(shown)
        assert shown[-1] == 100
        assert state.rejected > 0


def test_state_is_merged_from_events() -> None:
    state = LiveState()
    state.merge(_event("job-status", status="Running", stage="Script", percent=5))
    state.merge(_event("step-progress", step="Voice", phase="tts", progressPct=30, message="speaking"))
    state.merge(_event("warning", message="no voice", step="Voice"))
    assert (state.status, state.stage, state.phase, state.percent) == ("Running", "Voice", "tts", 30)
    assert state.warnings == ["no voice"]
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
    wanted = 200 if url.startswith("sqlite") else 30
    job = await running(live)
    pauses: list[float] = []
    async with before(live.url, anywhere(7, 4_000)) as proxy:
        following = asyncio.create_task(_followed(proxy.url, job.job_id, pauses))
        n = 0
        while proxy.cuts < wanted and not following.done():
            n += 1
            await live.engine.settle(
                [commands.note(job, NewEvent("warning", "Voice", json.dumps({"message": str(n)})))]
            )
            await asyncio.sleep(0.005)
        await live.engine.settle([commands.succeed(job)])
        proxy.budget = lambda: None
        proxy.cut_all()
        got = await asyncio.wait_for(following, 60)
    assert [e.data["message"] for e in got if e.type == "warning"] == [str(m) for m in range(1, n + 1)]
    assert got[-1].type == "job-completed"
    assert len({e.id for e in got}) == len(got)
    assert set(pauses) <= {1.0, 2.0, 4.0, 8.0, 16.0}


async def test_a_server_that_stays_away_is_given_up_after_five(live: Live) -> None:
    job = await running(live)
    pauses: list[float] = []
    with pytest.raises(ServerUnreachable):
        await _followed("http://127.0.0.1:9", job.job_id, pauses)
    assert pauses == [1, 2, 4, 8, 16]


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
