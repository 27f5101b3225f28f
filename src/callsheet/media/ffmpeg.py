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
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .binaries import Binary, ffmpeg
from .errors import (
    DiskFull,
    FfmpegFailed,
    LimitReached,
    MediaError,
    OutputTooLarge,
    Stalled,
    TookTooLong,
    UnsupportedInput,
)
from .ffmpeg_errors import error_of
from .process import Start, end, raise_if_stopped, start_alone, tail_of
from .progress import Progress, Reader
from .sandbox import MB, Limits, Sight, Walls, environment, sandboxed_command
from .taken import DEMUXERS, OWN_DEMUXERS, WHITELIST

LOOK_S = 0.25
PERIOD_S = 0.5
PIPES_S = 2.0
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
        watch.look_at_disk()
        line = sandboxed_command(self.command(work), sight, self.limits, self.walls)
        began = time.monotonic()
        process = await self.start(
            line[0], *line[1:], stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=str(folder), env=environment(folder)
        )
        try:
            async with asyncio.timeout(self.limits.wall_s):
                stderr_tail = await watch.over(process)
                code = await process.wait()
        except TimeoutError:
            raise TookTooLong(f"the work took longer than {self.limits.wall_s:g} s") from None
        finally:
            await end(process)
        raise_if_stopped(self.is_stopped)
        if code != 0:
            raise watch.reason() or error_of(code, stderr_tail)
        if not watch.reader.has_ended:
            raise FfmpegFailed("ffmpeg left without saying that it had finished")
        watch.look_at_size(await asyncio.to_thread(folder_state, folder))  # it may have ended between two checks
        return Ran(time.monotonic() - began, watch.reader.out_time_s, stderr_tail)


class _Watch:
    """Watches one run, four times a second."""

    def __init__(self, how: Ffmpeg, folder: Path, reader: Reader) -> None:
        self._how = how
        self._folder = folder
        self.reader = reader
        self._before_bytes = folder_state(folder)[0]
        self._last: object = None
        self._moved_at_s = time.monotonic()
        self._cpu_s = 0.0

    async def over(self, process: Process) -> str:
        """Read all output until the program ends, and return the tail of stderr. Raises at the first violation."""
        assert process.stdout is not None  # noqa: S101 - both are pipes
        assert process.stderr is not None  # noqa: S101
        output = asyncio.gather(self.reader.read(process.stdout), tail_of(process.stderr))
        looks = asyncio.create_task(self._look(process))
        either: set[asyncio.Future[object]] = {output, looks}  # type: ignore[arg-type]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if looks.done():
                looks.result()
                await asyncio.wait(
                    {output}, timeout=PIPES_S
                )  # the process ended, and its last output may still be in the pipes
                if not output.done():
                    raise FfmpegFailed("ffmpeg ended, and something that it started still holds its output")
            return (await output)[1]
        finally:
            looks.cancel()
            output.cancel()
            await asyncio.gather(looks, output, return_exceptions=True)

    async def _look(self, process: Process) -> None:
        while process.returncode is None:
            raise_if_stopped(self._how.is_stopped)
            state = await asyncio.to_thread(folder_state, self._folder)
            self.look_at_size(state)
            self._cpu_s = max(self._cpu_s, cpu_s_of(process.pid))
            self._look_for_life((state, self.reader.moves))
            self.look_at_disk()
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

    def look_at_disk(self) -> None:
        """Raise DiskFull when free disk space is below the minimum."""
        least = self._how.limits.free_bytes
        if least and (free := shutil.disk_usage(self._folder).free) < least:
            raise DiskFull(f"{free // MB} MB are free, and {least // MB} MB have to be; make room on the disk")


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
    """Return the CPU time of a process in seconds; 0 where the system cannot tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
