from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callsheet.media.errors import (
    DiskFull,
    LimitReached,
    MediaError,
    MediaStopped,
    OutputTooLarge,
    Stalled,
    TookTooLong,
)
from callsheet.media.ffmpeg import LIMITS, Ffmpeg, Input, Work
from callsheet.media.progress import Progress
from callsheet.sandbox.processes import Start, start_alone
from tests.media.corpus import Corpus
from tests.time_limits import within

ENDLESS = ("-stream_loop", "-1", "-readrate", "8")
ENCODE = ("-c:v", "libx264", "-preset", "medium", "-an", "-f", "mpegts", "out.ts")
END_S = within(2.0)


class Started:
    """Starts programs and remembers them."""

    def __init__(self) -> None:
        self.by: Start = start_alone
        self.pids: list[int] = []
        self.lines: list[tuple[str, ...]] = []
        self.environments: list[dict[str, str]] = []

    async def __call__(self, program: str, *args: str, **options: Any) -> Process:
        process = await self.by(program, *args, **options)
        self.pids.append(process.pid)
        self.lines.append((program, *args))
        self.environments.append(options["env"])
        return process

    async def gone(self) -> None:
        """Wait for the end of all groups."""
        while self.are_alive():
            await asyncio.sleep(0.01)

    def are_alive(self) -> bool:
        return any(is_alive(pid) for pid in self.pids)


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{group}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def endless(corpus: Corpus) -> Work:
    return Work((Input(corpus("normal.mp4"), "mov", ENDLESS),), ENCODE, 1000.0)


def short(corpus: Corpus) -> Work:
    return Work((Input(corpus("normal.mp4"), "mov"),), ENCODE, 2.0)


@pytest.fixture
def started() -> Iterator[Started]:
    children = Started()
    yield children
    for pid in children.pids:  # of a test that failed
        kill(pid)


@pytest.fixture
def ours(how: Ffmpeg, started: Started) -> Ffmpeg:
    return how._replace(start=started)


async def test_a_run_tells_its_progress_and_ends(corpus: Corpus, ours: Ffmpeg, tmp_path: Path) -> None:
    reports: list[Progress] = []
    ran = await ours.run(short(corpus), tmp_path, reports.append)
    percents = [progress.percent for progress in reports if progress.percent is not None]
    assert percents == sorted(percents)
    assert percents[-1] > 90
    assert ran.out_time_s == pytest.approx(2, abs=0.1)
    assert (tmp_path / "out.ts").stat().st_size > 0


async def test_the_command_line_has_its_guards_and_no_trap(corpus: Corpus, ours: Ffmpeg) -> None:
    line = ours.command(short(corpus))
    before = line[: line.index("-i")]
    assert "-nostdin" not in line
    assert before[before.index("-protocol_whitelist") + 1] == "file"
    assert before[before.index("-format_whitelist") + 1] == "mov"
    assert before[before.index("-f") + 1] == "mov"
    assert "-max_pixels" in before
    assert "-xerror" in before


async def test_nothing_of_the_environment_goes_along(
    corpus: Corpus, ours: Ffmpeg, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")
    await ours.run(short(corpus), tmp_path)
    assert "canary-secret" not in str(started.environments) + str(started.lines)
    assert started.environments[0]["GCONV_PATH"] == "/nonexistent"


async def test_a_cancelled_run_is_gone_within_two_seconds(
    corpus: Corpus, ours: Ffmpeg, started: Started, tmp_path: Path
) -> None:
    running = asyncio.Event()
    task = asyncio.create_task(ours.run(endless(corpus), tmp_path, lambda _: running.set()))
    await running.wait()
    assert is_alive(started.pids[0])
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await started.gone()
    assert time.monotonic() - began < END_S


async def test_our_flag_ends_a_run(corpus: Corpus, ours: Ffmpeg, started: Started, tmp_path: Path) -> None:
    is_stopped = asyncio.Event()
    with pytest.raises(MediaStopped):
        await ours._replace(is_stopped=is_stopped.is_set).run(endless(corpus), tmp_path, lambda _: is_stopped.set())
    await started.gone()


async def test_our_flag_counts_more_than_an_exit_code_of_zero(corpus: Corpus, ours: Ffmpeg, tmp_path: Path) -> None:
    stopped: list[bool] = []

    async def quit_in_time(program: str, *args: str, **options: Any) -> Process:
        process = await start_alone(program, *args, **options)
        wait = process.wait

        async def waited() -> int:
            code = await wait()
            stopped.append(code == 0)
            return code

        process.wait = waited  # type: ignore[method-assign]
        return process

    with pytest.raises(MediaStopped):
        await ours._replace(start=quit_in_time, is_stopped=lambda: any(stopped)).run(short(corpus), tmp_path)


async def test_the_clock_on_the_wall_ends_a_run(corpus: Corpus, ours: Ffmpeg, started: Started, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(TookTooLong) as excinfo:
        await ours._replace(limits=LIMITS._replace(wall_s=0.7)).run(endless(corpus), tmp_path)
    assert excinfo.value.retryable
    await started.gone()
    assert time.monotonic() - began < 0.7 + END_S


async def test_a_run_that_stands_still_is_ended(corpus: Corpus, ours: Ffmpeg, started: Started, tmp_path: Path) -> None:
    with pytest.raises(Stalled) as excinfo:
        await ours._replace(limits=LIMITS._replace(stall_s=0.6)).run(
            endless(corpus), tmp_path, lambda _: os.killpg(started.pids[0], signal.SIGSTOP)
        )
    assert excinfo.value.retryable
    await started.gone()


async def test_an_output_that_grows_too_large_is_ended_early(
    corpus: Corpus, ours: Ffmpeg, started: Started, tmp_path: Path
) -> None:
    limits = LIMITS._replace(output_bytes=300_000, file_bytes=10**9)
    for name, how in {
        "many": ours._replace(limits=limits),  # files that are small, but many: counted in the folder
        "one": ours._replace(limits=LIMITS._replace(file_bytes=50_000)),  # the system's own limit for a file
    }.items():
        (tmp_path / name).mkdir()
        words = ("-c:v", "copy", "-an", "-f", "segment", "-segment_time", "2", "%d.ts") if name == "many" else ENCODE
        work = endless(corpus)._replace(arguments=words)
        work = work._replace(inputs=(work.inputs[0]._replace(options=(*ENDLESS, "-readrate", "20")),))
        with pytest.raises(OutputTooLarge):
            await how.run(work, tmp_path / name)
    await started.gone()
    assert sum(file.stat().st_size for file in (tmp_path / "many").iterdir()) < 10_000_000


async def test_a_run_that_ends_before_anybody_looks_is_measured_too(
    corpus: Corpus, ours: Ffmpeg, tmp_path: Path
) -> None:
    three = ("-map", "0", "-c", "copy", "-f", "tee", "a.ts|b.ts|c.ts")  # each below the limit, and all in an instant
    work = Work((Input(corpus("normal.ts"), "mpegts"),), three)
    size_bytes = corpus("normal.ts").stat().st_size
    with pytest.raises(OutputTooLarge):
        await ours._replace(limits=LIMITS._replace(output_bytes=2 * size_bytes)).run(work, tmp_path)


async def test_a_disk_without_room_is_told_before_the_start(
    corpus: Corpus, ours: Ffmpeg, started: Started, tmp_path: Path
) -> None:
    with pytest.raises(DiskFull) as excinfo:
        await ours._replace(limits=LIMITS._replace(free_bytes=10**18)).run(short(corpus), tmp_path)
    assert excinfo.value.retryable
    assert started.pids == []


async def test_cpu_time_and_memory_are_limited(corpus: Corpus, ours: Ffmpeg, started: Started, tmp_path: Path) -> None:
    work = endless(corpus)
    work = work._replace(inputs=(work.inputs[0]._replace(options=ENDLESS[:2]),))  # as fast as it can
    scarce = ours.binary.path.stat().st_size + 20 * 1024 * 1024  # the program itself, and next to nothing
    for limits in (LIMITS._replace(cpu_s=2), LIMITS._replace(memory_bytes=scarce)):
        with pytest.raises(LimitReached) as excinfo:
            await ours._replace(limits=limits).run(work, tmp_path)
        assert not excinfo.value.retryable
    await started.gone()


async def test_a_source_that_breaks_off_is_an_error_and_not_a_success(
    corpus: Corpus, ours: Ffmpeg, tmp_path: Path
) -> None:
    packets = corpus("normal.ts").read_bytes()
    for at in (300, 200, 100):  # several holes: after one alone the packets' counters may fit by chance
        packets = packets[: at * 188] + packets[(at + 37) * 188 :]
    hole = corpus.made("hole.ts", packets)
    with pytest.raises(MediaError) as excinfo:
        await ours.run(Work((Input(hole, "mpegts"),), ENCODE, 2.0), tmp_path)
    assert not excinfo.value.retryable
    assert str(tmp_path) not in str(excinfo.value)


ORPHAN = """
import asyncio, sys
from pathlib import Path
from callsheet.media.ffmpeg import Ffmpeg, Input, Work
from callsheet.sandbox.processes import Start, start_alone

async def start(program, /, *args, **options):
    process = await start_alone(program, *args, **options)
    print(process.pid, flush=True)
    return process

work = Work((Input(Path(sys.argv[1]), "mov", ("-stream_loop", "-1")),), ("-an", "-f", "mpegts", "out.ts"), 100.0)
asyncio.run(Ffmpeg.default(start=start).run(work, Path(sys.argv[2]), lambda _: print("running", flush=True)))
"""


async def test_ffmpeg_dies_with_a_worker_that_is_killed(corpus: Corpus, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ORPHAN, str(corpus("normal.mp4")), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:  # noqa: ASYNC220
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        assert worker.stdout.readline() == "running\n"
        assert is_alive(pid)
        worker.kill()
    try:
        async with asyncio.timeout(END_S):
            while is_alive(pid):
                await asyncio.sleep(0.01)
    finally:
        kill(pid)
