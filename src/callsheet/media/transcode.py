"""Transcode one source into one output. The output gets its final name only after it passes its checks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .arguments import arguments_for, input_for
from .errors import MediaError, OutputIncomplete
from .ffmpeg import Ffmpeg, Work, ignore_progress
from .loudness import measure
from .probe import Caps, Media, probe
from .progress import Progress
from .spec import OutputSpec, check_for, output_limit, video_codec

SLACK_S = 0.5
SLACK_SHARE = 0.01
MEASURE_SHARE = 0.2  # share of the progress of an output with loudness
OURS = Caps(size_bytes=1 << 62)


class Output(NamedTuple):
    """A complete output file. For HLS `key` is the folder, and `sha256` that of its playlist."""

    key: str
    path: Path
    size_bytes: int
    duration_s: float
    codec: str
    sha256: str
    mime: str
    width: int = 0
    height: int = 0


async def transcode(
    source: Path | Media,
    spec: OutputSpec,
    folder: Path,
    how: Ffmpeg,
    on_progress: Callable[[Progress], object] = ignore_progress,
) -> Output:
    """Transcode a source into a folder. Raises MediaError, and then leaves no file behind.

    Several calls may share one folder at a time if their keys differ.
    """
    media = source if isinstance(source, Media) else await probe(source, start=how.start)
    check_for(spec, media, how.binary)
    if spec.format == "hls":
        from .hls import hls_output  # noqa: PLC0415 - it imports this module

        return await hls_output(media, spec, folder, how, on_progress)
    how = how.with_output_limit(output_limit(media.size_bytes, how.limits.output_bytes))
    part = folder / f"{spec.key}.part"
    part.mkdir(mode=0o700)
    try:
        await _make(media, spec, part, how, on_progress)
        output = await _check_output(media, spec, part / spec.key, how)
        os.replace(output.path, folder / spec.key)  # noqa: PTH105 - replaces an earlier call's file
        return output._replace(path=folder / spec.key)
    finally:
        await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)


async def _make(
    media: Media, spec: OutputSpec, part: Path, how: Ffmpeg, on_progress: Callable[[Progress], object]
) -> None:
    gain_db = 0.0
    if spec.loudness_lufs is not None:
        loudness = await measure(spec, media, part, how, progress_within(on_progress, 0.0, MEASURE_SHARE))
        gain_db = loudness.gain_to(spec.loudness_lufs)
        on_progress = progress_within(on_progress, MEASURE_SHARE, 1.0)
    start_s, end_s = spec.seconds(media)
    words = arguments_for(spec, media, how.binary, gain_db)
    await how.run(Work((input_for(spec, media),), words, max(0.0, end_s - start_s)), part, on_progress)


async def _check_output(media: Media, spec: OutputSpec, path: Path, how: Ffmpeg) -> Output:
    """Probe the output and return it with its facts. Raises OutputIncomplete."""
    try:
        probed, sha256 = await asyncio.gather(
            probe(path, start=how.start, caps=OURS), asyncio.to_thread(sha256_of, path)
        )
    except MediaError as error:
        raise OutputIncomplete(f"what was written cannot be read: {error}") from None
    check_duration(expected_s(media, spec), probed.duration_s, media)
    main = probed.video if spec.form.video else probed.audio
    if main is None:
        raise OutputIncomplete("what was written lacks the stream that it was made for")
    if spec.form.video and main.codec != video_codec(spec):
        raise OutputIncomplete(f"what was written is {main.codec}, not {video_codec(spec)}")
    sizes = main.shown_size if spec.form.video else (0, 0)
    return Output(
        spec.key, path, probed.size_bytes, probed.duration_s, main.codec, sha256, spec.form.mime, sizes[0], sizes[1]
    )


def expected_s(media: Media, spec: OutputSpec) -> float:
    """Return an output's expected seconds: until its last stream ends. 0 if the source's length is unknown."""
    streams = [stream for stream in (media.audio, media.video if spec.form.video else None) if stream is not None]
    ends = [(stream.start_s or 0.0) + stream.duration_s - media.start_s for stream in streams if stream.duration_s]
    whole_s = max(ends) if ends and len(ends) == len(streams) else media.duration_s
    start_s, end_s = spec.seconds(media)
    return max(0.0, min(end_s, whole_s) - start_s) if whole_s else 0.0


def check_duration(expected_length_s: float, made_s: float, media: Media) -> None:
    """Raise OutputIncomplete if the output's length is wrong by more than the slack. A slow source may lose a frame."""
    frame_s = 1.5 / media.video.fps if media.video is not None and media.video.fps else 0.0
    slack_s = max(SLACK_S, SLACK_SHARE * expected_length_s, frame_s)
    if not made_s or (expected_length_s and abs(made_s - expected_length_s) > slack_s):
        raise OutputIncomplete(
            f"{made_s:.3f} s were written where {expected_length_s:.3f} s were expected; the source may be damaged"
        )


def progress_within(on_progress: Callable[[Progress], object], low: float, high: float) -> Callable[[Progress], object]:
    """Return a progress callback that maps one pass to a part of the whole."""

    def tell(progress: Progress) -> None:
        if progress.percent is not None:
            progress = progress._replace(percent=100 * low + progress.percent * (high - low))
        on_progress(progress)

    return tell


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
