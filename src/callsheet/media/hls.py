"""HLS: one folder with `index.m3u8` and `segment_*.ts`. With several sizes the index lists their playlists.

Key frames come every two seconds in all sizes, so that players can switch size at any segment. No size exceeds the
source's.

`read_playlist` checks ffmpeg's playlists, `end_playlist` corrects the length of the last segment.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .arguments import (
    PLAIN,
    RUNGS,
    Rendition,
    audio_start_filter,
    audio_words,
    clock_words,
    colours,
    fit,
    has_long_frames,
    input_for,
    ladder,
    length_of,
    repeat_filters,
)
from .errors import NoSuchStream, OutputIncomplete
from .ffmpeg import Ffmpeg, Work, folder_state, ignore_progress
from .output import Output, check_duration, expected_s, gain_for, sha256_of
from .probe import Media
from .progress import Progress
from .spec import OutputSpec, output_limit, video_encoder

INDEX = "index.m3u8"
SEGMENT_S = 6.0
KEY_FRAME_S = 2.0
MIME = {".m3u8": "application/vnd.apple.mpegurl", ".ts": "video/mp2t", ".jpg": "image/jpeg"}

LEAST_S = 0.001  # of a segment
_LENGTH = re.compile(r"^#EXTINF:([\d.]+)", re.MULTILINE)
_TARGET = re.compile(r"^#EXT-X-TARGETDURATION:\d+", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,120}").fullmatch


class Hls(NamedTuple):
    """A complete HLS folder. `files` are names in upload order: segments first, the index last."""

    folder: Path
    renditions: tuple[Rendition, ...]
    files: tuple[str, ...]
    size_bytes: int
    duration_s: float


async def make_hls(
    media: Media,
    folder: Path,
    how: Ffmpeg,
    spec: OutputSpec | None = None,
    on_progress: Callable[[Progress], object] = ignore_progress,
) -> Hls:
    """Encode a source as HLS into a missing or empty folder. Raises MediaError.

    Without a size in the spec, every rung of the ladder up to the source's size; otherwise that size alone.
    """
    spec = spec or OutputSpec(folder.name, "hls")
    if media.video is None and media.audio is None:
        raise NoSuchStream("the source has neither picture nor sound")
    how = how.with_output_limit(output_limit(media.size_bytes, how.limits.output_bytes))
    await asyncio.to_thread(folder.mkdir, mode=0o700, exist_ok=True)
    gain_db, on_progress = await gain_for(spec, media, folder, how, on_progress)
    renditions = renditions_of(media, spec)
    words = hls_words(media, spec, renditions, how, gain_db)
    expected_length_s = expected_s(media, spec)
    ran = await how.run(Work((input_for(spec, media),), words, expected_length_s), folder, on_progress)
    return await asyncio.to_thread(_check, media, folder, renditions, (expected_length_s, ran.out_time_s))


async def hls_output(
    media: Media, spec: OutputSpec, folder: Path, how: Ffmpeg, on_progress: Callable[[Progress], object]
) -> Output:
    """Make HLS as one output of `transcode`. The folder gets its final name when it is complete."""
    part, place = folder / f"{spec.key}.part", folder / spec.key
    try:
        hls = await make_hls(media, part, how, spec, on_progress)
        os.rename(part, place)  # noqa: PTH104 - a folder of this name that is not empty is an error
    finally:
        await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
    first = hls.renditions[0]
    codec = "h264" if media.video is not None else "aac"
    digest = sha256_of(place / INDEX)
    mime = spec.form.mime
    return Output(spec.key, place, hls.size_bytes, hls.duration_s, codec, digest, mime, first.width, first.height)


def renditions_of(media: Media, spec: OutputSpec) -> tuple[Rendition, ...]:
    """Return the sizes to encode. A source without video has a single audio rendition."""
    if media.video is None:
        return (Rendition("audio", 0, 0, 0),)
    visible_size = media.video.shown_size
    if not (spec.width or spec.height):
        return ladder(visible_size)
    width, height = fit(visible_size, spec.width, spec.height, upscale=spec.upscale)
    above = ladder((width, height), (min(width, height),))[0]
    return (above._replace(width=width, height=height, video_kbps=spec.video_kbps or above.video_kbps),)


def hls_words(
    media: Media, spec: OutputSpec, renditions: tuple[Rendition, ...], how: Ffmpeg, gain_db: float = 0.0
) -> tuple[str, ...]:
    """Return the arguments after the input."""
    many = len(renditions) > 1
    words = [*length_of(spec, media)]
    if media.video is not None:
        words += _pictures(media, spec, renditions, how)
    if media.audio is not None:
        words += [word for _ in renditions for word in ("-map", f"0:{media.audio.number}")]
        words += [*audio_words(spec, how.binary, gain_db, audio_start_filter(spec, media))]
        words += [] if spec.sample_rate_hz else ["-ar", "48000"]
    words += ["-sn", "-dn", *PLAIN, "-f", "hls", "-hls_time", f"{SEGMENT_S:g}", "-hls_playlist_type", "vod"]
    words += ["-hls_flags", "independent_segments+temp_file", "-hls_segment_type", "mpegts"]
    if not many:
        return (*words, "-hls_segment_filename", "segment_%05d.ts", INDEX)
    streams = [
        f"v:{at},{f'a:{at},' if media.audio is not None else ''}name:{rendition.name}"
        for at, rendition in enumerate(renditions)
    ]
    words += ["-var_stream_map", " ".join(streams), "-master_pl_name", INDEX]
    return (*words, "-hls_segment_filename", "segment_%v_%05d.ts", "%v.m3u8")


def _pictures(media: Media, spec: OutputSpec, renditions: tuple[Rendition, ...], how: Ffmpeg) -> list[str]:
    assert media.video is not None  # noqa: S101 - the callers check
    count = len(renditions)
    before = [*colours(media.video, how.binary), *([f"fps={spec.fps:g}"] if spec.fps else [])]
    chain = ",".join([*before, f"split={count}"])
    if has_long_frames(media) and not spec.fps:
        largest = (renditions[0].width, renditions[0].height)
        chain = repeat_filters(media, before, largest, _visible_s(media, spec)) + f",split={count}"
    graph = [f"[0:{media.video.number}]{chain}" + "".join(f"[s{at}]" for at in range(count))]
    graph += [f"[s{at}]scale={size.width}:{size.height},setsar=1[v{at}]" for at, size in enumerate(renditions)]
    words = ["-filter_complex", ";".join(graph)]
    words += [word for at in range(count) for word in ("-map", f"[v{at}]")]
    words += ["-c:v", video_encoder(spec, how.binary), "-preset", "veryfast"]
    words += ["-profile:v", "high", "-pix_fmt", "yuv420p"]
    words += [*clock_words(media), "-fps_mode", "vfr", "-sc_threshold", "0", "-flags:v", "+bitexact+cgop"]
    words += ["-force_key_frames", f"expr:gte(t,n_forced*{KEY_FRAME_S:g})"]
    for at, size in enumerate(renditions):
        words += [f"-crf:v:{at}", "22", f"-maxrate:v:{at}", f"{size.video_kbps}k"]
        words += [f"-bufsize:v:{at}", f"{size.video_kbps * 2}k"]
    return words


def _visible_s(media: Media, spec: OutputSpec) -> float:
    """Return how long the video is visible, from the start of the output."""
    assert media.video is not None  # noqa: S101 - the callers check
    start_s, end_s = spec.seconds(media)
    return min(end_s, media.shown_until_s) - start_s


def _check(media: Media, folder: Path, renditions: tuple[Rendition, ...], lengths: tuple[float, float]) -> Hls:
    """Check that playlists and segments exist, that all sizes are cut alike, and that the length is right.

    `lengths` are the expected and the written seconds. ffmpeg guesses the last frame's duration; we know it.
    """
    expected_length_s, written_s = lengths
    names = [INDEX] if len(renditions) == 1 else [f"{rendition.name}.m3u8" for rendition in renditions]
    playlists = [read_playlist(folder / name) for name in names]
    first = playlists[0]
    for playlist in playlists[1:]:
        pairs = zip(first.lengths, playlist.lengths, strict=False)
        if len(playlist.lengths) != len(first.lengths) or any(abs(one - other) > 0.1 for one, other in pairs):  # noqa: PLR2004
            raise OutputIncomplete("the sizes are not cut at the same places")
    if not (folder / INDEX).is_file():
        raise OutputIncomplete(f"{INDEX} was not written")
    check_duration(
        expected_length_s,
        min((sum(first.lengths), written_s), key=lambda made_s: abs(made_s - expected_length_s)),
        media,
    )
    if expected_length_s:
        for name in names:
            end_playlist(folder / name, expected_length_s)
    duration_s = sum(read_playlist(folder / names[0]).lengths)
    files = [segment for playlist in playlists for segment in playlist.segments]
    files += [name for name in names if name != INDEX]
    return Hls(folder, renditions, (*files, INDEX), folder_state(folder)[0], duration_s)


__all__ = ["INDEX", "MIME", "RUNGS", "Hls", "Playlist", "make_hls", "read_playlist"]


class Playlist(NamedTuple):
    """A media playlist: each segment's length and file name."""

    lengths: tuple[float, ...]
    segments: tuple[str, ...]


def read_playlist(path: Path) -> Playlist:
    """Return a complete media playlist. Raises OutputIncomplete."""
    try:
        text = path.read_text("utf-8")
    except OSError:
        raise OutputIncomplete(f"{path.name} was not written") from None
    if "#EXT-X-ENDLIST" not in text:
        raise OutputIncomplete(f"{path.name} has no end")
    segments = tuple(line for line in text.splitlines() if line and not line.startswith("#"))
    for name in segments:
        segment = path.with_name(name) if _NAME(name) else None
        if segment is None or not segment.is_file() or not segment.stat().st_size:
            raise OutputIncomplete(f"{path.name} names a segment that is not there")
    return Playlist(tuple(map(float, _LENGTH.findall(text))), segments)


def end_playlist(path: Path, end_s: float) -> None:
    """Make the last segment end with the source, and set the target duration to the longest segment."""
    text = path.read_text("utf-8")
    matches = list(_LENGTH.finditer(text))
    if not matches:
        return
    lengths = [float(match[1]) for match in matches]
    lengths[-1] = max(LEAST_S, end_s - sum(lengths[:-1]))
    last = matches[-1]
    text = f"{text[: last.start(1)]}{lengths[-1]:.6f}{text[last.end(1) :]}"
    target = max(1, *(round(length + 1e-9) for length in lengths))
    path.write_text(_TARGET.sub(f"#EXT-X-TARGETDURATION:{target}", text), "utf-8")
