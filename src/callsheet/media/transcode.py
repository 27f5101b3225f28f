"""Transcode one source into one output. The output gets its final name only after it passes its checks."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from .arguments import arguments_for, input_for
from .errors import MediaError, OutputIncomplete
from .ffmpeg import Ffmpeg, Work, ignore_progress
from .hls import hls_output
from .output import Output, check_duration, expected_s, gain_for, sha256_of
from .probe import Caps, Media, probe
from .progress import Progress
from .spec import OutputSpec, check_for, output_limit, video_codec

OURS = Caps(size_bytes=1 << 62)


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
    gain_db, on_progress = await gain_for(spec, media, part, how, on_progress)
    start_s, end_s = spec.seconds(media)
    words = arguments_for(spec, media, how.binary, gain_db)
    await how.run(Work((input_for(spec, media),), words, max(0.0, end_s - start_s)), part, on_progress)


async def _check_output(media: Media, spec: OutputSpec, path: Path, how: Ffmpeg) -> Output:
    try:
        result, sha256 = await asyncio.gather(
            probe(path, start=how.start, caps=OURS), asyncio.to_thread(sha256_of, path)
        )
    except MediaError as error:
        raise OutputIncomplete(f"what was written cannot be read: {error}") from None
    check_duration(expected_s(media, spec), result.duration_s, media)
    main = result.video if spec.form.video else result.audio
    if main is None:
        raise OutputIncomplete("what was written lacks the stream that it was made for")
    if spec.form.video and main.codec != video_codec(spec):
        raise OutputIncomplete(f"what was written is {main.codec}, not {video_codec(spec)}")
    sizes = main.shown_size if spec.form.video else (0, 0)
    return Output(
        spec.key, path, result.size_bytes, result.duration_s, main.codec, sha256, spec.form.mime, sizes[0], sizes[1]
    )
