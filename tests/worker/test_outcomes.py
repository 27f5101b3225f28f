"""What a task returns or raises becomes the job's outcome, on each store."""

from __future__ import annotations

import asyncio
import json

import pytest

from callsheet import Callsheet, Context, Fatal, JobFailed, Retry, RetryPolicy, Snooze
from callsheet.kernel.job import NewJob, Status
from callsheet.kernel.retry import Backoff
from tests.running_worker import until, working

AT_ONCE = RetryPolicy(backoff=Backoff(table_ms=(0,)))


async def test_a_result_comes_back(app: Callsheet) -> None:
    @app.task
    async def double(n: int) -> int:
        return n * 2

    @app.task
    def shout(text: str) -> str:
        return text.upper()

    jobs = await double.enqueue_many([{"n": i} for i in range(50)])
    loud = await shout.enqueue("hello")
    await app.worker().run(burst=True)
    assert [await job.result() for job in jobs] == [i * 2 for i in range(50)]
    assert await loud.result() == "HELLO"
    assert (await loud.get()).attempt_count == 1


async def test_an_error_is_retried_and_then_a_dead_letter(app: Callsheet) -> None:
    tries: list[int] = []

    @app.task(max_attempts=3, retry=AT_ONCE)
    async def breaks(ctx: Context) -> None:
        tries.append(ctx.attempt)
        raise ValueError("no such thing as luck")

    job = await breaks.enqueue()
    async with working(app):
        with pytest.raises(JobFailed, match="no such thing as luck") as excinfo:
            await job.result(timeout=60)
    assert tries == [1, 2, 3]
    assert (await job.get()).status is Status.DEAD_LETTER
    assert excinfo.value.job_error["code"] == "ValueError"
    assert "breaks" in str(excinfo.value.job_error["details"])


@pytest.mark.parametrize("plain", [False, True], ids=["async", "thread"])
async def test_what_is_no_exception_is_an_outcome_too(small: Callsheet, plain: bool) -> None:  # noqa: FBT001
    class Panic(BaseException):
        """As extensions in other languages raise."""

    @small.task(max_attempts=1)
    async def panics(*, leave: bool) -> None:
        raise SystemExit(3) if leave else Panic("at the disco")

    @small.task(max_attempts=1)
    def panics_in_a_thread(*, leave: bool) -> None:
        raise SystemExit(3) if leave else Panic("at the disco")

    task = panics_in_a_thread if plain else panics
    jobs = [await task.enqueue(leave=leave) for leave in (True, False)]
    async with working(small) as worker:
        for job in jobs:
            with pytest.raises(JobFailed, match=r"SystemExit|at the disco"):
                await job.result(timeout=60)
        await until(lambda: not worker.runs)


async def test_retry_fatal_and_snooze_say_what_they_mean(app: Callsheet) -> None:
    snoozed: list[int] = []

    @app.task(max_attempts=2)
    async def again(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise Retry(after=0)
        return ctx.attempt

    @app.task(max_attempts=5)
    async def never() -> None:
        raise Fatal("the file is gone", code="missing")

    @app.task(max_attempts=1)
    async def later(ctx: Context) -> int:
        if len(snoozed) < 3:
            snoozed.append(ctx.attempt)
            raise Snooze(0.01)
        return ctx.attempt

    a, n, s = await again.enqueue(), await never.enqueue(), await later.enqueue()
    async with working(app):
        assert await a.result(timeout=60) == 2
        assert await s.result(timeout=60) == 1
        with pytest.raises(JobFailed, match="the file is gone"):
            await n.result(timeout=60)
    assert snoozed == [1, 1, 1]
    job = await n.get()
    assert (job.status, job.attempt_count) == (Status.FAILED, 1)
    assert json.loads(job.error or "")["code"] == "missing"


async def test_a_payload_that_does_not_fit_the_signature_fails_for_good(app: Callsheet) -> None:
    @app.task(max_attempts=5)
    async def resize(width: int) -> None: ...

    engine = await app.engine()
    (answer,) = await engine.enqueue([NewJob("01900000-0000-7000-8000-00000000aaab", "resize", '{"width":"wide"}')])
    await app.worker().run(burst=True)
    job = await engine.get(answer.job_id)
    assert (job.status, job.attempt_count) == (Status.FAILED, 1)
    assert "width: Input should be a valid integer" in (job.error or "")


@pytest.mark.parametrize("value", [object(), lambda: None, float("nan"), {1: object()}, "\ud800"], ids=range(5))
async def test_a_result_that_is_not_json_fails_with_a_clear_error(small: Callsheet, value: object) -> None:
    @small.task(max_attempts=5)
    async def odd() -> object:
        return value

    job = await odd.enqueue()
    await small.worker().run(burst=True)
    with pytest.raises(JobFailed, match="JSON"):
        await job.result()
    assert (await job.get()).attempt_count == 1


async def test_a_result_that_is_too_large_says_so(small: Callsheet) -> None:
    @small.task
    async def huge() -> str:
        return "x" * 2_000_000

    job = await huge.enqueue()
    await small.worker().run(burst=True)
    with pytest.raises(JobFailed, match="object store"):
        await job.result()


async def test_a_timeout_ends_the_attempt(app: Callsheet) -> None:
    @app.task(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(3600)

    @app.task(timeout=30, max_attempts=1)
    async def quick() -> str:
        return "in time"

    late, early = await slow.enqueue(), await quick.enqueue()
    async with working(app):
        with pytest.raises(JobFailed, match=r"timeout: the attempt took longer than 0\.05 s"):
            await late.result(timeout=60)
        assert await early.result(timeout=60) == "in time"


async def test_follow_ups_are_created_with_the_success(app: Callsheet) -> None:
    @app.task
    async def second(n: int) -> int:
        return n + 1

    @app.task(max_attempts=1)
    async def first(ctx: Context, n: int, *, fail: bool) -> str:
        follow = ctx.enqueue(second, n=n)
        if fail:
            raise Fatal("after asking for more")
        return follow

    good, bad = await first.enqueue(1, fail=False), await first.enqueue(5, fail=True)
    await app.worker().run(burst=True)
    follow = await app.job(await good.result()).get()
    assert (follow.status, follow.result, follow.correlation_id) == (Status.SUCCEEDED, "2", good.id)
    assert (await bad.get()).status is Status.FAILED
    engine = await app.engine()
    assert (await engine.store.counts())["default"][Status.SUCCEEDED] == 2


async def test_a_follow_up_that_the_store_refuses_fails_its_parent_alone(app: Callsheet) -> None:
    @app.task
    async def child() -> None: ...

    @app.task(max_attempts=5)
    async def parent(ctx: Context, *, bad: bool) -> None:
        if bad:
            ctx.enqueue(child.options(depends_on="01900000-0000-7000-8000-00000000ffff"))

    jobs = [await parent.enqueue(bad=i == 3) for i in range(6)]
    async with working(app):
        for i, job in enumerate(jobs):
            if i == 3:
                with pytest.raises(JobFailed, match="dependency_not_found"):
                    await job.result(timeout=60)
            else:
                await job.result(timeout=60)


async def test_an_attempt_that_succeeds_is_in_the_history(app: Callsheet) -> None:
    @app.task(retry=AT_ONCE)
    async def second_time(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError

    job = await second_time.enqueue()
    async with working(app):
        await job.result(timeout=60)
    engine = await app.engine()
    attempts = await engine.store.attempts(job.id)
    assert [(a.attempt, a.outcome) for a in attempts] == [(1, "retried"), (2, "succeeded")]
    assert all(a.ended_at is not None and a.started_at <= a.ended_at for a in attempts)
