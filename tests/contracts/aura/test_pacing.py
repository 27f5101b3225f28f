"""Streams report stages from start to end; progress comes at most twice a second, whatever else is told."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from callsheet.contracts.aura import debounce, routes, stream
from callsheet.contracts.aura.debounce import SPAN_MS, Debounce, Stages
from callsheet.contracts.aura.projection import ContractEvent, contract_events
from callsheet.http.keys import Principal
from callsheet.kernel import commands
from callsheet.kernel.errors import StoreUnavailable
from callsheet.kernel.events import TERMINAL_EVENTS
from callsheet.kernel.job import Event, Job, NewEvent
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.http.live import Frame, Live, frames, serving
from tests.kernel.jobs import a_job

from .conftest import running, through_all_stages
from .test_sse import read

NEVER_S = 1e9  # a span that began in 2001 and ends in 2033


def warning(job: Job, text: str = "hm") -> Settlement:
    return commands.note(job, NewEvent("warning", job.stage, json.dumps({"message": text})))


def steps_of(got: list[Frame]) -> list[tuple[str, str]]:
    return [(f.data["step"], f.data["status"]) for f in got if f.event == "step-status"]


async def in_stages(live: Live, job: Job, *names: str) -> Job:
    for name in names:
        await live.engine.settle([commands.advance(job, name)])
        job = job._replace(stage=name)
    return job


async def test_a_stage_is_completed_by_the_next_one_and_by_success(live: Live) -> None:
    job = await in_stages(live, await running(live), "Brief", "Timeline", "Timeline", "Encode")
    await live.engine.settle([commands.succeed(job)])
    frames = await read(live, job.job_id)
    pairs = [
        (name, status) for name in ("Brief", "Timeline", "Timeline", "Encode") for status in ("started", "completed")
    ]
    assert steps_of(frames) == pairs
    assert [f.event for f in frames[-3:]] == ["step-status", "job-status", "job-completed"]


ENDS: list[Callable[[Job], Settlement]] = [
    lambda job: commands.dead_letter(job, JobError("oom", "no memory")),
    lambda job: commands.cancel(job, "enough"),
]


@pytest.mark.parametrize("end", ENDS)
async def test_a_stage_that_was_broken_off_is_not_completed(live: Live, end: Callable[[Job], Settlement]) -> None:
    job = await in_stages(live, await running(live), "Script", "Voice")
    await live.engine.settle([end(job)])
    frames = await read(live, job.job_id)
    assert steps_of(frames) == [("Script", "started"), ("Script", "completed"), ("Voice", "started")]
    assert frames[-1].data["stage"] == "Voice"


async def test_a_retry_breaks_its_stage_off_and_starts_it_again(live: Live) -> None:
    job = await in_stages(live, await running(live), "Script")
    await live.engine.settle([commands.checkpoint(job, "Script", "1")])
    job = await in_stages(live, job, "Voice")
    await live.engine.settle([commands.retry(job, JobError("busy", "later"), delay_ms=0)])
    (again,) = await live.engine.claim(ClaimRequest("w2"))
    again = await in_stages(live, again, "Script", "Voice")
    await live.engine.settle([commands.succeed(again)])
    first = [("Script", "started"), ("Script", "completed"), ("Voice", "started")]
    assert steps_of(await read(live, job.job_id)) == [*first, *first, ("Voice", "completed")]


@pytest.mark.parametrize("look", [1, 200])
async def test_who_comes_back_is_told_which_stage_was_completed(
    live: Live, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    monkeypatch.setattr(debounce, "LOOK", look)
    job = await running(live)
    await through_all_stages(live, job)
    whole = await read(live, job.job_id)
    for n in range(len(whole) - 1):
        assert await read(live, job.job_id, whole[n].id) == whole[n + 1 :], whole[n]


def a_life(chance: random.Random, most: int = 200) -> list[Event]:
    """Make the events of one attempt, at random times: reports, others, stages, and an end."""
    job = a_job(contract="aura")
    ms, events, percent = job.event_ms, [], 0.0
    for seq in range(1, most):
        ms += chance.choice([0, 1, 20, 90, 499, 500, 1_300])
        kind = chance.choice(["progress", "progress", "warning", "log", "stage", "checkpoint", "cancel_requested"])
        percent += kind == "progress"
        events.append(Event(job.job_id, seq, ms, kind, chance.choice("AB"), percent, '{"level":"warning"}'))
    return [*events, Event(job.job_id, most, ms + 3, chance.choice([*TERMINAL_EVENTS]), "", percent, "{}")]


def told_of(events: list[Event], debounce: Debounce) -> list[ContractEvent]:
    """Render a job's events as a punctual stream would, on the events' virtual clock."""
    job, results, known = a_job(contract="aura"), [], Stages()
    for event in events:
        results += debounce.before(event)
        own = contract_events(event, job, completes=known.completed_by(event))
        if event.type == "progress":
            debounce.hold(*own)
        else:
            results += own
    return results


@pytest.mark.parametrize("seed", range(20))
def test_progress_is_told_once_in_half_a_second_whatever_comes_between(seed: int) -> None:
    events = a_life(random.Random(seed))
    frames = told_of(events, Debounce())
    spans = [event.ms // SPAN_MS for event in events if event.type == "progress"]
    reports = [item for item in frames if item.type == "step-progress"]
    assert 0 < len(reports) <= len(set(spans)) < len(spans)
    places = [(item.ms, item.seq, item.place) for item in frames]
    assert places == sorted(set(places)), "ids rise, and none comes twice"
    percents = [item.data.get("progressPct", item.data.get("percent")) for item in frames]
    known = [percent for percent in percents if percent is not None]
    assert known == sorted(known)
    assert max(known[:-1]) == int(events[-1].progress), "the last report comes, or the stage that follows tells it"


def test_a_report_waits_for_the_end_of_its_span_on_a_clock_of_its_own() -> None:
    job, debounce = a_job(contract="aura"), Debounce()
    begin = job.event_ms // SPAN_MS * SPAN_MS

    def event(seq: int, ms: int, kind: str) -> Event:
        return Event(job.job_id, seq, begin + ms, kind, "Voice", float(seq), "{}")

    for seq, ms in ((1, 0), (2, 130)):
        debounce.before(event(seq, ms, "progress"))
        debounce.hold(*contract_events(event(seq, ms, "progress"), job))
    assert debounce.before(event(3, 499, "warning")) == []
    assert debounce.rest_ms == SPAN_MS - 130
    (report,) = debounce.before(event(4, 500, "warning"))
    assert (report.data["progressPct"], report.seq) == (2, 3), "the newest, behind what was told before it"
    assert not debounce.holds


def test_a_report_that_arrives_after_its_spans_report_counts_for_the_next_span() -> None:
    job, debounce = a_job(contract="aura"), Debounce()
    begin = job.event_ms // SPAN_MS * SPAN_MS

    def report(seq: int, ms: int) -> list[int]:
        event = Event(job.job_id, seq, begin + ms, "progress", "Voice", float(seq), "{}")
        sent_events = debounce.before(event)
        debounce.hold(*contract_events(event, job))
        return [item.data["progressPct"] for item in sent_events]

    assert report(1, 485) == []
    assert [found.seq for found in debounce.due()] == [1], "the span is over"
    assert report(2, 495) == [], "it was late"
    assert debounce.rest_ms == SPAN_MS + 5
    assert report(3, 505) == [], "the span has no second report"
    assert report(4, 990) == []
    assert report(5, 1_010) == [4]


@pytest.fixture
async def one(monkeypatch: pytest.MonkeyPatch) -> object:
    async with serving(stores.fresh_url("sqlite"), routers=[routes.router]) as live:
        yield live


async def test_other_events_do_not_let_progress_past_the_debounce(one: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "DEBOUNCE_S", NEVER_S)
    job = await running(one)
    async with one.client.stream("GET", f"/api/jobs/{job.job_id}/events") as answer:
        reading = frames(answer)
        for n in range(10):
            await one.engine.settle([commands.progress(job, n), warning(job, str(n))])
            while (await anext(reading)).event != "warning":
                pass
        await one.engine.settle([commands.progress(job, 77), warning(job), commands.succeed(job)])
        rest = [f async for f in reading]
    assert [f.event for f in rest] == ["warning", "step-progress", "job-status", "job-completed"]
    assert rest[1].data["progressPct"] == 77
    ids = [tuple(map(int, f.id.split("-"))) for f in rest]
    assert all(a < b for a, b in pairwise(ids))


async def test_two_reports_that_come_late_and_together_are_not_both_told(
    one: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "DEBOUNCE_S", 0.02)
    job = await running(one)
    begin = job.event_ms // 20 * 20
    events = [Event(job.job_id, seq, begin + seq * 20, "progress", "Voice", seq * 10.0, "{}") for seq in (1, 2)]
    who = Principal("k", "", frozenset())
    late = stream.LiveStream(one.state, who, b"", one.engine.follow({job.job_id: 0}), job, None)
    try:
        assert await late.frames(events[:1]) == b""
        await asyncio.sleep(0.1)  # the first one is due by now, but the second one comes with it
        together = (await late.frames(events[1:])).decode()
    finally:
        late.end()
    assert together.count("event: step-progress") == 1
    assert '"progressPct":10' in together


async def test_a_cut_between_a_report_and_its_time_does_not_lose_it(one: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "DEBOUNCE_S", NEVER_S)
    job = await running(one)
    await one.engine.settle([commands.progress(job, 60), warning(job)])
    path = f"/api/jobs/{job.job_id}/events"
    async with one.client.stream("GET", path) as answer:
        seen = [await anext(reading) for reading in [frames(answer)] for _ in range(3)]
    assert [f.event for f in seen] == ["job-status", "job-status", "warning"]
    await one.engine.settle([warning(job, "more"), commands.cancel(job)])
    rest = await read(one, job.job_id, seen[-1].id)
    assert [f.event for f in rest] == ["warning", "step-progress", "job-status", "job-cancelled"]
    for n, event in enumerate(rest[:-1]):  # seen once, it does not come again
        assert await read(one, job.job_id, event.id) == rest[n + 1 :]


async def test_a_store_that_is_away_ends_the_stream_and_nothing_is_lost(
    one: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await running(one)
    await through_all_stages(one, job)
    whole = await read(one, job.job_id)

    async def away(*_: object) -> list[Event]:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(stream, "since_its_stage_began", away)
        (told_why,) = await read(one, job.job_id, whole[4].id)
    assert (told_why.event, told_why.id) == ("error", "")
    assert await read(one, job.job_id, whole[4].id) == whole[5:]
