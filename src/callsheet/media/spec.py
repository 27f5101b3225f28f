"""Output specifications, checked against source and ffmpeg. A wrong field is reported before any work."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from mimetypes import MimeTypes
from pathlib import PurePosixPath
from typing import NamedTuple

from .binaries import Binary
from .errors import InvalidOutput, NoSuchStream
from .probe import Media

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}").fullmatch
GB = 1_000_000_000
SAMPLE_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
MOST_SIDE = 8192
MOST_FPS = 240
LOUDEST_LUFS, QUIETEST_LUFS = -5.0, -70.0


class Format(NamedTuple):
    """An output format: its muxer, its encoders in order of preference, and its media type."""

    muxer: str
    mime: str
    audio: tuple[str, ...]
    video: Mapping[str, tuple[str, ...]]  # codec → encoders; empty for sound alone
    audio_kbps: int = 0
    sample_rates: tuple[int, ...] = SAMPLE_RATES


H264 = {"h264": ("libx264",)}
WEB = {"vp9": ("libvpx-vp9",), "av1": ("libsvtav1", "libaom-av1")}
FORMATS = {
    "mp3": Format("mp3", "audio/mpeg", ("libmp3lame",), {}, 160),
    "aac": Format("ipod", "audio/mp4", ("aac",), {}, 160),
    "opus": Format("opus", "audio/ogg", ("libopus",), {}, 96, OPUS_RATES),
    "flac": Format("flac", "audio/flac", ("flac",), {}, 0, (*SAMPLE_RATES, 88200, 96000)),
    "wav": Format("wav", "audio/wav", ("pcm_s16le",), {}, 0, (*SAMPLE_RATES, 88200, 96000)),
    "mp4": Format("mp4", "video/mp4", ("aac",), H264, 128),
    "webm": Format("webm", "video/webm", ("libopus",), WEB, 96, OPUS_RATES),
    "hls": Format("hls", "application/vnd.apple.mpegurl", ("aac",), H264, 128),
}


ENDINGS = {
    "mp3": (".mp3",),
    "aac": (".m4a", ".aac", ".mp4"),
    "opus": (".opus", ".ogg", ".oga"),
    "flac": (".flac",),
    "wav": (".wav", ".wave"),
    "mp4": (".mp4", ".m4v"),
    "webm": (".webm",),
    "hls": (),
}
ALL_ENDINGS = frozenset(ending for endings in ENDINGS.values() for ending in endings)
TYPES = MimeTypes()  # Python's built-in types; the lists of machines differ


class OutputSpec(NamedTuple):
    """One output. Zero or empty fields get defaults: quality by format, size and rates of the source.

    `key` is the output's file name; for HLS its folder's name. Times are seconds of the source from its first picture
    or sound. `width` and `height` are the frame that the picture must fit in. `loudness_lufs` is the target loudness
    by EBU R128, such as -16; one gain for the whole output reaches it, or less if peaks would clip.
    """

    key: str
    format: str
    video_codec: str = ""
    video_kbps: int = 0
    audio_kbps: int = 0
    sample_rate_hz: int = 0
    channels: int = 0
    width: int = 0
    height: int = 0
    upscale: bool = False
    fps: float = 0.0
    loudness_lufs: float | None = None
    start_s: float = 0.0
    end_s: float | None = None

    @property
    def form(self) -> Format:
        """The entry of its format in FORMATS."""
        return FORMATS[self.format]

    def seconds(self, media: Media) -> tuple[float, float]:
        """Return start and end within the source, in seconds."""
        end_s = media.duration_s if self.end_s is None else min(self.end_s, media.duration_s or self.end_s)
        return self.start_s, end_s


def check_spec(spec: OutputSpec) -> None:
    """Raise InvalidOutput for fields that no source and no ffmpeg can fulfil."""
    if not KEY(spec.key) or ".." in spec.key:
        raise InvalidOutput(f"key: {spec.key[:120]!r} is no file name; use letters, digits, '.', '_' and '-'")
    if spec.format not in FORMATS:
        raise InvalidOutput(f"format: {spec.format!r} is not one of {', '.join(FORMATS)}")
    form = spec.form
    if spec.video_codec and spec.video_codec not in form.video:
        raise InvalidOutput(
            f"video_codec: {spec.format} holds {', '.join(form.video) or 'no video'}, not {spec.video_codec!r}"
        )
    _check_picture(spec)
    _within("video_kbps", spec.video_kbps, 50, 200_000)
    _within("audio_kbps", spec.audio_kbps, 8, 510)
    _within("channels", spec.channels, 1, 2)
    _within("width", spec.width, 2, MOST_SIDE)
    _within("height", spec.height, 2, MOST_SIDE)
    _within("fps", spec.fps, 1, MOST_FPS)
    if spec.sample_rate_hz and spec.sample_rate_hz not in form.sample_rates:
        raise InvalidOutput(f"sample_rate_hz: {spec.format} can have {', '.join(map(str, form.sample_rates))}")
    if spec.loudness_lufs is not None and not QUIETEST_LUFS <= spec.loudness_lufs <= LOUDEST_LUFS:
        raise InvalidOutput(f"loudness_lufs: between {QUIETEST_LUFS:g} and {LOUDEST_LUFS:g}, such as -16")
    _check_times(spec)
    _check_name(spec)


def check_for(spec: OutputSpec, media: Media, binary: Binary) -> None:
    """Raise InvalidOutput or NoSuchStream if this source or this ffmpeg cannot fulfil the spec."""
    check_spec(spec)
    if media.duration_s and spec.start_s >= media.duration_s:
        raise InvalidOutput(f"start_s: the source lasts {media.duration_s:.3f} s only")
    if not spec.form.video and media.audio is None:
        raise NoSuchStream(f"the source has no sound, so there is no {spec.format} of it")
    if spec.format in ("mp4", "webm") and media.video is None:
        raise NoSuchStream(f"the source has no moving picture; ask for sound alone instead of {spec.format}")
    if spec.loudness_lufs is not None and media.audio is None:
        raise NoSuchStream("loudness_lufs: the source has no sound")
    if spec.form.video and media.video is not None:
        video_encoder(spec, binary)
    audio_encoder(spec, binary)


def video_encoder(spec: OutputSpec, binary: Binary) -> str:
    """Return the video encoder. Raises InvalidOutput if this ffmpeg has none."""
    return _first(spec.form.video[video_codec(spec)], binary, f"video_codec: {video_codec(spec)}")


def audio_encoder(spec: OutputSpec, binary: Binary) -> str:
    """Return the audio encoder. Raises InvalidOutput if this ffmpeg has none."""
    return _first(spec.form.audio, binary, f"format: {spec.format}")


def video_codec(spec: OutputSpec) -> str:
    """Return the requested codec, or the format's first."""
    return spec.video_codec or next(iter(spec.form.video))


def output_limit(source_bytes: int, own_bytes: int = 0) -> int:
    """Return an output's maximum size in bytes, 0 for none: twice the source if that exceeds a gigabyte."""
    limits = [limit for limit in (own_bytes, 2 * source_bytes if source_bytes > GB else 0) if limit]
    return min(limits, default=0)


def _check_times(spec: OutputSpec) -> None:
    times = [spec.start_s, *([] if spec.end_s is None else [spec.end_s])]
    if not all(math.isfinite(time) and time >= 0 for time in times):
        raise InvalidOutput("start_s, end_s: seconds from 0 on")
    if spec.end_s is not None and spec.end_s <= spec.start_s:
        raise InvalidOutput("end_s: has to be after start_s")


def _check_name(spec: OutputSpec) -> None:
    """Raise InvalidOutput if the name's suffix belongs to another format; a missing suffix is fine."""
    ending = PurePosixPath(spec.key).suffix.lower()
    own = ENDINGS[spec.format]
    if own and ending not in own and (ending in ALL_ENDINGS or TYPES.guess_type(f"a{ending}")[0] is not None):
        raise InvalidOutput(f"key: the name of {spec.format} ends in {' or '.join(own)}, not in {ending}")


def _check_picture(spec: OutputSpec) -> None:
    if spec.form.video:
        return
    for field in ("video_kbps", "width", "height", "fps", "upscale"):
        if getattr(spec, field):
            raise InvalidOutput(f"{field}: {spec.format} holds no picture; leave it out")


def _within(field: str, value: float, least: float, most: float) -> None:
    if value and not least <= value <= most:
        raise InvalidOutput(f"{field}: between {least:g} and {most:g}, or 0 to leave it to us")


def _first(names: tuple[str, ...], binary: Binary, what: str) -> str:
    for name in names:
        if binary.has(name):
            return name
    raise InvalidOutput(f"{what}: this ffmpeg ({binary.version}) has no encoder for it; it needs {' or '.join(names)}")
