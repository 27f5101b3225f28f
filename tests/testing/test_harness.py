from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from callsheet import Callsheet, JobCanceled, JobFailed, ResultTimeout
from callsheet.engine.schedules import Schedule, put_schedule
from callsheet.kernel.errors import InvalidInput, JobNotFound
from callsheet.kernel.job import Status
from callsheet.testing import Harness, harness, harness_sync

from . import tasks
from .tasks import app, asks_for_more, done, double, endless, film, patient, shy, stubborn


async def test_run_brings_what_is_due_to_its_end(jobs: Harness) -> None:
    job = await double.enqueue(number=2)
    assert done == []
    assert [ended.job_id for ended in await jobs.run()] == [job.job_id]
    assert await jobs.result(job) == 4
    assert (await jobs.job(job)).status is Status.SUCCEEDED
    assert [event.type for event in await jobs.events(job)] == ["queued", "running", "done"]
    assert await jobs.run() == []


async def test_run_serves_queues_that_no_task_names(jobs: Harness) -> None:
    job = await double.enqueue(number=1, queue="elsewhere")  # type: ignore[call-arg] # an option among the arguments
    await jobs.run()
    assert await jobs.result(job.job_id) == 2


async def test_enqueued_lists_the_arguments_in_order_with_follow_ups(jobs: Harness) -> None:
    await double.enqueue(number=1)
    await double.enqueue_many([{"number": 2}, {"number": 3}])
    await film.enqueue(title="x")
    assert jobs.enqueued(double) == [{"number": 1}, {"number": 2}, {"number": 3}]
    await jobs.run()
    assert jobs.enqueued("double")[3:] == [{"number": 7}]
    assert jobs.enqueued(stubborn) == []


async def test_a_job_that_a_key_found_is_not_enqueued_twice(jobs: Harness) -> None:
    keyed = double.options(unique_key="one")
    first, second = await keyed.enqueue(number=1), await keyed.enqueue(number=2)
    assert (first.job_id, second.created) == (second.job_id, False)
    assert jobs.enqueued(double) == [{"number": 1}]


async def test_a_delayed_job_waits_for_the_virtual_clock(jobs: Harness) -> None:
    at = jobs.clock.now() + timedelta(hours=2)
    by_delay = await double.options(delay="1h").enqueue(number=1)
    by_time = await double.options(run_at=at).enqueue(number=2)
    assert await jobs.run() == []
    assert await jobs.advance("59m") == []
    assert [job.job_id for job in await jobs.advance("1m")] == [by_delay.job_id]
    assert [job.job_id for job in await jobs.advance("1h")] == [by_time.job_id]


async def test_advance_stops_at_each_moment_on_the_way(jobs: Harness) -> None:
    job = await stubborn.enqueue()
    begin = jobs.clock.ms
    (ended_job,) = await jobs.advance("1d")
    assert (ended_job.status, done) == (Status.DEAD_LETTER, ["stubborn"] * 3)
    assert jobs.clock.ms == begin + 86_400_000
    first, second, third = [attempt.started_at - begin for attempt in await jobs.attempts(job)]
    assert first == 0
    assert 30_000 <= second <= 60_000
    assert 150_000 <= third - second <= 300_000


async def test_a_schedule_fires_at_each_slot_that_passes(jobs: Harness) -> None:
    engine = await app.engine()
    await put_schedule(engine.store, Schedule("hourly", "0 * * * *", "double", '{"number":3}'))
    await jobs.advance("3h")
    assert jobs.enqueued(double) == [{"number": 3}] * 3
    assert len(done) == 3


async def test_time_passes_for_retention_too(jobs: Harness) -> None:
    job = await double.options(ttl="1m").enqueue(number=1)
    await jobs.run()
    await jobs.advance("2m")
    with pytest.raises(JobNotFound):
        await jobs.job(job)


async def test_a_snoozed_job_comes_back(jobs: Harness) -> None:
    job = await shy.enqueue()
    await jobs.advance("2h")
    assert done == ["shy"] * 3
    assert await jobs.result(job) is None


async def test_the_result_of_a_job_that_has_not_ended_says_why_at_once(jobs: Harness) -> None:
    job = await stubborn.enqueue()
    with pytest.raises(ResultTimeout, match=r"await jobs\.run\(\)"):
        await jobs.result(job)
    await jobs.run()
    with pytest.raises(ResultTimeout, match=r"(?s)it is due in [\d.]+ s; its last attempt.*no luck"):
        await jobs.result(job)
    await jobs.advance("1h")
    with pytest.raises(JobFailed) as excinfo:
        await jobs.result(job)
    assert "in stubborn" in excinfo.value.__notes__[0]


async def test_a_failed_attempt_is_logged_with_its_traceback(jobs: Harness, caplog: pytest.LogCaptureFixture) -> None:
    await stubborn.enqueue()
    with caplog.at_level(logging.WARNING, "callsheet.testing"):
        await jobs.run()
    assert "RuntimeError: no luck" in caplog.text


async def test_broken_dependents_are_canceled(jobs: Harness) -> None:
    parent = await stubborn.enqueue()
    child = await double.options(depends_on=parent).enqueue(number=1)
    await jobs.advance("1h")
    with pytest.raises(JobCanceled):
        await jobs.result(child)


async def test_a_job_without_an_end_is_stopped(jobs: Harness) -> None:
    await endless.enqueue()
    with pytest.raises(RuntimeError, match="20 attempts and no end"):
        await jobs.run(limit=20)


async def test_a_limit_that_is_just_enough_is_enough(jobs: Harness) -> None:
    await double.enqueue_many([{"number": n} for n in range(30)])
    assert len(await jobs.run(limit=30)) == 30


async def test_a_running_job_can_be_cancelled(jobs: Harness) -> None:
    job = await patient.enqueue()
    running = asyncio.create_task(jobs.run())
    while not done:
        await asyncio.sleep(0.001)
    await job.cancel("enough")
    (ended_job,) = await running
    assert (ended_job.status, ended_job.cancel_reason) == (Status.CANCELED, "enough")


async def test_a_plain_function_may_use_the_app_from_its_thread(jobs: Harness) -> None:
    await asks_for_more.enqueue(number=4)
    await jobs.run()
    assert len(done) == 2
    assert "double 4" in done


async def test_code_on_another_event_loop_sees_the_same_jobs(jobs: Harness) -> None:
    async def elsewhere() -> Any:
        async with app:  # as the lifespan of a web application does
            return await (await double.enqueue(number=5)).result(timeout="60s")

    other = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    while not other.done():
        await jobs.run()
        await asyncio.sleep(0.005)
    assert await other == 10
    assert jobs.enqueued(double) == [{"number": 5}]


async def test_opening_and_closing_the_app_inside_keeps_the_jobs(jobs: Harness) -> None:
    async with app:
        job = await double.enqueue(number=1)
    await jobs.run()
    assert await jobs.result(job) == 2


async def test_the_app_is_given_back_as_it_was(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/real.db"
    own = Callsheet(url)

    @own.task
    async def nothing() -> None: ...

    async with own:
        real = await nothing.enqueue()
        async with harness(own) as outer:
            await nothing.enqueue()
            async with harness(own) as inner:
                assert inner.enqueued(nothing) == []
            assert len(await outer.run()) == 1
            assert own.database_url == "sqlite::memory:"
        assert own.database_url == url
        assert await real.status() is Status.QUEUED


async def test_the_clock_begins_where_it_is_told() -> None:
    at = datetime(2030, 1, 31, 12, tzinfo=UTC)
    async with harness(app, at=at) as jobs:
        job = await double.enqueue(number=1)
        assert jobs.clock.now() == at
        jobs.clock.move("1d")
        await jobs.run()
        assert (await jobs.job(job)).ended_at == round(datetime(2030, 2, 1, 12, tzinfo=UTC).timestamp() * 1000)
    with pytest.raises(InvalidInput, match="time zone"):
        async with harness(app, at=datetime(2030, 1, 1)):  # noqa: DTZ001 - that is the point
            pass


def test_a_test_without_an_event_loop() -> None:
    tasks.done.clear()
    with harness_sync(app) as jobs:
        job = app.sync(double.enqueue(number=1))
        jobs.crash(double)
        app.sync(jobs.run())
        app.sync(jobs.advance("1m"))
        assert app.sync(jobs.result(job)) == 2
    assert done == ["double 1"] * 2
    assert app.database_url == "sqlite:///never-opened.db"


def test_an_error_in_a_test_without_an_event_loop_is_the_tests_own() -> None:
    with pytest.raises(KeyError), harness_sync(app):
        raise KeyError("mine")
