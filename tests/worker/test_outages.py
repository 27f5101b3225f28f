"""An outage is nobody's fault: a task waits for the outage's end without spending an attempt."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import Literal

import pytest

from callsheet import Callsheet, Context, JobFailed, Outage, RetryPolicy
from callsheet.kernel import commands
from callsheet.kernel.errors import DiskFull, StoreUnavailable
from callsheet.kernel.job import Status
from callsheet.kernel.retry import Backoff
from callsheet.objects.errors import ObjectsUnavailable
from callsheet.worker import child
from callsheet.worker.disk import DiskRoom, Usage
from callsheet.worker.execute import after_error
from callsheet.worker.health import Health
from callsheet.worker.outages import outage_of
from callsheet.worker.remote.wire import move_of
from tests.kernel.jobs import a_job
from tests.running_worker import until, working
from tests.worker import tasks_in_processes

from .conftest import events_of

FULL = Path("/dev/full")  # every write there fails for lack of room
AT_ONCE = Backoff(table_ms=(0,))
Executor = Literal["async", "thread", "process"]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "OUTAGE_BACKOFF", Backoff(table_ms=(1,), low=1.0))


async def test_a_task_that_meets_an_outage_waits_and_spends_no_attempt(app: Callsheet) -> None:
    attempts: list[int] = []
    outages = [Outage("the bank is closed", waits_for="the bank"), ObjectsUnavailable("away"), StoreUnavailable("away")]

    @app.task(max_attempts=1)
    async def pays(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if outages:
            raise outages.pop(0)
        return "paid"

    job = await pays.enqueue()
    async with working(app):
        assert await job.result(timeout=60) == "paid"
    assert attempts == [1, 1, 1, 1]
    assert (await job.get()).attempt_count == 1
    events = await events_of(app, job.job_id)
    assert events.count("waiting") == 3
    assert "retrying" not in events


async def test_a_waiting_job_says_what_it_waits_for(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "OUTAGE_BACKOFF", Backoff(base_ms=3_600_000))

    @app.task(max_attempts=1)
    async def stores() -> None:
        raise ObjectsUnavailable("put it: the storage cannot be reached")

    handle = await stores.enqueue()
    await app.worker().run(burst=True)
    job = await handle.get()
    assert (job.status, job.attempt_count) == (Status.QUEUED, 0)
    error = json.loads(job.error or "")
    assert error["message"] == "waiting for storage: put it: the storage cannot be reached"
    assert error["details"]["waits_for"] == "storage"


async def test_patience_has_an_end_where_a_policy_says_so(app: Callsheet) -> None:
    attempts: list[int] = []

    @app.task(max_attempts=2, retry=RetryPolicy(backoff=AT_ONCE, outage_ms=2))
    async def stores(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise ObjectsUnavailable("away")

    job = await stores.enqueue()
    async with working(app):
        with pytest.raises(JobFailed, match="away"):
            await job.result(timeout=60)
    assert attempts == [1, 1, 1, 2, 2, 2]
    assert (await job.get()).status is Status.DEAD_LETTER


@pytest.mark.parametrize("executor", ["async", "thread", "process"])
async def test_a_full_disk_is_waited_for(small: Callsheet, tmp_path: Path, executor: Executor) -> None:
    target = tmp_path / "target"
    target.symlink_to(FULL)
    name = f"{executor}_writes"
    task = small.task(name=name, max_attempts=1, executor=executor)(getattr(tasks_in_processes, name))
    job = await task.enqueue(str(target))
    async with working(small) as worker:
        await until(lambda: _has_moved_on(small, job.job_id))
        assert "waiting" in await events_of(small, job.job_id)
        target.unlink()
        assert await job.result(timeout=60) == "written"
        await until(lambda: not worker.runs)
    assert (await job.get()).attempt_count == 1


async def _has_moved_on(app: Callsheet, job_id: str) -> bool:
    """Whether the job waits, or has ended."""
    return bool({"waiting", "error", "done"} & set(await events_of(app, job_id)))


def test_which_errors_are_outages() -> None:
    away, full = ObjectsUnavailable("away"), OSError(errno.ENOSPC, "No space left on device")
    assert outage_of(away) is away
    assert isinstance(outage_of(full), DiskFull)
    assert isinstance(outage_of(OSError(errno.EDQUOT, "quota")), DiskFull)
    assert outage_of(BaseExceptionGroup("both", [away, full])) is away
    assert outage_of(BaseExceptionGroup("one of them", [away, ValueError()])) is None
    assert outage_of(OSError(errno.EACCES, "not yours")) is None
    assert outage_of(ValueError("away")) is None


def test_how_long_a_service_asked_to_be_left_alone_is_known_on_all_ways() -> None:
    outage = Outage("closed", waits_for="the bank", after_s=120.0)
    there = child.error_of(child.error_words(outage))  # out of a child process
    assert isinstance(there, Outage)
    assert (there.waits_for, there.after_s) == ("the bank", 120.0)
    settlement = after_error(a_job(), there)
    assert settlement.delay_ms == 120_000
    move = move_of(settlement)  # to a server, which decides anew
    assert (move["do"], move["waits_for"], move["delay_ms"]) == ("release", "the bank", 120_000)
    assert "delay_ms" not in move_of(after_error(a_job(), Outage("closed"))), "the server's own pauses"


async def test_a_worker_on_a_full_disk_claims_nothing_and_goes_on_when_there_is_room(
    app: Callsheet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usage = Usage(10**9, 0)
    monkeypatch.setattr(
        "callsheet.worker.shift.DiskRoom", lambda folder: DiskRoom(folder, lambda _: usage, look_every_s=0)
    )

    @app.task
    async def work() -> str:
        return "done"

    job = await work.enqueue()
    async with working(app, workspaces=tmp_path, poll=0.05) as worker, Health(worker, "127.0.0.1", 0) as health:
        await until(lambda: worker.full_disk is not None)
        status, body = await _get(health.port, "/readyz")
        assert status == 503
        assert str(tmp_path) in json.loads(body)["reason"]
        assert "no job is claimed" in caplog.text
        assert (await job.get()).status is Status.QUEUED
        usage = Usage(10**9, 10**9)
        assert await job.result(timeout=60) == "done"
        await until(lambda: worker.ready)


async def _get(port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    ("total", "free", "is_full"),
    [(10**12, 99 << 20, True), (10**12, 101 << 20, False), (64 << 20, 1 << 20, True), (64 << 20, 2 << 20, False)],
)
def test_a_small_disk_is_full_later(tmp_path: Path, total: int, free: int, is_full: bool) -> None:  # noqa: FBT001
    assert DiskRoom(tmp_path, lambda _: Usage(total, free)).is_full() is is_full


def test_a_disk_that_cannot_be_read_is_not_full(tmp_path: Path) -> None:
    assert not DiskRoom(tmp_path, lambda _: None).is_full()
    assert not DiskRoom(tmp_path / "not" / "made" / "yet").is_full()
