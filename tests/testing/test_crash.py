from __future__ import annotations

import inspect

import pytest

from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.job import Outcome, Status
from callsheet.store import store_from_url
from callsheet.store.protocol import Store
from callsheet.testing import Clock, Harness, harness
from callsheet.testing.clock import VirtualStore

from .tasks import app, done, double, film, film_in_a_process, film_in_a_thread, shy, stubborn

BEFORE_THE_CRASH = [
    ("start", []),
    ("step:voice", ["voice"]),
    ("stage:drawing", ["voice"]),
    ("progress", ["voice", "pictures"]),
    ("progress:80", ["voice", "pictures", "cut"]),
    ("work", ["voice", "pictures", "cut", "end"]),
]


@pytest.mark.parametrize(("after", "before"), BEFORE_THE_CRASH)
async def test_a_worker_dies_where_it_is_told_and_the_job_runs_again(
    jobs: Harness, after: str, before: list[str]
) -> None:
    job = await film.enqueue(title="cat")
    jobs.crash(film, after=after)
    assert await jobs.run() == []
    assert done == before
    assert (await jobs.job(job)).status is Status.RUNNING
    assert await jobs.advance("29s") == []  # the lease has not run out
    done.clear()
    assert len(await jobs.advance("2s")) == 2
    rest = ["pictures", "cut", "end", "double 7"]
    assert done == (["voice", *rest] if after == "start" else rest)  # a step that was kept is not done again
    assert await jobs.result(job) == "cat.wav"
    assert [attempt.outcome for attempt in await jobs.attempts(job)] == [Outcome.LEASE_LOST, Outcome.SUCCEEDED]
    assert jobs.enqueued(double) == [{"number": 7}]  # the follow-up of the lost attempt was never made


async def test_a_plain_function_stops_at_its_step(jobs: Harness) -> None:
    await film_in_a_thread.enqueue()
    jobs.crash(film_in_a_thread, after="step:voice")
    await jobs.run()
    assert done == ["voice"]
    await jobs.advance("1m")
    assert done == ["voice", "after"]


async def test_a_function_in_a_process_stops_at_its_step(jobs: Harness) -> None:
    job = await film_in_a_process.enqueue("cat")
    jobs.crash(film_in_a_process, after="step:voice")
    await jobs.run()
    assert (await jobs.job(job)).status is Status.RUNNING
    await jobs.advance("1m")
    assert await jobs.result(job) == "cat by 1, ended by 2"


async def test_other_jobs_are_not_hurt(jobs: Harness) -> None:
    await double.enqueue(number=1)
    lost_job = await film.enqueue(title="x")
    kept_job = await film.enqueue(title="y")
    jobs.crash(film, after="step:voice")
    await jobs.run()
    assert (await jobs.job(lost_job)).status is Status.RUNNING
    assert await jobs.result(kept_job) == "y.wav"
    assert "double 1" in done


async def test_a_job_that_kills_its_workers_becomes_a_dead_letter(jobs: Harness) -> None:
    job = await double.options(max_attempts=3).enqueue(number=1)
    for _ in range(3):
        jobs.crash(double)
    await jobs.advance("10m")
    assert (await jobs.job(job)).status is Status.DEAD_LETTER
    assert done == ["double 1"] * 3


async def test_a_crashed_job_can_be_cancelled(jobs: Harness) -> None:
    job = await film.enqueue(title="x")
    jobs.crash(film, after="step:voice")
    await jobs.run()
    await job.cancel()
    (ended_job,) = await jobs.advance("1m")
    assert ended_job.status is Status.CANCELED


async def test_a_crash_that_cannot_happen_is_told() -> None:
    async with harness(app) as jobs:
        await film.enqueue(title="x")
        jobs.crash(film, after="step:voize")
        with pytest.raises(AssertionError, match="film came to its end before 'step:voize'"):
            await jobs.run()
        jobs._mortal.missed_crashes.clear()
    with pytest.raises(AssertionError, match="stubborn was not run up to 'work'"):
        async with harness(app) as jobs:
            jobs.crash(stubborn)


async def test_the_attempt_after_a_snooze_is_meant(jobs: Harness) -> None:
    job = await shy.enqueue()
    jobs.crash(shy, after="stage:ready")
    await jobs.advance("2h")
    assert (await jobs.job(job)).status is Status.RUNNING


@pytest.mark.parametrize("after", ["", "step", "step:", "progress:half", "lunch"])
async def test_a_point_that_does_not_exist_is_refused(jobs: Harness, after: str) -> None:
    with pytest.raises(InvalidInput, match="no worker can die after"):
        jobs.crash(film, after=after)


async def test_every_verb_that_takes_a_time_takes_the_clocks() -> None:
    seen: dict[str, int | None] = {}
    real = store_from_url("sqlite::memory:")

    class Notes:
        def __getattr__(self, name: str) -> object:
            async def verb(*args: object, now: int | None = None, **kwargs: object) -> list[object]:
                seen[name] = now
                return []

            verb.__signature__ = inspect.signature(getattr(real, name))  # type: ignore[attr-defined]
            return verb

    clock = Clock()
    store = VirtualStore(Notes(), clock)  # type: ignore[arg-type] # it only takes notes
    timed = [name for name in dir(Store) if "now" in getattr(getattr(Store, name), "__annotations__", {})]
    assert len(timed) >= 10
    for name in timed:
        required = [
            p.name
            for p in inspect.signature(getattr(real, name)).parameters.values()
            if p.default is p.empty and p.kind is p.KEYWORD_ONLY
        ]
        positional = [()] if name in ("enqueue", "claim", "settle") else []
        await getattr(store, name)(*positional, **dict.fromkeys(required, 1))
    assert seen == dict.fromkeys(timed, clock.ms)
