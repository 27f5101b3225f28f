"""One stream for several jobs: named jobs, or all jobs of the caller."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from callsheet.contracts.redis_gateway import streams
from callsheet.http.limits import Limits
from callsheet.kernel.job import Job
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.http.live import Frame, Live, frames, problem, serving
from tests.running_worker import until


async def running(live: Live, count: int) -> list[Job]:
    """Some jobs that run."""
    for _ in range(count):
        await live.job()
    return await live.engine.claim(ClaimRequest("w", limit=count, lease_ms=600_000))


def path(jobs: list[Job]) -> str:
    return "/v1/events?jobs=" + ",".join(job.job_id for job in jobs)


def told(frame: Frame) -> tuple[str, str]:
    return frame.data["job_id"], frame.event


async def read(live: Live, url: str, last: str = "", most: int = 10**9) -> list[Frame]:
    """Read frames of a stream, up to a maximum after the first; none for a 204."""
    got: list[Frame] = []
    async with live.client.stream("GET", url, headers={"Last-Event-ID": last} if last else {}) as answer:
        if answer.status_code == 204:
            return []
        assert answer.status_code == 200
        async for frame in frames(answer):
            got.append(frame)
            if len(got) > most:
                break
    return got


async def test_hello_holds_all_jobs_and_their_events_follow(live: Live) -> None:
    jobs = await running(live, 3)
    for job in jobs:
        await live.note(job, "1")
        await live.done(job)
    hello, *rest = await read(live, path(jobs))
    assert [job["job_id"] for job in hello.data["jobs"]] == [job.job_id for job in jobs]
    for job in jobs:
        mine = [frame for frame in rest if frame.data["job_id"] == job.job_id]
        assert [(frame.event, frame.data["seq"]) for frame in mine] == [
            ("queued", 1),
            ("running", 2),
            ("log", 3),
            ("done", 4),
        ]
    assert len(rest) == 12


async def test_a_cursor_resumes_each_job_where_it_was(live: Live) -> None:
    jobs = await running(live, 4)
    stop = asyncio.Event()

    async def write(job: Job) -> None:
        while not stop.is_set():
            await live.note(job, "1")
        await live.done(job)

    writers = [asyncio.create_task(write(job)) for job in jobs]
    seen: Counter[tuple[str, int]] = Counter()
    last, came = "", 0
    while frames := await read(live, path(jobs), last, 10**9 if stop.is_set() else came % 7):
        came += 1
        assert frames[0].event == "hello"
        seen.update((frame.data["job_id"], frame.data["seq"]) for frame in frames[1:])
        last = frames[-1].id or last
        if came == 60:
            stop.set()
            await asyncio.gather(*writers)
    committed_events = {(e.job_id, e.seq) for e in await live.engine.store.events({j.job_id: 0 for j in jobs}, 10**6)}
    assert set(seen) == committed_events
    assert set(seen.values()) == {1}


async def test_when_all_was_seen_and_all_have_ended_there_is_nothing(live: Live) -> None:
    jobs = await running(live, 2)
    for job in jobs:
        await live.done(job)
    *_, last = await read(live, path(jobs))
    answer = await live.client.get(path(jobs), headers={"Last-Event-ID": last.id})
    assert (answer.status_code, answer.content) == (204, b"")


async def test_a_cursor_that_is_not_ours_gets_a_reset(live: Live) -> None:
    for last in ["garbage", "m", "m.", "m.1", "m.1.1.1", "m.9.9", "m.-1.1", "m.x.1", "1-1", "m.1e0.1"]:
        jobs = await running(live, 2)
        async with live.client.stream("GET", path(jobs), headers={"Last-Event-ID": last}) as answer:
            stream = frames(answer)
            reset = await anext(stream)
            assert (reset.event, reset.id) == ("reset", "m.2.2")
            assert [job["job_id"] for job in reset.data["jobs"]] == [job.job_id for job in jobs]
            await live.note(jobs[0], "1")
            fresh = await anext(stream)
        assert (fresh.data["job_id"], fresh.data["seq"], fresh.id) == (jobs[0].job_id, 3, "m.3.2")


async def test_all_jobs_are_followed_and_new_ones_too(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_S", 0.02)
    (ended_job,) = await running(live, 1)
    await live.done(ended_job)
    (job,) = await running(live, 1)
    async with live.client.stream("GET", "/v1/events") as answer:
        stream = frames(answer)
        hello = await anext(stream)
        assert [name["job_id"] for name in hello.data["jobs"]] == [job.job_id]
        await live.note(job, "1")
        assert (await anext(stream)).data["seq"] == 3
        fresh = await live.job()
        assert told(await anext(stream)) == (fresh, "queued")
        await live.client.post(f"/v1/jobs/{fresh}/cancel")
        assert (await anext(stream)).event == "canceled"
        await live.done(job)  # nothing of the job that had ended before has come in between
        assert told(await anext(stream)) == (job.job_id, "done")


async def test_a_job_that_is_short_is_seen_by_who_watches_all(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_S", 0.1)
    async with small.client.stream("GET", "/v1/events") as answer:
        stream = frames(answer)
        await anext(stream)
        for _ in range(3):
            (job,) = await running(small, 1)
            await small.done(job)
        got = [await anext(stream) for _ in range(9)]
    assert Counter(frame.event for frame in got) == {"queued": 3, "running": 3, "done": 3}


async def test_no_more_jobs_are_watched_than_the_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, sleep = 0, asyncio.sleep

    async def counted(delay: float) -> None:
        nonlocal looks
        looks += delay == streams.LOOK_S
        await sleep(delay)

    monkeypatch.setattr(streams, "LOOK_S", 0.021)
    monkeypatch.setattr(asyncio, "sleep", counted)
    async with serving(stores.fresh_url("sqlite"), limits=Limits(watched_jobs=3)) as live:
        ids = [await live.job() for _ in range(4)]
        problem(await live.client.get("/v1/events?jobs=" + ",".join(ids)), 422, "validation_failed")
        async with live.client.stream("GET", "/v1/events?jobs=" + ",".join(ids[:3] * 2)) as answer:
            assert len((await anext(frames(answer))).data["jobs"]) == 3  # named twice is one
        await until(lambda: not live.state.open)
        async with live.client.stream("GET", "/v1/events") as answer:
            stream = frames(answer)
            assert len((await anext(stream)).data["jobs"]) == 3
            late = await live.job()
            (store,) = live.state.open
            before = looks
            await until(lambda: looks > before + 2)
            assert len(store._watcher.seqs) == 3
            for job_id in ids[1:]:
                await live.client.post(f"/v1/jobs/{job_id}/cancel")
            ids_here = {(await anext(stream)).data["job_id"] for _ in range(4)}
            assert late in ids_here  # it was followed as soon as there was room


async def test_a_key_has_so_many_streams_and_the_next_is_told_to_wait() -> None:
    few = serving(stores.fresh_url("sqlite"), limits=Limits(streams=2))
    async with few as live, await live.key("a") as a, await live.key("a") as other:
        job_id = await live.job(a)
        async with (
            a.stream("GET", f"/v1/jobs/{job_id}/events") as one,
            a.stream("GET", "/v1/events") as two,
            other.stream("GET", "/v1/events") as theirs,
        ):
            assert {one.status_code, two.status_code, theirs.status_code} == {200}
            for url in (f"/v1/jobs/{job_id}/events", "/v1/events", f"/v1/events?jobs={job_id}"):
                answer = await a.get(url)
                problem(answer, 429, "too_many_streams")
                assert int(answer.headers["retry-after"]) >= 1
            assert len(live.state.open) == 3
            assert sum(map(len, live.engine._watch._watchers.values())) == 3  # a refusal leaves no watcher
            assert (await a.get("/v1/jobs")).status_code == 200
        await until(lambda: not live.state.streams.total)
        async with a.stream("GET", "/v1/events") as again:
            assert again.status_code == 200


async def test_a_stream_with_a_tail_begins_at_the_present(live: Live) -> None:
    first, second = jobs = await running(live, 2)
    await live.note(first, *('{"n": 1}' for _ in range(5)))
    await live.done(second)
    async with live.client.stream("GET", f"{path(jobs)}&tail=true") as answer:
        reader = frames(answer)
        hello = await anext(reader)
        assert {job["job_id"]: job["status"] for job in hello.data["jobs"]} == {
            first.job_id: "running",
            second.job_id: "done",
        }
        await live.note(first, '{"n": 2}')
        event = await anext(reader)
        assert (event.data["job_id"], event.data["data"]) == (first.job_id, {"n": 2})
    rest = await read(live, f"{path(jobs)}&tail=true", last=event.id, most=0)  # an id says more than the tail
    assert rest[0].event == "hello"
