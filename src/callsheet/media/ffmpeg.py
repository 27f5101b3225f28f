"""Running ffmpeg: in the box, watched, with progress. Ends well only by exit code, its own last word, and our flag.

A cancelled ffmpeg can exit with 0 and leave a playlist that says it is whole, so that what our side decided counts more
than what the program says; whether the output is whole is for the caller to check (`transcode.py`, `hls.py`).
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
from .process import Start, end, heed, start_alone, tail_of
from .progress import Progress, Reader
from .sandbox import MB, Limits, Sight, Walls, boxed, environment
from .taken import DEMUXERS, OWN_DEMUXERS, WHITELIST

LOOK_S = 0.25
PERIOD_S = 0.5
PIPES_S = 2.0
MAX_PIXELS = 8192 * 8192
MAX_ALLOC_BYTES = 1024 * MB
LIMITS = Limits()


class Input(NamedTuple):
    """A local file, the demuxer that `sniff` found for it, and options of ffmpeg for it."""

    path: Path
    demuxer: str
    options: tuple[str, ...] = ()


class Work(NamedTuple):
    """One run. `arguments` are those after the inputs; outputs are names inside the run's folder.

    `duration_s` is what the output will last, for progress; 0 when nobody knows. `strict` ends at the first error in
    the source; `verbosity` is ffmpeg's -v.
    """

    inputs: tuple[Input, ...]
    arguments: tuple[str, ...]
    duration_s: float = 0.0
    strict: bool = True
    verbosity: str = "error"


class Ran(NamedTuple):
    """A run that ended well. `said` is the end of what it printed."""

    wall_s: float
    out_time_s: float
    said: str


def unconcerned(progress: Progress) -> None:
    """For those who do not look at progress."""


def never() -> bool:
    """For those who stop by cancelling the asyncio task alone."""
    return False


class Ffmpeg(NamedTuple):
    """How ffmpeg is run: which one, how it is started, its limits, and who may say stop.

    In a task: `Ffmpeg.found(start=ctx.children.start, is_stopped=lambda: ctx.cancelled)`.
    """

    binary: Binary
    start: Start = start_alone
    limits: Limits = LIMITS
    is_stopped: Callable[[], bool] = never
    walls: Walls | None = None

    @classmethod
    def found(
        cls, *, start: Start = start_alone, limits: Limits = LIMITS, is_stopped: Callable[[], bool] = never
    ) -> Ffmpeg:
        """With the ffmpeg of this machine; raises FfmpegMissing."""
        return cls(ffmpeg(), start, limits, is_stopped)

    def capped(self, output_bytes: int) -> Ffmpeg:
        """The same with a limit for what it writes; 0 for none."""
        return self._replace(limits=self.limits._replace(output_bytes=output_bytes))

    def command(self, work: Work) -> list[str]:
        """The command line. It never has -nostdin: with it, 7.0.2 does not hear SIGTERM."""
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

    async def run(self, work: Work, folder: Path, on_progress: Callable[[Progress], object] = unconcerned) -> Ran:
        """Run it in a folder that exists; raises MediaError. However this ends, no process of it is left.

        Cancelling the asyncio task ends the program too, within GRACE_S and a bit.
        """
        folder = folder.absolute()  # noqa: ASYNC240 - no look at the disk
        sight = Sight(tuple(source.path.absolute() for source in work.inputs), (folder,))
        watch = _Watch(self, folder, Reader(work.duration_s, on_progress))
        watch.look_at_disk()
        line = boxed(self.command(work), sight, self.limits, self.walls)
        began = time.monotonic()
        process = await self.start(
            line[0], *line[1:], stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=str(folder), env=environment(folder)
        )
        try:
            async with asyncio.timeout(self.limits.wall_s):
                said = await watch.over(process)
                code = await process.wait()
        except TimeoutError:
            raise TookTooLong(f"the work took longer than {self.limits.wall_s:g} s") from None
        finally:
            await end(process)
        heed(self.is_stopped)
        if code != 0:
            raise watch.reason() or error_of(code, said)
        if not watch.reader.ended:
            raise FfmpegFailed("ffmpeg left without saying that it had finished")
        watch.look_at_size(await asyncio.to_thread(folder_state, folder))  # it may have ended between two looks
        return Ran(time.monotonic() - began, watch.reader.out_time_s, said)


class _Watch:
    """One run, looked at four times a second."""

    def __init__(self, how: Ffmpeg, folder: Path, reader: Reader) -> None:
        self._how = how
        self._folder = folder
        self.reader = reader
        self._before_bytes = folder_state(folder)[0]
        self._last: object = None
        self._moved = time.monotonic()
        self._cpu_s = 0.0

    async def over(self, process: Process) -> str:
        """Read all that it says until its end; raises as soon as something is wrong. The end of stderr."""
        assert process.stdout is not None  # noqa: S101 - both are pipes
        assert process.stderr is not None  # noqa: S101
        talk = asyncio.gather(self.reader.read(process.stdout), tail_of(process.stderr))
        looks = asyncio.create_task(self._look(process))
        either: set[asyncio.Future[object]] = {talk, looks}  # type: ignore[arg-type]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if looks.done():
                looks.result()
                await asyncio.wait({talk}, timeout=PIPES_S)  # it ended; what it said is still on its way
                if not talk.done():
                    raise FfmpegFailed("ffmpeg ended, and something that it started still holds its output")
            return (await talk)[1]
        finally:
            looks.cancel()
            talk.cancel()
            await asyncio.gather(looks, talk, return_exceptions=True)

    async def _look(self, process: Process) -> None:
        while process.returncode is None:
            heed(self._how.is_stopped)
            state = await asyncio.to_thread(folder_state, self._folder)
            self.look_at_size(state)
            self._cpu_s = max(self._cpu_s, cpu_s_of(process.pid))
            self._look_for_life((state, self.reader.moves))
            self.look_at_disk()
            await asyncio.sleep(LOOK_S)

    def reason(self) -> MediaError | None:
        """Why it was killed, when the system killed it for its CPU time: the signal alone does not tell."""
        most = self._how.limits.cpu_s
        return LimitReached(f"the work needs more than {most} s of CPU time") if self._cpu_s > most - 1 else None

    def look_at_size(self, state: tuple[int, int]) -> None:
        """Raise OutputTooLarge when the folder has grown by more than it may."""
        size_bytes = state[0] - self._before_bytes
        most = self._how.limits.output_bytes
        if most and size_bytes > most:
            raise OutputTooLarge(f"the output has {size_bytes} bytes already, and {most} are the most")

    def _look_for_life(self, state: object) -> None:
        now = time.monotonic()
        if state != self._last:
            self._last, self._moved = state, now
        elif now - self._moved > self._how.limits.stall_s:
            raise Stalled(f"nothing has moved for {self._how.limits.stall_s:g} s")

    def look_at_disk(self) -> None:
        """Raise DiskFull when less is free than has to be."""
        least = self._how.limits.free_bytes
        if least and (free := shutil.disk_usage(self._folder).free) < least:
            raise DiskFull(f"{free // MB} MB are free, and {least // MB} MB have to be; make room on the disk")


def folder_state(folder: Path) -> tuple[int, int]:
    """How many bytes lie in a folder and below, and when the last of them was written."""
    size_bytes, changed = 0, 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # gone meanwhile
                found = os.lstat(os.path.join(place, name))  # noqa: PTH118 - ten thousand segments a look
                size_bytes += found.st_size
                changed = max(changed, found.st_mtime_ns)
    return size_bytes, changed


def cpu_s_of(pid: int) -> float:
    """The CPU time that a process has used so far; 0 where that cannot be known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
