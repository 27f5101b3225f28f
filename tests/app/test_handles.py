"""What the caller of `enqueue` holds, from async code and from plain code."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callsheet import Callsheet, Context, JobFailed, ResultTimeout
from callsheet.kernel.errors import IdempotencyConflict, InvalidInput, JobNotFound
from callsheet.kernel.job import Status
from tests import stores


@pytest.fixture
async def app(url: str) -> AsyncIterator[Callsheet]:
    app = Callsheet(url)
    await app.migrate()

    @app.task
    async def double(ctx: Context, n: int) -> int:
        await ctx.progress(50)
        return n * 2

    async with app:
        yield app


async def test_waiting_for_a_result_beside_a_worker(app: Callsheet) -> None:
    worker = app.worker()
    working = asyncio.create_task(worker.run())
    jobs = await app.tasks["double"].enqueue_many([{"n": i} for i in range(30)])
    assert await asyncio.gather(*(job.result(timeout=60) for job in jobs)) == [i * 2 for i in range(30)]
    worker.stop()
    await working


async def test_a_result_that_takes_too_long_is_told_and_the_job_goes_on(app: Callsheet) -> None:
    job = await app.tasks["double"].enqueue(n=1)
    with pytest.raises(ResultTimeout, match="it goes on"):
        await job.result(timeout=0.05)
    await app.worker().run(burst=True)
    assert await job.result(timeout=60) == 2


async def test_events_are_followed_from_anywhere(app: Callsheet) -> None:
    job = await app.tasks["double"].enqueue(n=1)
    following = asyncio.create_task(_types(job.events()))
    await app.worker().run(burst=True)
    assert await following == ["queued", "running", "progress", "done"]
    assert await _types(app.job(job.id).events(after=2)) == ["progress", "done"]


async def test_keys_find_the_earlier_job(app: Callsheet) -> None:
    double = app.tasks["double"]
    first = await double.enqueue(n=1, unique_key="u")
    again = await double.enqueue(n=2, unique_key="u")
    assert (again.id, again.created, first.created) == (first.id, False, True)
    one = await double.enqueue(n=1, idempotency_key="k")
    assert (await double.enqueue(n=1, idempotency_key="k")).id == one.id
    with pytest.raises(IdempotencyConflict):
        await double.enqueue(n=2, idempotency_key="k")


async def test_a_job_waits_for_those_it_depends_on(app: Callsheet) -> None:
    double = app.tasks["double"]
    first = await double.enqueue(n=1)
    second = await double.enqueue(n=2, depends_on=[first])
    assert (await second.get()).held == "dependency"
    await app.worker().run(burst=True)
    assert await second.result(timeout=60) == 4
    assert (await second.get()).started_at >= (await first.get()).ended_at  # type: ignore[operator]


async def test_a_batch_of_several_tasks_is_all_or_none(app: Callsheet) -> None:
    double = app.tasks["double"]
    good = double.new_job(n=1)
    with pytest.raises(Exception, match="depends on"):
        await app.enqueue([good, double.new_job(n=2, depends_on="01900000-0000-7000-8000-00000000ffff")])
    with pytest.raises(JobNotFound):
        await app.job(good.job_id).get()


async def test_a_failed_job_can_be_brought_back(app: Callsheet) -> None:
    healthy = False

    @app.task(max_attempts=1)
    async def fragile() -> str:
        if not healthy:
            raise RuntimeError("down")
        return "up"

    job = await fragile.enqueue()
    await app.worker().run(burst=True)
    with pytest.raises(JobFailed, match="down"):
        await job.result()
    healthy = True
    await job.retry()
    await app.worker().run(burst=True)
    assert await job.result() == "up"


async def test_the_app_opens_when_it_is_first_used_once_for_each_loop(app: Callsheet) -> None:
    engines = await asyncio.gather(*(app.engine() for _ in range(10)))
    assert len(set(map(id, engines))) == 1
    await app.close()
    assert (await app.tasks["double"].enqueue(n=1)).created
    await app.close()
    await app.close()


async def test_a_caller_that_is_cancelled_does_not_take_the_others_with_it(app: Callsheet) -> None:
    await app.close()
    first = asyncio.create_task(app.engine())
    second = asyncio.create_task(app.engine())
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).store is not None


def test_plain_code_has_a_face_of_its_own(url: str) -> None:
    app = Callsheet(url)

    @app.task
    def shout(text: str) -> str:
        return text.upper()

    app.sync(app.migrate())
    job = app.sync(shout.enqueue(text="hello"))
    worker = app.worker()
    thread = threading.Thread(target=lambda: app.sync(worker.run(burst=True)))
    thread.start()
    assert app.sync(job.result(timeout=60)) == "HELLO"
    thread.join(20)
    assert [event.type for event in app.sync_iterate(job.events())] == ["queued", "running", "done"]
    assert app.sync(job.status()) is Status.SUCCEEDED
    with pytest.raises(ResultTimeout):
        app.sync(asyncio.sleep(30), timeout=0.05)
    app.sync(app.close())


async def test_plain_calls_are_refused_where_they_would_block_the_loop(app: Callsheet) -> None:
    with pytest.raises(InvalidInput, match="await the call instead"):
        app.sync(app.migrate())


def test_a_script_ends_by_itself(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from callsheet import Callsheet\n"
        f"app = Callsheet('{stores.fresh_url('sqlite')}')\n"
        "@app.task\n"
        "def greet(name: str) -> str: return f'hello {name}'\n"
        "job = app.sync(greet.enqueue(name='you'))\n"
        "app.sync(app.worker().run(burst=True))\n"
        "print(app.sync(job.result(timeout=60)))\n"
    )
    process = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (process.stdout, process.stderr, process.returncode) == ("hello you\n", "", 0)


async def _types(events: AsyncIterator[object]) -> list[str]:
    return [event.type async for event in events]  # type: ignore[attr-defined]
