"""Streams of live jobs through a real server: ids, order, debounce, keepalive, resumption, one connection a client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re

import pytest

from callsheet.contracts.aura import routes, stream
from callsheet.contracts.aura.projection import PLACES, TYPES, contract_events, position_of
from callsheet.kernel import commands
from callsheet.kernel.contracts import AURA
from callsheet.kernel.job import Event, Job
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from tests.http.live import Frame, Live, frames, serving
from tests.kernel.jobs import a_job

from .conftest import running, through_all_stages

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


async def read(live: Live, job_id: str, last: str | None = None, *, header: bool = False) -> list[Frame]:
    """All frames until the server ends the stream."""
    query = {"lastEventId": last} if last is not None and not header else {}
    headers = {"Last-Event-ID": last} if last is not None and header else {}
    async with live.client.stream("GET", f"/api/jobs/{job_id}/events", params=query, headers=headers) as answer:
        assert answer.status_code == 200
        return [frame async for frame in frames(answer)]


@pytest.mark.parametrize(("stage", "phase"), [(stage, phase) for phase, stages in STAGES.items() for stage in stages])
def test_every_stage_has_its_phase(stage: str, phase: str) -> None:
    result = AURA.phase_of(stage)
    assert result.name == AURA.phase_of(stage.upper()).name == phase
    if phase in RANGES:
        assert (result.low, result.high) == RANGES[phase]


async def test_a_whole_life_in_the_contracts_eight_words(live: Live) -> None:
    job = await running(live)
    await through_all_stages(live, job)
    frames = await read(live, job.job_id)
    assert [f.event for f in frames[:3]] == ["job-status", "job-status", "step-status"]
    assert {f.event for f in frames} <= set(TYPES)
    assert frames[0].data == {"status": "Queued", "stage": "Queued", "percent": 0, "correlationId": job.correlation_id}
    start_events = [f.data for f in frames if f.event == "step-status" and f.data["status"] == "started"]
    assert [(d["step"], d["phase"]) for d in start_events] == [
        ("Script", "plan"),
        ("Voice", "tts"),
        ("Visuals", "visuals"),
        ("Compose", "compose"),
        ("Rendering", "render"),
    ]
    steps = [(f.data["step"], f.data["status"]) for f in frames if f.event == "step-status"]
    stages = ("Script", "Voice", "Visuals", "Compose", "Rendering")
    assert steps == [(stage, status) for stage in stages for status in ("started", "completed")]
    assert [f.data["message"] for f in frames if f.event == "warning"] == ["no voice"]
    end = frames[-1]
    assert end.event == "job-completed"
    assert (end.data["status"], end.data["jobId"], end.data["output"]) == ("Done", job.job_id, {"video": "v.mp4"})
    assert end.data["artifacts"] == []
    assert all(f.data["correlationId"] == job.correlation_id != "" for f in frames)


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
        assert [f.event async for f in reading] == ["job-status", "job-cancelled"]


async def test_a_failure_tells_what_where_and_why(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.advance(job, "Rendering")])
    job = job._replace(stage="Rendering")
    await live.engine.settle([commands.dead_letter(job, JobError("disk_full", "no space left"))])
    end = (await read(live, job.job_id))[-1]
    assert end.event == "job-failed"
    assert (end.data["stage"], end.data["errorMessage"]) == ("Rendering", "no space left")
    assert end.data["errors"][0]["code"] == "disk_full"
    (line,) = end.data["logs"]
    assert "Rendering: no space left" in line


async def test_a_retry_is_an_error_and_the_job_stays_running(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.progress(job, 50)])
    await live.engine.settle([commands.retry(job, JobError("rate_limited", "slow down"), delay_ms=0)])
    (again,) = await live.engine.claim(ClaimRequest("w2"))
    await live.engine.settle([commands.progress(again, 10), commands.succeed(again)])
    frames = await read(live, job.job_id)
    (error,) = [f for f in frames if f.event == "error"]
    assert (error.data["message"], error.data["willRetry"]) == ("slow down", True)
    assert {f.data["status"] for f in frames[:-2] if f.event == "job-status"} == {"Queued", "Running"}
    told_of = [f.data.get("progressPct", f.data.get("percent")) for f in frames]
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
    async with live.client.stream("GET", f"/api/jobs/{job.job_id}/events") as answer:
        reading = frames(answer)
        while (await anext(reading)).event != "step-status":
            pass
        writing = asyncio.create_task(_report(live, job))
        async for item in reading:  # at the end nothing else happens: the last one must come by itself
            if item.event == "step-progress":
                got.append(item.data["progressPct"])
                if item.data["progressPct"] == 39:
                    break
    await writing
    assert got == sorted(set(got))


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
    assert [f.event for f in rest][-3:] == ["step-progress", "job-status", "job-cancelled"]
    assert rest[-3].data["progressPct"] == 77


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
    for item in ours:
        ms, counter = map(int, item.id.split("-"))
        assert seqs[counter // PLACES]["ts"] == ms
        if item.event == "step-progress":
            assert seqs[counter // PLACES]["progress"] == item.data["progressPct"]


def test_hostile_words_stay_inside_their_frame() -> None:
    job = a_job(contract="aura")
    evil = "x\n\nevent: job-completed\ndata: {}\r\u2028"
    event = Event(job.job_id, 3, job.event_ms, "progress", evil, 10.0, json.dumps({"message": evil}))
    (result,) = contract_events(event, job)
    assert result.data["step"] == evil
    from callsheet.http.sse import frame  # noqa: PLC0415

    assert frame(result.type, result.data, result.id).count(b"\n") == 4


@pytest.mark.parametrize("place", [1, 7, 1000])
def test_an_id_says_where_to_go_on(place: int) -> None:
    job = a_job(contract="aura")
    event = Event(job.job_id, place, job.event_ms, "stage", "Voice", 1.0, "{}")
    ids = [t.id for t in contract_events(event, job)]
    assert [position_of(i) for i in ids] == [(place, 2), (place, 3)]
    (behind,) = [t.standing_behind(event) for t in contract_events(event._replace(type="progress"), job)]
    assert position_of(behind.id) == (place, PLACES)
