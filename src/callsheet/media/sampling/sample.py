"""Sampling a video: probe it, run the child in the box, hand over each kept frame as it comes.

A file that its own structure shows to be cut off (MP4, Matroska, AVI) is TruncatedInput: fetch it again. One that does
not say how long it is (MPEG-TS) is sampled as far as it goes. Where frames in the middle or at the end cannot be
decoded, the rest is sampled, and the range is one of `Sampled.gaps`.
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

from callsheet.media.errors import InvalidOutput, NoSuchStream, TookTooLong
from callsheet.media.ffmpeg import ignore_progress
from callsheet.media.probe import probe
from callsheet.media.process import end, raise_if_stopped

from .records import Sampled, Sampling
from .running import Means, OnKept, OnProgress, Run

MOST_FPS = 240.0


async def sample(  # noqa: PLR0913 - two of them are seldom given
    source: Path,
    folder: Path,
    on_kept: OnKept,
    options: Sampling = Sampling(),  # noqa: B008 - a tuple
    *,
    means: Means = Means(),  # noqa: B008
    on_progress: OnProgress = ignore_progress,
) -> Sampled:
    """Sample a local video into a folder that exists; raises MediaError.

    `on_kept` is awaited for each frame in the order of time, while decoding goes on: it may upload and delete the file,
    and a slow one slows the decoder down, so that neither memory nor the disk fills. However this ends, no process is
    left; cancelling the asyncio task ends the child within two seconds.
    """
    check(options)
    media = await probe(source, start=means.start, caps=means.caps)
    if media.video is None:
        raise NoSuchStream("the file holds no moving picture, so that nothing can be sampled")
    run = Run(media, folder.absolute(), options, means)  # noqa: ASYNC240 - no look at the disk
    raise_if_stopped(means.is_stopped)
    process = await run.started()
    try:
        async with asyncio.timeout(means.limits.wall_s) as clock:
            await run.watch(process, on_kept, on_progress)
    except TimeoutError:
        if clock.expired():
            raise TookTooLong(f"sampling took longer than {means.limits.wall_s:g} s") from None
        raise  # that of `on_kept`
    finally:
        await end(process)
    return run.result()


def check(options: Sampling) -> None:
    """Raise InvalidOutput for options that mean nothing."""
    if not (math.isfinite(options.target_fps) and 0 < options.target_fps <= MOST_FPS):
        raise InvalidOutput(f"target_fps is more than 0 and at most {MOST_FPS:g}")
    if not 0 <= options.dedupe_threshold <= 1:
        raise InvalidOutput("dedupe_threshold is from 0 to 1")
    if not (math.isfinite(options.guard_min_interval_s) and options.guard_min_interval_s >= 0):
        raise InvalidOutput("guard_min_interval_s is not less than 0")
