"""Inspect a media file: streams, duration, sizes, rotation. A sandboxed child opens the file, never this process."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.sandbox.command import GB, MB, Limits, Sight, environment, of_python
from callsheet.sandbox.processes import Bounds, Program, Start, import_folders, output_of, run_child, start_alone

from .allowed_formats import WHITELIST, is_codec_allowed, why_refused
from .errors import (
    CorruptInput,
    InputTooLarge,
    LimitReached,
    MediaError,
    NotMedia,
    TookTooLong,
    UnsupportedInput,
)
from .ffmpeg_errors import death_of
from .sniff import MAX_BYTES, Kind, sniff

CHILD = Path(__file__).with_name("probe_child.py")
HDR_TRANSFERS = (16, 18)  # PQ and HLG
PROBE_LIMITS = Limits(wall_s=60.0, cpu_s=60, memory_bytes=2 * GB, file_bytes=MB, open_files=64, free_bytes=0, nice=0)


class Caps(NamedTuple):
    """Limits on a source file."""

    size_bytes: int = MAX_BYTES
    pixels: int = 8192 * 8192
    streams: int = 64
    duration_s: float = 24 * 3600.0


class Stream(NamedTuple):
    """One stream. `width` and `height` are coded sizes; `shown_size` is the viewer's."""

    number: int
    kind: str
    codec: str
    start_s: float | None = None
    duration_s: float | None = None
    language: str = ""
    width: int = 0
    height: int = 0
    pixels: int = 0
    aspect: float = 1.0
    rotation: int = 0
    fps: float = 0.0
    is_variable: bool = False
    longest_s: float = 0.0  # that one frame is shown
    pix_fmt: str = ""
    transfer: int = 0
    is_cover: bool = False
    sample_rate_hz: int = 0
    channels: int = 0

    @property
    def shown_size(self) -> tuple[int, int]:
        """Width and height after rotation, with square pixels."""
        width, height = max(1, round(self.width * self.aspect)), self.height
        return (height, width) if self.rotation % 180 == 90 else (width, height)  # noqa: PLR2004

    @property
    def is_hdr(self) -> bool:
        """Whether the video is HDR (PQ or HLG), which looks grey on other screens without tone mapping."""
        return self.transfer in HDR_TRANSFERS


class Media(NamedTuple):
    """A probed file and its streams. `duration_s` runs from the first sound or picture to the end of the last."""

    path: Path
    kind: Kind
    size_bytes: int
    duration_s: float
    start_s: float
    bit_rate: int
    streams: tuple[Stream, ...]

    @property
    def video(self) -> Stream | None:
        """The first video stream; a song's cover picture is none."""
        return next((stream for stream in self.streams if stream.kind == "video" and not stream.is_cover), None)

    @property
    def audio(self) -> Stream | None:
        """The first audio stream."""
        return next((stream for stream in self.streams if stream.kind == "audio"), None)

    @property
    def shown_until_s(self) -> float:
        """When the last picture ends, from the first sound or picture on."""
        video = self.video
        if video is None or not video.duration_s:
            return self.duration_s
        return min(self.duration_s, (video.start_s or 0.0) + video.duration_s - self.start_s)


async def probe(path: Path, *, start: Start = start_alone, caps: Caps = Caps()) -> Media:  # noqa: B008 - a tuple
    """Inspect a local file.

    Raises whatever `sniff` raises, and CorruptInput, InputTooLarge, LimitReached and others.
    """
    path = path.absolute()  # noqa: ASYNC240 - no look at the disk; not resolved, since links are refused
    kind = await asyncio.to_thread(sniff, path, max_bytes=caps.size_bytes)
    content = await _run_child(path, kind, start, caps)
    media = _media(path, kind, content)
    _check(media, caps)
    return media


async def _run_child(path: Path, kind: Kind, start: Start, caps: Caps) -> dict[str, Any]:
    try:
        packages = import_folders("av")[-1]
    except ModuleNotFoundError:
        raise MediaError("PyAV is not installed; pip install 'callsheet[media]'") from None
    command = [sys.executable, "-I", "-S", "-B", str(CHILD)]
    command += [str(packages), str(path), kind.demuxer, WHITELIST, str(caps.streams + 1)]
    sight = Sight(read=(path, *of_python(), CHILD, CHILD.resolve(), packages))
    program = Program(command, sight, PROBE_LIMITS, environment(Path(tempfile.gettempdir())))
    bounds = Bounds(
        PROBE_LIMITS.wall_s, TookTooLong(f"looking into the file took longer than {PROBE_LIMITS.wall_s:g} s")
    )
    process = await program.start(start, stdin=DEVNULL)
    return _content(*await run_child(process, output_of(process).read(), bounds))


def _content(out: bytes, code: int, stderr_tail: str) -> dict[str, Any]:
    if death := death_of(code, "looking into the file"):
        raise death
    try:
        answer: dict[str, Any] = json.loads(out)
    except ValueError:
        raise MediaError(
            f"the file could not be looked into (exit code {code}): {stderr_tail.strip()[-300:]}"
        ) from None
    if answer.get("error") == "memory":
        raise LimitReached("looking into the file needs more memory than it may have")
    if "error" in answer:
        raise CorruptInput(f"the file cannot be read: {answer['text']}")
    content: dict[str, Any] = answer["media"]
    return content


def _media(path: Path, kind: Kind, content: dict[str, Any]) -> Media:
    streams = tuple(Stream(**stream) for stream in content["streams"])
    audible_or_visible = [stream for stream in streams if stream.kind in ("video", "audio") and not stream.is_cover]
    first_s = min((stream.start_s or 0.0 for stream in audible_or_visible), default=0.0)
    ends = [(stream.start_s or 0.0) + stream.duration_s for stream in audible_or_visible if stream.duration_s]
    duration_s = max(ends) - first_s if ends and len(ends) == len(audible_or_visible) else content["duration_s"] or 0.0
    return Media(
        path, kind, path.stat().st_size, round(duration_s, 6), content["start_s"] or 0.0, content["bit_rate"], streams
    )


def _check(media: Media, caps: Caps) -> None:
    if len(media.streams) > caps.streams:
        raise InputTooLarge(f"the file has more than {caps.streams} streams")
    for stream in media.streams:
        if stream.pixels > caps.pixels:
            raise InputTooLarge(f"a picture of {stream.width}x{stream.height} is over {caps.pixels} pixels")
    for main in (media.video, media.audio):
        if main is not None and not is_codec_allowed(main.kind, main.codec):
            raise UnsupportedInput(why_refused(main.kind, main.codec))
    if media.duration_s > caps.duration_s:
        raise InputTooLarge(f"the file lasts {media.duration_s:.0f} s, and {caps.duration_s:.0f} s are the most")
    if media.video is not None and not media.video.pixels:
        raise CorruptInput("the file says that it holds pictures, and none can be read")
    if media.audio is not None and not media.audio.sample_rate_hz:
        raise CorruptInput("the file says that it holds sound, and none can be read")
    if not any(stream.kind in ("video", "audio") for stream in media.streams):
        raise NotMedia("the file holds neither sound nor picture")
