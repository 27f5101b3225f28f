from __future__ import annotations

import asyncio

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import Event, NewEvent
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import Hint
from tests.store_driver import T0, StoreDriver


@pytest.mark.guarantee("S21")
async def test_events_resume_after_any_point(driver: StoreDriver) -> None:
    job = await driver.running()
    for n in range(8):
        driver.later(3)
        await driver.settle(commands.note(job, NewEvent("log", "s", f'{{"n":{n}}}')))
    everything = await driver.events(job.job_id)
    assert [e.seq for e in everything] == list(range(1, 11))
    for after in range(12):
        assert await driver.events(job.job_id, after) == everything[after:]
    assert await driver.events(job.job_id, 2, limit=3) == everything[2:5]
    assert everything[9].data == '{"n":7}'


def told(events: list[Event]) -> list[tuple[int, int, str, str, float]]:
    return [(e.seq, e.ms - T0, e.type, e.step, e.progress) for e in events]


@pytest.mark.guarantee("S21")
async def test_the_history_of_a_plain_success_is_whole(driver: StoreDriver) -> None:
    job_id = await driver.add()
    driver.later(5)
    job = await driver.claim_one()
    queued, running = (1, 0, "queued", "gateway.enqueue", 0.0), (2, 5, "running", "", 0.0)
    assert told(await driver.events(job_id)) == [queued, running]
    driver.later(7)
    await driver.done(job)
    everything = await driver.events(job_id)
    assert told(everything) == [queued, running, (3, 12, "done", "", 100.0)]
    assert {e.data for e in everything} == {"{}"}
    assert [await driver.events(job_id, after) for after in range(4)] == [everything[after:] for after in range(4)]
    assert await driver.events(job_id, 1, limit=1) == everything[1:2]


@pytest.mark.guarantee("S21")
async def test_an_end_says_the_stage_that_its_command_knew(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.settle(commands.advance(job, "voice"))
    await driver.done(job)
    assert [e.step for e in await driver.events(job.job_id)] == ["gateway.enqueue", "", "voice", ""]


@pytest.mark.guarantee("S21")
@pytest.mark.parametrize("report_again", [False, True])
async def test_the_history_of_a_job_that_was_tried_twice_is_whole(driver: StoreDriver, *, report_again: bool) -> None:
    job = await driver.running(max_attempts=3)
    driver.later(1)
    await driver.settle(commands.advance(job, "voice"))
    job = await driver.get(job.job_id)
    await driver.settle(commands.progress(job, 40))
    driver.later(1)
    await driver.settle(commands.retry(job, JobError("E", "no"), delay_ms=60_000))
    driver.later(60_000)
    again = await driver.claim_one()
    if report_again:
        driver.later(1)
        await driver.settle(commands.progress(again, 50))
    driver.later(1)
    await driver.done(again)
    first = [(1, 0, "queued", "gateway.enqueue", 0.0), (2, 0, "running", "", 0.0), (3, 1, "stage", "voice", 0.0)]
    assert told(await driver.events(job.job_id)) == [
        *first,
        (4, 1, "progress", "voice", 40.0),
        (5, 2, "retrying", "voice", 40.0),
        (6, 60_002, "running", "", 40.0),
        *([(7, 60_003, "progress", "", 50.0)] if report_again else []),
        (7 + report_again, 60_003 + report_again, "done", "", 100.0),
    ]
    assert [(a.started_at - T0, a.ended_at and a.ended_at - T0) for a in await driver.store.attempts(job.job_id)] == [
        (0, 2),
        (60_002, 60_003 + report_again),
    ]


@pytest.mark.guarantee("S21")
async def test_many_jobs_are_read_at_once(driver: StoreDriver) -> None:
    a, b, c = [await driver.running() for _ in range(3)]
    result = await driver.store.events({a.job_id: 1, b.job_id: 0, c.job_id: 2}, 10)
    by_job = {j.job_id: [e.seq for e in result if e.job_id == j.job_id] for j in (a, b, c)}
    assert by_job == {a.job_id: [2], b.job_id: [1, 2], c.job_id: []}
    assert await driver.store.events({}, 10) == []


@pytest.mark.guarantee("S21")
async def test_text_of_any_kind_survives(driver: StoreDriver) -> None:
    data = '{"text":"CR\\r LF\\n \u2028 \U0001f3ac \\u0000 ü"}'
    job = await driver.running(payload=data)
    await driver.settle(commands.note(job, NewEvent("log", "étape 1", data)), commands.succeed(job, data))
    after = await driver.get(job.job_id)
    events = await driver.events(job.job_id)
    assert (after.payload, after.result) == (data, data)
    assert (events[2].data, events[2].step) == (data, "étape 1")


async def test_a_hint_follows_a_write(driver: StoreDriver) -> None:
    hints = driver.store.hints()
    waiting = asyncio.ensure_future(anext(aiter(hints)))
    await asyncio.sleep(0.05)
    job_id = await driver.add(queue="q")
    hint = await asyncio.wait_for(waiting, 60)
    assert hint == Hint() or "q" in hint.queues or job_id in hint.jobs
    await hints.aclose()  # type: ignore[attr-defined]
