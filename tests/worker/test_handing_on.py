"""A worker without a job's task passes the job to other workers, free of charge, before giving up."""

from __future__ import annotations

import json
import logging

import pytest

from callsheet import Callsheet
from callsheet.kernel import handing_on
from callsheet.kernel.job import HoldReason, NewJob, Outcome, Status
from callsheet.kernel.retry import Backoff
from callsheet.testing import harness
from callsheet.worker import execute
from callsheet.worker.definition import Executor
from tests.running_worker import until, working

from . import tasks_in_processes
from .conftest import events_of

JOB = "01900000-0000-7000-8000-00000000aaaa"
SOON = Backoff(base_ms=1, cap_ms=3)


async def lacking(app: Callsheet, kind: str = "gone_with_the_deploy") -> NewJob:
    """Enqueue a job whose task the app lacks."""
    app.task(name="something_else")(tasks_in_processes.double)
    new = NewJob(JOB, kind, '{"n":4}', max_attempts=1)
    await (await app.engine()).enqueue([new])
    return new


async def test_it_goes_back_and_rests_and_no_attempt_is_spent(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing_on, "BACKOFF", Backoff(base_ms=3_600_000))  # no pause of this machine is as long
    await lacking(app)
    await app.worker().run(burst=True)
    engine = await app.engine()
    job = await engine.get(JOB)
    assert (job.status, job.held, job.attempt_count) == (Status.QUEUED, HoldReason.DELAY, 0)
    assert job.run_at - job.updated_at >= 1_800_000, "who lacks the task does not take the job again at once"
    assert [attempt.outcome for attempt in await engine.store.attempts(JOB)] == [Outcome.RELEASED]
    assert await events_of(app, JOB) == ["queued", "running", "waiting"]
    assert "waiting for a worker with the task 'gone_with_the_deploy'" in json.loads(job.error or "")["message"]


@pytest.mark.parametrize("executor", ["async", "thread", "process"])
async def test_a_worker_that_has_the_task_takes_it(
    app: Callsheet, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_on, "BACKOFF", SOON)
    await lacking(app, "double")
    other = Callsheet(app.database_url)
    other.task(name="double", executor=executor)(
        tasks_in_processes.double if executor != "async" else tasks_in_processes.double_soon
    )
    async with other, working(app):
        await until(lambda: _waits(app))
        async with working(other):
            assert await app.job(JOB).result(timeout=60) == 8
    job = await (await app.engine()).get(JOB)
    assert (job.status, job.attempt_count, job.error) == (Status.SUCCEEDED, 1, None)


async def _waits(app: Callsheet) -> bool:
    return "waiting" in await events_of(app, JOB)


async def test_patience_ends_as_a_dead_letter_that_says_what_to_do(
    app: Callsheet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handing_on, "BACKOFF", SOON)
    execute.tell_lacking.cache_clear()
    await lacking(app)
    with caplog.at_level(logging.WARNING, "callsheet.worker"):
        async with working(app, task_patience=0.01):
            await until(lambda: _has_ended(app))
    job = await (await app.engine()).get(JOB)
    error = json.loads(job.error or "")
    assert (job.status, error["code"]) == (Status.DEAD_LETTER, "unknown_task")
    assert "no task 'gone_with_the_deploy' is declared" in error["message"]
    assert "start a worker of the queue 'default' that has it, then retry the job" in error["message"]
    assert caplog.text.count("its jobs are handed on") == 1, "once for each name, not for each job"
    assert (await events_of(app, JOB)).count("waiting") >= 4


async def _has_ended(app: Callsheet) -> bool:
    return (await (await app.engine()).get(JOB)).status.terminal


async def test_without_patience_it_is_a_dead_letter_at_once(app: Callsheet) -> None:
    await lacking(app)
    await app.worker(task_patience=0).run(burst=True)
    job = await (await app.engine()).get(JOB)
    assert (job.status, await events_of(app, JOB)) == (Status.DEAD_LETTER, ["queued", "running", "error"])


async def test_a_harness_has_no_other_workers(small: Callsheet) -> None:
    async with harness(small) as jobs:
        await lacking(small)
        await jobs.run()
        assert (await jobs.job(JOB)).status is Status.DEAD_LETTER
