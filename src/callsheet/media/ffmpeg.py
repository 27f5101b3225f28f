"""Run ffmpeg in the sandbox, with limits and progress. Success takes its exit code, its last progress line and no stop.

A cancelled ffmpeg can exit with 0 and leave a playlist that claims to be complete, so our own stop request outranks
the program's report. Callers check that the output is complete (`transcode.py`, `hls.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from callsheet.sandbox.command import MB, Limits, Sight, Walls, environment
from callsheet.sandbox.processes import Bounds, Program, Start, output_of, run_child, start_alone

from .allowed_formats import DEMUXERS, OWN_DEMUXERS, WHITELIST
from .binaries import Binary, ffmpeg
from .errors import (
    DiskFull,
    FfmpegFailed,
    LimitReached,
    MediaError,
    MediaStopped,
    OutputTooLarge,
    Stalled,
    TookTooLong,
    UnsupportedInput,
)
from .ffmpeg_errors import error_of
from .progress import Progress, Reader

LOOK_S = 0.25
PERIOD_S = 0.5
MAX_PIXELS = 8192 * 8192
MAX_ALLOC_BYTES = 1024 * MB
LIMITS = Limits()


class Input(NamedTuple):
    """A local file, its demuxer according to `sniff`, and ffmpeg's options for it."""

    path: Path
    demuxer: str
    options: tuple[str, ...] = ()


class Work(NamedTuple):
    """One ffmpeg run. `arguments` follow the inputs; output names are relative to the run's folder.

    `duration_s` is the output's expected length, for progress; 0 if unknown. `strict` aborts at the first error in
    the source; `verbosity` is ffmpeg's -v.
    """

    inputs: tuple[Input, ...]
    arguments: tuple[str, ...]
    duration_s: float = 0.0
    strict: bool = True
    verbosity: str = "error"


class Ran(NamedTuple):
    """A successful run, with the tail of its stderr."""

    wall_s: float
    out_time_s: float
    stderr_tail: str


def ignore_progress(progress: Progress) -> None:
    """Ignore a progress report."""


def never_stopped() -> bool:
    """Return False: the caller stops work only by cancelling the asyncio task."""
    return False


def raise_if_stopped(is_stopped: Callable[[], bool]) -> None:
    """Raise MediaStopped if the caller requested a stop."""
    if is_stopped():
        raise MediaStopped("the caller stopped the work")


async def watch_for_stop(is_stopped: Callable[[], bool]) -> None:
    """Raise MediaStopped as soon as the caller requests a stop; never return."""
    while True:
        raise_if_stopped(is_stopped)
        await asyncio.sleep(LOOK_S)


def check_disk(folder: Path, limits: Limits) -> None:
    """Raise DiskFull when the folder's disk has less free space than the limits ask for."""
    least = limits.free_bytes
    if least and (free := shutil.disk_usage(folder).free) < least:
        raise DiskFull(f"{free // MB} MB are free, and {least // MB} MB have to be; make room on the disk")


class Ffmpeg(NamedTuple):
    """How to run ffmpeg: the binary, the function that starts it, its limits, and the stop check.

    In a task: `Ffmpeg.default(start=ctx.children.start, is_stopped=lambda: ctx.cancelled)`.
    """

    binary: Binary
    start: Start = start_alone
    limits: Limits = LIMITS
    is_stopped: Callable[[], bool] = never_stopped
    walls: Walls | None = None

    @classmethod
    def default(
        cls, *, start: Start = start_alone, limits: Limits = LIMITS, is_stopped: Callable[[], bool] = never_stopped
    ) -> Ffmpeg:
        """Return a runner for the ffmpeg of this machine. Raises FfmpegMissing."""
        return cls(ffmpeg(), start, limits, is_stopped)

    def with_output_limit(self, output_bytes: int) -> Ffmpeg:
        """Return the same runner with a limit on its output in bytes; 0 for no limit."""
        return self._replace(limits=self.limits._replace(output_bytes=output_bytes))

    def command(self, work: Work) -> list[str]:
        """Return the command line. It never has -nostdin, which makes ffmpeg 7.0.2 ignore SIGTERM."""
        line = [str(self.binary.path), "-hide_banner", "-v", work.verbosity, "-nostats", "-y"]
        line += ["-progress", "pipe:1", "-stats_period", str(PERIOD_S), "-max_alloc", str(MAX_ALLOC_BYTES)]
        line += ["-xerror"] if work.strict else []
        for source in work.inputs:
            if source.demuxer not in DEMUXERS | OWN_DEMUXERS:
                raise UnsupportedInput(
                    f"the demuxer {source.demuxer} is never used; there are {', '.join(sorted(DEMUXERS))}"
                )
            line += [*source.options, "-max_pixels", str(MAX_PIXELS), "-protocol_whitelist", "file"]
            line += ["-codec_whitelist", WHITELIST]
            line += ["-format_whitelist", source.demuxer, "-f", source.demuxer, "-i", f"file:{source.path.absolute()}"]
        return [*line, *work.arguments]

    async def run(self, work: Work, folder: Path, on_progress: Callable[[Progress], object] = ignore_progress) -> Ran:
        """Run ffmpeg in an existing folder. Raises MediaError. No process of it survives this call.

        Cancelling the asyncio task ends the program too, shortly after GRACE_S.
        """
        folder = folder.absolute()  # noqa: ASYNC240 - no disk access
        sight = Sight(tuple(source.path.absolute() for source in work.inputs), (folder,))
        watch = _Watch(self, folder, Reader(work.duration_s, on_progress))
        check_disk(folder, self.limits)
        program = Program(self.command(work), sight, self.limits, environment(folder), str(folder), self.walls)
        bounds = Bounds(
            self.limits.wall_s,
            TookTooLong(f"the work took longer than {self.limits.wall_s:g} s"),
            FfmpegFailed("ffmpeg ended, and something that it started still holds its output"),
        )
        began = time.monotonic()
        process = await program.start(self.start, stdin=DEVNULL)
        outcome = await run_child(process, watch.reader.read(output_of(process)), bounds, watch.until_end(process))
        raise_if_stopped(self.is_stopped)
        if outcome.code != 0:
            raise watch.reason() or error_of(outcome.code, outcome.stderr_tail)
        if not watch.reader.has_ended:
            raise FfmpegFailed("ffmpeg left without saying that it had finished")
        watch.look_at_size(await asyncio.to_thread(folder_state, folder))  # it may have ended between two checks
        return Ran(time.monotonic() - began, watch.reader.out_time_s, outcome.stderr_tail)


class _Watch:
    def __init__(self, how: Ffmpeg, folder: Path, reader: Reader) -> None:
        self._how = how
        self._folder = folder
        self.reader = reader
        self._before_bytes = folder_state(folder)[0]
        self._last: object = None
        self._moved_at_s = time.monotonic()
        self._cpu_s = 0.0

    async def until_end(self, process: Process) -> None:
        """Return when the program has ended. Raises at the first violation."""
        while process.returncode is None:
            raise_if_stopped(self._how.is_stopped)
            state = await asyncio.to_thread(folder_state, self._folder)
            self.look_at_size(state)
            self._cpu_s = max(self._cpu_s, cpu_s_of(process.pid))
            self._look_for_life((state, self.reader.moves))
            check_disk(self._folder, self._how.limits)
            await asyncio.sleep(LOOK_S)

    def reason(self) -> MediaError | None:
        """Return the error for exceeded CPU time: the kernel's signal alone does not distinguish it."""
        most = self._how.limits.cpu_s
        return LimitReached(f"the work needs more than {most} s of CPU time") if self._cpu_s > most - 1 else None

    def look_at_size(self, state: tuple[int, int]) -> None:
        """Raise OutputTooLarge when the folder has grown beyond the limit."""
        size_bytes = state[0] - self._before_bytes
        most = self._how.limits.output_bytes
        if most and size_bytes > most:
            raise OutputTooLarge(f"the output has {size_bytes} bytes already, and {most} are the most")

    def _look_for_life(self, state: object) -> None:
        now = time.monotonic()
        if state != self._last:
            self._last, self._moved_at_s = state, now
        elif now - self._moved_at_s > self._how.limits.stall_s:
            raise Stalled(f"nothing has moved for {self._how.limits.stall_s:g} s")


def folder_state(folder: Path) -> tuple[int, int]:
    """Return the bytes in a folder and its subfolders, and the time of the last write."""
    size_bytes, newest_ns = 0, 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # deleted meanwhile
                stat = os.lstat(os.path.join(place, name))  # noqa: PTH118 - a check may read ten thousand segments
                size_bytes += stat.st_size
                newest_ns = max(newest_ns, stat.st_mtime_ns)
    return size_bytes, newest_ns


def cpu_s_of(pid: int) -> float:
    """Return the CPU time of a process in seconds; 0 on systems without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
