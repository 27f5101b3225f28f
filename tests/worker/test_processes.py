"""`executor="process"`: tasks that hold the interpreter, crash, or are killed with all their children."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from callsheet import Callsheet, JobCanceled, JobFailed, JobHandle
from callsheet.kernel.job import Job, Status
from callsheet.kernel.wire import decode
from callsheet.store.protocol import JobQuery
from tests import stores
from tests.running_worker import until, working

TASKS = """
import ctypes, os, signal, subprocess, sys, threading, time
from pathlib import Path
from pydantic import BaseModel
from callsheet import Backoff, Callsheet, CallsheetError, Context, Fatal, Retry, RetryPolicy, Snooze
app = Callsheet(URL)
process = {"executor": "process", "retry": RetryPolicy(max_attempts=2, backoff=Backoff(table_ms=(0,)))}
class Size(BaseModel): width: int
class Boom(Exception): ...
def wait_for(path):
    until = time.monotonic() + 60
    while not Path(path).exists(): assert time.monotonic() < until
@app.task(**process)
def size_of(size: Size, times: float) -> Size:
    return Size(width=round(size.width * times))
@app.task(**process)
def whoami() -> int:
    return os.getpid()
@app.task(**process)
def meet(mine: str, other: str) -> int:
    Path(mine).touch()
    wait_for(other)  # holds this interpreter
    return os.getpid()
@app.task(**process)
def report(ctx: Context, fail_on: int) -> list[str]:
    ctx.stage("decoding").wait(60)
    ctx.progress(25.0, "a quarter")
    ctx.log("a line", codec="h264")
    made = ctx.step("voice").run_blocking(lambda: [os.urandom(8).hex(), 1])
    with ctx.step("picture") as step:
        if not step.done: step.result = made
    (ctx.workspace / "file").write_text("x")
    ctx.enqueue(whoami)
    if ctx.attempt == fail_on: raise Retry(after=0)
    try: ctx.stage("")
    except CallsheetError as error: wrong = type(error).__name__
    ctx.raise_if_cancelled()
    facts = [ctx.job_id, ctx.job.stage, ctx.job.progress, ctx.cancelled, ctx.stop_reason, wrong]
    return [*map(str, facts), str(ctx.workspace), step.result[0]]
@app.task(**process)
def left_behind(ctx, path: str) -> int:
    def late():
        wait_for(path)
        try: ctx.progress(99)
        except CallsheetError as error: Path(path + ".said").write_text(type(error).__name__)
    threading.Thread(target=late, daemon=True).start()
    return ctx.children.popen("sleep", "100").pid
@app.task(**process)
def ends(how: str) -> int:
    match how:
        case "retry": raise Retry("later", after="1h")
        case "fatal": raise Fatal("never", code="no_voice")
        case "snooze": raise Snooze("1h")
        case "boom": raise Boom("it broke")
        case "not json": return object()
        case "_exit": os._exit(3)
        case "exit": sys.exit(4)
        case "kill": os.kill(os.getpid(), signal.SIGKILL)
        case "fork":
            if os.fork() == 0: time.sleep(100)
            os._exit(5)
        case pipe if Path(pipe).is_fifo():
            return ctypes.PyDLL(None).read(os.open(pipe, os.O_RDONLY), ctypes.create_string_buffer(1), 1)
        case "hear":
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            (program := subprocess.Popen(["sleep", "100"])).terminate()
            return program.wait(60)
@app.task(timeout=3.0, **process)
def slow(ctx, path: str) -> None:
    shell = ctx.children.popen("sh", "-c", "sleep 100 & echo $!; sleep 100", stdout=subprocess.PIPE, text=True)
    pids = os.getpid(), shell.pid, subprocess.Popen(["sleep", "100"]).pid, shell.stdout.readline()
    Path(path + ".part").write_text(" ".join(map(str, pids)))
    os.rename(path + ".part", path)
    time.sleep(100)
endless = app.task(name="endless", **process)(slow.function)
def make():
    def inner() -> None: ...
    return app.task(**process)(inner)
"""
GUARD = 'if __name__ == "__main__":\n'
WORK = "app.worker(poll=0.1).run(burst=True)"


@pytest.fixture
async def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """A module of tasks on a SQLite file."""
    name = f"tasks_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(TASKS.replace("URL", repr(stores.fresh_url("sqlite"))))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # no child need import pytest
    monkeypatch.setenv("CALLSHEET_TEST", name)
    module = importlib.import_module(name)
    async with module.app:
        yield module
        await until(lambda: not alive(name))


def alive(mark: str) -> list[Any]:
    """Return every process started under this mark; multiprocessing keeps one process of its own."""
    results = [process.info for process in psutil.process_iter(["pid", "environ", "cmdline"])]
    return [one for one in results if mark in str(one["environ"]) and "resource_tracker" not in str(one["cmdline"])]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pids_in(path: Path) -> list[int]:
    """Return the process ids that a function printed; empty if the time limit came first."""
    return [int(word) for word in path.read_text().split()] if path.exists() else []


async def burst(app: Callsheet, job: JobHandle[Any], **options: Any) -> Job:
    await app.worker(**{"concurrency": 1, "poll": 0.1, **options}).run(burst=True)
    return await job.get()


async def test_a_result_comes_back_as_its_type(tasks: Any) -> None:
    job = await tasks.size_of.enqueue(size=tasks.Size(width=10), times=2.5)
    await burst(tasks.app, job)
    assert await job.result(timeout=60) == tasks.Size(width=25)


async def test_a_warm_child_serves_one_job_after_another(tasks: Any) -> None:
    jobs = await tasks.whoami.enqueue_many([{}] * 5)
    await burst(tasks.app, jobs[0])
    pids = {await job.result(timeout=60) for job in jobs}
    assert len(pids) == 1
    assert gone(pids.pop())


async def test_two_jobs_that_hold_the_interpreter_run_at_once(tasks: Any, tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    jobs = await tasks.meet.enqueue_many([{"mine": a, "other": b}, {"mine": b, "other": a}])
    await burst(tasks.app, jobs[0], concurrency=2)
    assert len({await job.result(timeout=60) for job in jobs}) == 2


async def test_a_child_has_all_of_its_context(tasks: Any) -> None:
    job = await tasks.report.options(correlation_id="c1").enqueue(fail_on=1)
    await burst(tasks.app, job)
    *facts, workspace, result = await job.result(timeout=60)
    assert facts == [job.job_id, "decoding", "25.0", "False", "None", "IllegalMove"]
    assert not Path(workspace).exists()
    engine = await tasks.app.engine()
    events = await engine.store.events({job.job_id: 0}, 100)
    first = ["queued", "running", "stage", "progress", "log", "checkpoint", "checkpoint", "retrying"]
    assert [event.type for event in events] == [*first, "running", "stage", "progress", "log", "done"]
    assert decode(events[4].data) == {"level": "info", "message": "a line", "codec": "h264"}
    assert decode((await engine.store.checkpoints(job.job_id))["picture"])[0] == result
    asked_for = await engine.store.find(JobQuery(kind="whoami"))
    assert [(item.correlation_id, item.status) for item in asked_for.jobs] == [("c1", Status.SUCCEEDED)]


async def test_what_a_function_leaves_behind_is_ended_or_refused(tasks: Any, tmp_path: Path) -> None:
    path, report_path = tmp_path / "go", tmp_path / "go.said"
    job = await tasks.left_behind.enqueue(path=str(path))
    async with working(tasks.app):
        assert gone(await job.result(timeout=60))
        path.touch()
        await until(lambda: report_path.exists() and report_path.read_text() == "StaleClaim")
        assert await (await tasks.whoami.enqueue()).result(timeout=60)


async def test_words_of_a_child_keep_their_meaning(tasks: Any) -> None:
    jobs = await tasks.ends.enqueue_many([{"how": how} for how in ("retry", "fatal", "snooze", "not json")])
    await burst(tasks.app, jobs[0])
    ended_jobs, queued_jobs, failed_jobs = [await job.get() for job in jobs], Status.QUEUED, Status.FAILED
    codes = [(job.status, decode(job.error or "{}").get("code"), job.attempt_count) for job in ended_jobs]
    assert codes == [
        (queued_jobs, "retry", 1),
        (failed_jobs, "no_voice", 1),
        (queued_jobs, None, 0),
        (failed_jobs, "invalid_result", 1),
    ]
    assert [job.run_at > job.updated_at + 3_000_000 for job in ended_jobs] == [True, False, True, False]


async def test_an_exception_keeps_its_name_its_message_and_its_traceback(tasks: Any) -> None:
    job = await burst(tasks.app, await tasks.ends.enqueue(how="boom"))
    error = decode(job.error or "")
    assert (job.status, error["code"], error["message"]) == (Status.DEAD_LETTER, "Boom", "it broke")
    assert 'case "boom": raise Boom("it broke")' in error["details"]["traceback"]


@pytest.mark.parametrize(
    ("how", "message", "attempts"),
    [("_exit", "exit code 3", 2), ("exit", "exit code 4", 1), ("kill", "signal 9", 2), ("fork", "exit code 5", 1)],
)
async def test_a_child_that_dies_is_tried_again_and_told_of(tasks: Any, how: str, message: str, attempts: int) -> None:
    job = await burst(tasks.app, await tasks.ends.enqueue(how=how, max_attempts=attempts))
    assert (job.status, job.attempt_count) == (Status.DEAD_LETTER, attempts)
    assert decode(job.error or "")["code"] == "ProcessDied"
    assert message in decode(job.error or "")["message"]


async def test_a_child_that_died_while_it_was_idle_is_replaced(tasks: Any) -> None:
    async with working(tasks.app, concurrency=1):
        os.kill(first := await (await tasks.whoami.enqueue()).result(timeout=60), signal.SIGKILL)
        await until(lambda: gone(first))
        job = await tasks.whoami.enqueue(max_attempts=1)
        assert await job.result(timeout=60) != first


async def test_a_timeout_kills_the_whole_group(tasks: Any, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    async with working(tasks.app, concurrency=1):
        await (await tasks.whoami.enqueue()).result(timeout=60)  # a warm child: its start is part of the attempt
        job = await tasks.slow.options(max_attempts=1).enqueue(path=str(path))
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(timeout=60)
        await until(lambda: all(map(gone, pids_in(path))))


async def test_a_cancellation_kills_the_whole_group(tasks: Any, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    job = await tasks.endless.enqueue(path=str(path))
    async with working(tasks.app):
        await until(path.exists)
        assert not any(map(gone, pids_in(path)))
        await job.cancel("enough")
        with pytest.raises(JobCanceled, match="enough"):
            await job.result(timeout=60)
        await until(lambda: all(map(gone, pids_in(path))))


async def test_work_that_holds_the_interpreter_keeps_its_lease(tasks: Any, tmp_path: Path) -> None:
    """It holds the interpreter until it reads a byte, which arrives after its lease was extended."""
    os.mkfifo(pipe := tmp_path / "pipe")
    handle = await tasks.ends.enqueue(how=str(pipe))
    async with working(tasks.app, lease=9.0):  # room for a beat that is six seconds late
        writer = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)  # it reads
        first = (await handle.get()).lease_expires_at or 0
        async with asyncio.timeout(60):
            while ((await handle.get()).lease_expires_at or 0) <= first:
                await asyncio.sleep(0.05)
        os.write(writer, b"x")
        os.close(writer)
        await handle.result(timeout=60)
    job = await handle.get()
    assert (job.status, job.result, job.attempt_count, job.lease_losses) == (Status.SUCCEEDED, "1", 1, 0)


async def test_a_child_is_deaf_to_signals_that_its_programs_hear(tasks: Any) -> None:
    job = await burst(tasks.app, await tasks.ends.enqueue(how="hear"))
    assert job.result == str(-signal.SIGTERM.value)


async def test_a_function_that_a_child_cannot_find_is_refused(tasks: Any) -> None:
    job = await burst(tasks.app, await tasks.make().enqueue())
    assert (job.status, decode(job.error or "")["code"]) == (Status.FAILED, "invalid_task")
    assert "executor='process' needs a function at module level" in (job.error or "")


async def program(tasks: Any, tail: str) -> asyncio.subprocess.Process:
    """Start the tasks' module as a program, with some more lines."""
    source = Path(tasks.__file__)
    path = source.with_name("program.py")
    path.write_text(source.read_text() + tail)
    return await asyncio.create_subprocess_exec(sys.executable, path, stderr=asyncio.subprocess.PIPE)


async def test_it_works_in_a_program_of_its_own_and_on_uvloop(tasks: Any) -> None:
    job = await tasks.report.enqueue(fail_on=0)
    script = await program(tasks, f"{GUARD}    import uvloop\n    uvloop.run({WORK})\n")
    assert (await asyncio.wait_for(script.communicate(), 60))[1] == b""
    assert (await job.result(timeout=60))[0] == job.job_id


async def test_a_program_that_starts_its_worker_on_import_is_told_so(tasks: Any) -> None:
    job = await tasks.whoami.enqueue()
    script = await program(tasks, f"import asyncio\nasyncio.run({WORK})\n")
    assert b"start it under `if __name__ == '__main__':`" in (await asyncio.wait_for(script.communicate(), 60))[1]
    assert decode((await job.get()).error or "")["code"] == "ProcessDied"


async def test_a_busy_child_dies_with_its_worker(tasks: Any, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    await tasks.endless.enqueue(path=str(path))
    script = await program(tasks, f"{GUARD}    import asyncio\n    asyncio.run({WORK})\n")
    await until(path.exists)
    child = pids_in(path)[0]
    assert not gone(child)
    script.kill()
    try:
        await until(lambda: gone(child))
    finally:
        os.killpg(child, signal.SIGKILL)  # its programs have nobody left to end them
        await script.communicate()
