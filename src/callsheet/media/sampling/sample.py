"""Sample a video: probe it, run the sandboxed child, and pass on each kept frame at once.

A file truncated by its own structure (MP4, Matroska, AVI) raises TruncatedInput: fetch it again. A format without a
declared length (MPEG-TS) is sampled as far as it goes. Undecodable parts in the middle or at the end become ranges in
`Sampled.gaps`; the rest is sampled.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.media.errors import (
    CorruptInput,
    DiskFull,
    InputTooLarge,
    InvalidOutput,
    LimitReached,
    MediaError,
    NoSuchStream,
    Stalled,
    TookTooLong,
)
from callsheet.media.ffmpeg import check_disk, ignore_progress, never_stopped, raise_if_stopped, watch_for_stop
from callsheet.media.ffmpeg_errors import death_of, last_words
from callsheet.media.probe import Caps, Media, probe
from callsheet.media.progress import ALMOST, Progress
from callsheet.sandbox.command import GB, KEEPS_MEMORY, MB, Limits, Sight, environment, of_python
from callsheet.sandbox.processes import Bounds, Program, Start, import_folders, output_of, run_child, send, start_alone

from .records import Kept, Sampled, Sampling

MOST_FPS = 240.0

CHILD = Path(__file__).with_name("child.py")
PACKAGES = ("av", "numpy", "PIL")
LIMITS = Limits(file_bytes=128 * MB, memory_bytes=6 * GB, open_files=64)
CAPS = Caps(pixels=8192 * 4608)  # 8K, in each of its shapes
THREADS = 1  # a second is faster by half for large videos, and costs a fifth more CPU time

OnKept = Callable[[Kept], Awaitable[object]]
OnProgress = Callable[[Progress], object]


class Means(NamedTuple):
    """How to run the child, the stop check, and limits on the source. `threads` are the decoder's.

    In a task: `Means(ctx.children.start, lambda: ctx.cancelled)`.
    """

    start: Start = start_alone
    is_stopped: Callable[[], bool] = never_stopped
    limits: Limits = LIMITS
    caps: Caps = CAPS
    threads: int = THREADS


async def sample(  # noqa: PLR0913 - two of them are seldom given
    source: Path,
    folder: Path,
    on_kept: OnKept,
    options: Sampling = Sampling(),  # noqa: B008 - a tuple
    *,
    means: Means = Means(),  # noqa: B008
    on_progress: OnProgress = ignore_progress,
) -> Sampled:
    """Sample a local video into an existing folder. Raises MediaError.

    `on_kept` is awaited for each frame in order of time, during decoding: it may upload and delete the file, and a
    slow one slows down the decoder, so that neither memory nor disk fills. No process survives this call; cancelling
    the asyncio task ends the child within two seconds.
    """
    check(options)
    media = await probe(source, start=means.start, caps=means.caps)
    if media.video is None:
        raise NoSuchStream("the file holds no moving picture, so that nothing can be sampled")
    run = Run(media, folder.absolute(), options, means)  # noqa: ASYNC240 - no disk access
    raise_if_stopped(means.is_stopped)
    await run.watch(await run.start(), on_kept, on_progress)
    return run.result()


def check(options: Sampling) -> None:
    """Raise InvalidOutput for invalid options."""
    if not (math.isfinite(options.target_fps) and 0 < options.target_fps <= MOST_FPS):
        raise InvalidOutput(f"target_fps is more than 0 and at most {MOST_FPS:g}")
    if not 0 <= options.dedupe_threshold <= 1:
        raise InvalidOutput("dedupe_threshold is from 0 to 1")
    if not (math.isfinite(options.guard_min_interval_s) and options.guard_min_interval_s >= 0):
        raise InvalidOutput("guard_min_interval_s is not less than 0")


class Run:
    """One sampling child process and its result."""

    def __init__(self, media: Media, folder: Path, options: Sampling, means: Means) -> None:
        self._media, self._folder, self._options, self._means = media, folder, options, means
        self._began_s = time.monotonic()
        self._summary: dict[str, Any] | None = None

    async def start(self) -> Process:
        """Start a child, which waits for its order on stdin."""
        folders = _import_folders()
        command = [sys.executable, "-I", "-S", "-B", str(CHILD), os.pathsep.join(map(str, folders))]
        sight = Sight((self._media.path, *of_python(), *folders), (self._folder,))
        # one thread: pictures of 32 by 32 are no work for more, and each thread takes from the memory limit
        env = {**environment(self._folder), **KEEPS_MEMORY, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return await Program(command, sight, self._means.limits, env).start(self._means.start)

    async def watch(self, process: Process, on_kept: OnKept, on_progress: OnProgress) -> None:
        """Read answers until the child ends. Raises as soon as an error occurs or the caller stops the work."""
        wall_s = self._means.limits.wall_s
        bounds = Bounds(wall_s, TookTooLong(f"sampling took longer than {wall_s:g} s"))
        answers = self._answers(process, on_kept, on_progress)
        outcome = await run_child(process, answers, bounds, watch_for_stop(self._means.is_stopped))
        if outcome.code != 0 or self._summary is None:
            raise death_of(outcome.code, "sampling") or MediaError(
                f"the process that samples ended with {outcome.code}: {last_words(outcome.stderr_tail)}"
            )

    def result(self) -> Sampled:
        """Return the summary. Raises CorruptInput if no frame could be decoded."""
        summary = self._summary or {}
        if not summary.get("sampled"):
            raise CorruptInput("not one frame of the video can be decoded; upload it again")
        period_ms = round(1000 / self._options.target_fps)
        gaps = tuple((begin, end) for begin, end in summary["gaps"])
        return Sampled(summary["sampled"], summary["kept"], summary["duration_ms"], period_ms, self._options, gaps)

    async def _answers(self, process: Process, on_kept: OnKept, on_progress: OnProgress) -> None:
        assert process.stdin is not None  # noqa: S101 - a pipe
        await send(process, json.dumps(self._order()).encode() + b"\n")
        while line := await self._line(output_of(process)):
            answer = json.loads(line)
            if "error" in answer:
                raise _error(answer)
            if "kept" in answer:
                check_disk(self._folder, self._means.limits)
                frame = answer["kept"]
                await on_kept(Kept(**{**frame, "path": Path(frame["path"])}))
                if not process.stdin.is_closing():
                    process.stdin.write(b"\n")  # the child may continue with the next frame
            elif "at_ms" in answer:
                on_progress(self._progress(answer["at_ms"] / 1000, answer["sampled"]))
            else:
                self._summary = answer["done"]

    async def _line(self, stream: asyncio.StreamReader) -> bytes:
        """Return the next line. The time of `on_kept` does not count: stalls of the child alone are measured."""
        try:
            async with asyncio.timeout(self._means.limits.stall_s):
                return await stream.readline()
        except TimeoutError:
            raise Stalled(f"nothing has moved for {self._means.limits.stall_s:g} s") from None

    def _order(self) -> dict[str, Any]:
        assert self._media.video is not None  # noqa: S101 - sample checks
        return {
            "path": str(self._media.path),
            "demuxer": self._media.kind.demuxer,
            "stream": self._media.video.number,
            "folder": str(self._folder),
            "max_pixels": self._means.caps.pixels,
            "max_streams": self._means.caps.streams + 1,
            "threads": self._means.threads,
            "options": self._options._asdict(),
        }

    def _progress(self, at_s: float, sample_count: int) -> Progress:
        elapsed_s = max(1e-3, time.monotonic() - self._began_s)
        speed = at_s / elapsed_s
        if not self._media.duration_s:
            return Progress(None, at_s, speed, None, sample_count)
        left_s = max(0.0, self._media.duration_s - at_s)
        percent = min(ALMOST, 100 * at_s / self._media.duration_s)
        return Progress(percent, at_s, speed, left_s / speed if speed else None, sample_count)


def _error(answer: dict[str, Any]) -> MediaError:
    kind, text = answer["error"], answer.get("text", "")
    if kind == "memory":
        return LimitReached("sampling needs more memory than it may have")
    if kind == "size":
        return InputTooLarge(f"{text} is over the limit; send a smaller video")
    if kind == "disk":
        return DiskFull(f"a frame could not be written: {text}; make room on the disk")
    if kind == "data":
        return CorruptInput(f"the video cannot be read: {text}")
    return MediaError(f"sampling failed: {text}")


def _import_folders() -> tuple[Path, ...]:
    try:
        return import_folders(*PACKAGES)
    except ModuleNotFoundError as error:
        raise MediaError(f"{error.name} is not installed; pip install 'callsheet[media]'") from None
