from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from callsheet.engine import Engine
from callsheet.engine import watch as watching
from callsheet.kernel import commands
from callsheet.kernel.errors import JobNotFound
from callsheet.kernel.job import Event, Job, NewEvent
from callsheet.store.protocol import ClaimRequest, Hint
from tests.running_worker import until
from tests.store_driver import new_job


async def collect(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def running(engine: Engine) -> Job:
    (receipt,) = await engine.enqueue([new_job(queue=(queue := new_job().job_id))])
    (job,) = await engine.claim(ClaimRequest("w", (queue,)))
    assert job.job_id == receipt.job_id
    return job


async def write(engine: Engine, job: Job, count: int) -> None:
    for n in range(count):
        await engine.settle([commands.note(job, NewEvent("log", "", str(n)))])
    await engine.settle([commands.succeed(job)])


async def test_a_watcher_sees_past_and_future_once_and_in_order(engine: Engine) -> None:
    job = await running(engine)
    watcher = asyncio.create_task(collect(engine.watch(job.job_id)))
    await write(engine, job, 20)
    events = await asyncio.wait_for(watcher, 60)
    assert [e.seq for e in events] == list(range(1, 24))
    assert events[-1].type == "done"


async def test_a_watcher_resumes_where_it_was(engine: Engine) -> None:
    job = await running(engine)
    await write(engine, job, 5)
    assert [e.seq for e in await collect(engine.watch(job.job_id, after=4))] == [5, 6, 7, 8]
    assert await collect(engine.watch(job.job_id, after=8)) == []
    assert await collect(engine.watch(job.job_id, after=99)) == []


async def test_many_watchers_of_many_jobs_share_one_reader(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [await running(engine) for _ in range(10)]
    reads = 0
    read = engine.store.events

    async def counted(*args: object) -> list[Event]:
        nonlocal reads
        reads += 1
        return await read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.store, "events", counted)
    watchers = [asyncio.create_task(collect(engine.watch(j.job_id))) for j in jobs for _ in range(20)]
    await asyncio.sleep(0.1)
    await asyncio.gather(*(write(engine, job, 10) for job in jobs))
    for events in await asyncio.wait_for(asyncio.gather(*watchers), 60):
        assert [e.seq for e in events] == list(range(1, 14))
    assert reads < 1_000  # one for each watcher and event would be 2,600


async def test_a_slow_watcher_is_bounded_and_loses_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ROOM", 8)
    job = await running(engine)
    slow = engine.watch(job.job_id)
    seen = [await anext(slow)]
    await write(engine, job, 100)
    (watcher,) = engine._watch._watchers[job.job_id]
    await asyncio.sleep(0.1)
    assert len(watcher._events) <= 8
    seen += [event async for event in slow]
    assert [e.seq for e in seen] == list(range(1, 104))


async def test_a_lost_hint_only_costs_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine.from_url(url)
    await engine.store.migrate()

    async def silence() -> AsyncIterator[Hint]:
        await asyncio.Event().wait()
        yield Hint()

    monkeypatch.setattr(engine.store, "hints", silence)
    monkeypatch.setattr(engine._watch, "_poll_s", 0.05)
    async with engine:
        job = await running(engine)
        watcher = asyncio.create_task(collect(engine.watch(job.job_id)))
        await asyncio.sleep(0.02)
        await write(engine, job, 3)
        assert len(await asyncio.wait_for(watcher, 60)) == 6


async def test_another_process_is_heard(url: str) -> None:
    here, there = Engine.from_url(url), Engine.from_url(url)
    await here.store.migrate()
    async with here, there:
        job = await running(there)
        watcher = asyncio.create_task(collect(here.watch(job.job_id)))
        await asyncio.sleep(0.05)
        await write(there, job, 3)
        assert len(await asyncio.wait_for(watcher, 60)) == 6


async def test_watching_nothing_is_an_error(engine: Engine) -> None:
    with pytest.raises(JobNotFound):
        await collect(engine.watch(new_job().job_id))


async def test_a_busy_job_does_not_starve_the_watcher_of_another(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints for one job keep coming; the other process' hint was lost. Polling finds the job anyway."""
    engine = Engine.from_url(url)
    await engine.store.migrate()
    monkeypatch.setattr(engine._watch, "_poll_s", 0.2)
    async with engine:
        quiet, busy = await running(engine), await running(engine)

        async def only_the_busy() -> AsyncIterator[Hint]:
            while True:
                yield Hint(jobs=frozenset({busy.job_id}))
                await asyncio.sleep(0.01)

        monkeypatch.setattr(engine.store, "hints", only_the_busy)
        watchers = [asyncio.create_task(collect(engine.watch(j.job_id))) for j in (quiet, busy)]
        await asyncio.sleep(0.05)
        await engine.settle([commands.succeed(quiet)])
        assert len(await asyncio.wait_for(watchers[0], 60)) == 3
        await engine.settle([commands.succeed(busy)])
        await asyncio.wait_for(watchers[1], 60)


async def test_a_watcher_of_a_pruned_job_ends(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine._watch, "_poll_s", 0.05)
    job = await running(engine)
    watcher = engine.watch(job.job_id, after=2)
    waiting = asyncio.create_task(collect(watcher))
    await until(lambda: job.job_id in engine._watch._watchers)
    later = await engine.store.now() + 10**9
    await engine.store.settle([commands.cancel(job)], now=later)
    await engine.store.prune(ended_before=later + 1, limit=10)
    await asyncio.wait_for(waiting, 60)


async def test_a_cursor_from_the_future_is_taken_as_the_end(engine: Engine) -> None:
    job = await running(engine)
    watcher = asyncio.create_task(collect(engine.watch(job.job_id, after=99)))
    await until(lambda: job.job_id in engine._watch._watchers)
    await write(engine, job, 1)
    assert [e.seq for e in await asyncio.wait_for(watcher, 60)] == [3, 4]


async def test_stopping_ends_watchers(engine: Engine) -> None:
    job = await running(engine)
    seen: list[Event] = []

    async def follow() -> None:
        async for event in engine.watch(job.job_id):
            seen.append(event)  # noqa: PERF401 - the test looks on

    watcher = asyncio.create_task(follow())
    await until(lambda: len(seen) == 2)
    await engine._watch.stop()
    await asyncio.wait_for(watcher, 60)
    assert len(seen) == 2
