"""Sample a video: probe it, run the sandboxed child, and pass on each kept frame at once.

A file truncated by its own structure (MP4, Matroska, AVI) raises TruncatedInput: fetch it again. A format without a
declared length (MPEG-TS) is sampled as far as it goes. Undecodable parts in the middle or at the end become ranges in
`Sampled.gaps`; the rest is sampled.
"""

from __future__ import annotations

import math
from pathlib import Path

from callsheet.media.errors import InvalidOutput, NoSuchStream
from callsheet.media.ffmpeg import ignore_progress, raise_if_stopped
from callsheet.media.probe import probe

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
