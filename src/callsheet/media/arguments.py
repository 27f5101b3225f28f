"""ffmpeg's command-line arguments for an output. Pure functions of the source and the output spec.

Picture sizes are always even, and never larger than the source unless requested.

Screen recordings have gaps of seconds between frames, and a last frame that stays. A stream holds only the times at
which frames begin: where one frame lasts longer than HOLD_S, players, segments and seeks get wrong lengths and late key
frames. So such a source repeats its frame twice a second: a thin strip with a steady frame rate is stacked beside it,
which yields a frame for each of both inputs, and is cropped off again. Every frame of the source keeps its own time.
"""

from __future__ import annotations

from typing import NamedTuple

from .binaries import Binary
from .ffmpeg import Input
from .probe import Media, Stream
from .spec import OutputSpec, audio_encoder, video_encoder

HOLD_S = 0.5
TICKS_HZ = 50  # near the end, so that the last frame ends with the source
CLOCK_HZ = 90_000
LAST_TICKS = CLOCK_HZ // TICKS_HZ  # of the last frame
STRIP = 2  # pixels
FIRST = "setpts=if(eq(N\\,0)\\,min(PTS\\,0)\\,PTS)"  # the first frame starts at time 0

RUNGS = (1080, 720, 480, 360)
SMALLEST = 2
# maximum kilobits a second, by the shorter side; other sizes get values in between
RATES = {1080: 5000, 720: 3000, 480: 1400, 360: 800}

# no tags, no chapters, no name of the encoder: the same input gives the same bytes
PLAIN = (
    *("-map_metadata", "-1", "-map_chapters", "-1"),
    *("-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact"),
)
QUALITY = {
    "libx264": ("-preset", "veryfast", "-crf", "22", "-profile:v", "high"),
    "libvpx-vp9": ("-deadline", "realtime", "-cpu-used", "6", "-row-mt", "1", "-crf", "33", "-b:v", "0"),
    "libsvtav1": ("-preset", "10", "-crf", "35"),
    "libaom-av1": ("-usage", "realtime", "-cpu-used", "8", "-row-mt", "1", "-crf", "35", "-b:v", "0"),
}
TONE_MAP = (
    "zscale=t=linear:npl=100,format=gbrpf32le,zscale=p=bt709,"
    "tonemap=hable:desat=0,zscale=t=bt709:m=bt709:r=tv,format=yuv420p"
)


def has_long_frames(media: Media) -> bool:
    """Whether a frame lasts so long that it must be repeated, or the first frame comes late."""
    video = media.video
    return video is not None and max(video.longest_s, (video.start_s or 0.0) - media.start_s) > HOLD_S


def repeat_filters(media: Media, before: list[str], size: tuple[int, int], length_s: float) -> str:
    """Return filters: those in `before`, the scaled picture, and repeated frames until `length_s`."""
    width, height = size
    length_s = max(length_s, 1 / TICKS_HZ)
    picture = ",".join([*before, f"scale={width}:{height}", "setsar=1", "format=yuv420p", f"settb=1/{CLOCK_HZ}"])
    if _sound_ends_first(media):
        return f"{picture},fps={TICKS_HZ}:start_time=0,settb=1/{CLOCK_HZ}"
    end = f"gte(t\\,{max(0.0, length_s - 2 / TICKS_HZ):.6f})"
    strip = f"color=c=black:s={STRIP}x{height}:r={TICKS_HZ}:d={length_s:.6f}"
    strip += f",select=not(mod(n\\,{round(HOLD_S * TICKS_HZ)}))+{end},setsar=1,format=yuv420p,settb=1/{CLOCK_HZ}"
    return f"{picture},{FIRST}[shown];{strip}[strip];[shown][strip]hstack,crop={width}:{height}:0:0,settb=1/{CLOCK_HZ}"


def _sound_ends_first(media: Media) -> bool:
    """Whether frames must come at a steady rate: ffmpeg 7.0 hangs if sound ends before a striped video."""
    sound = media.audio
    if sound is None:
        return False
    end_s = (sound.start_s or 0.0) + (sound.duration_s or 0.0) - media.start_s
    return end_s < media.shown_until_s + HOLD_S


def clock_words(media: Media) -> tuple[str, ...]:
    """Return encoder arguments for a fine time base: a file that declares 30 frames a second may have 60."""
    is_uneven = media.video is not None and (media.video.is_variable or has_long_frames(media))
    return ("-enc_time_base:v", f"1:{CLOCK_HZ}") if is_uneven else ()


class Rendition(NamedTuple):
    """An encoded size of a video."""

    name: str
    width: int
    height: int
    video_kbps: int
    audio_kbps: int = 128


def even(length: float, most: int) -> int:
    """Return the nearest even number, between 2 and `most`: 4:2:0 video needs even sides."""
    return max(SMALLEST, min(round(length / 2) * 2, most // 2 * 2))


def fit(source_size: tuple[int, int], width: int = 0, height: int = 0, *, upscale: bool = False) -> tuple[int, int]:
    """Return the largest size with the same aspect inside a frame; 0 leaves a side open."""
    scales = [limit / side for limit, side in ((width, source_size[0]), (height, source_size[1])) if limit]
    scale = min(scales, default=1.0)
    if not upscale:
        scale = min(scale, 1.0)
    return _scale_size(source_size, scale)


def ladder(source_size: tuple[int, int], rungs: tuple[int, ...] = RUNGS) -> tuple[Rendition, ...]:
    """Return sizes from large to small, named by the shorter side. A source below all rungs keeps its own size."""
    shorter = min(source_size)
    heights = [rung for rung in sorted(rungs, reverse=True) if rung <= shorter] or [even(shorter, shorter)]
    return tuple(_rendition(source_size, rung) for rung in heights)


def _rendition(source_size: tuple[int, int], rung: int) -> Rendition:
    width, height = _scale_size(source_size, rung / min(source_size))
    above = min((rate for rate in RATES if rate >= rung), default=max(RATES))
    return Rendition(f"{rung}p", width, height, max(200, round(RATES[above] * (min(rung, above) / above) ** 1.5)))


def _scale_size(size: tuple[int, int], scale: float) -> tuple[int, int]:
    width, height = (even(side * scale, max(side, round(side * scale))) for side in size)
    return width, height


def input_for(spec: OutputSpec, media: Media) -> Input:
    """Return the source, seeking to the output's start. Exact to the frame, since every stream is encoded anew."""
    seek: tuple[str, ...] = ("-ss", f"{spec.start_s:.6f}") if spec.start_s > 0 else ()
    if seek and _repeats_frames(spec, media):
        seek = ("-noaccurate_seek", *seek)  # the frame visible at the start began earlier
    return Input(media.path, media.kind.demuxer, seek)


def arguments_for(spec: OutputSpec, media: Media, binary: Binary, gain_db: float = 0.0) -> tuple[str, ...]:
    """Return all arguments after the input, for one output file named by the spec's key."""
    words: list[str] = [*length_of(spec, media)]
    if spec.form.video and media.video is not None:
        words += ["-map", f"0:{media.video.number}", *_video(spec, media, media.video, binary)]
    else:
        words += ["-vn"]
    if media.audio is not None:
        first_filter = audio_start_filter(spec, media)
        words += ["-map", f"0:{media.audio.number}", *audio_words(spec, binary, gain_db, first_filter)]
    words += ["-sn", "-dn", *PLAIN]
    words += ["-movflags", "+faststart"] if spec.form.muxer in ("mp4", "ipod") else []
    return (*words, "-f", spec.form.muxer, spec.key)


def length_of(spec: OutputSpec, media: Media) -> tuple[str, ...]:
    """Return the arguments that limit the output's length."""
    if spec.end_s is None:
        return ()
    start_s, end_s = spec.seconds(media)
    return ("-t", f"{end_s - start_s:.6f}")


def audio_words(spec: OutputSpec, binary: Binary, gain_db: float = 0.0, first: str = "") -> tuple[str, ...]:
    """Return the audio encoder, its rates and filters; `first` is a filter that runs before the gain."""
    kbps = spec.audio_kbps or spec.form.audio_kbps
    words = ["-c:a", audio_encoder(spec, binary)]
    words += ["-b:a", f"{kbps}k"] if kbps else []
    words += ["-ar", str(spec.sample_rate_hz)] if spec.sample_rate_hz else []
    words += ["-ac", str(spec.channels or 2)] if spec.channels or spec.format in ("hls", "mp4", "webm", "mp3") else []
    filters = [*([first] if first else []), *([f"volume={gain_db:.3f}dB"] if gain_db else [])]
    words += ["-af", ",".join(filters)] if filters else []
    return tuple(words)


def colours(video: Stream, binary: Binary) -> list[str]:
    """Return the filters that map HDR video to the standard range, if this ffmpeg has them."""
    return [TONE_MAP] if video.is_hdr and binary.has("zscale", "tonemap") else []


def audio_start_filter(spec: OutputSpec, media: Media) -> str:
    """Return the audio filter that cuts sound before the start, for video with repeated frames."""
    return "atrim=start=0" if spec.start_s > 0 and _repeats_frames(spec, media) else ""


def _repeats_frames(spec: OutputSpec, media: Media) -> bool:
    return bool(spec.form.video) and has_long_frames(media) and not spec.fps


def _video(spec: OutputSpec, media: Media, video: Stream, binary: Binary) -> list[str]:
    encoder = video_encoder(spec, binary)
    width, height = fit(video.shown_size, spec.width, spec.height, upscale=spec.upscale)
    filters = [*colours(video, binary), f"scale={width}:{height}", "setsar=1"]
    filters += [f"fps={spec.fps:g}"] if spec.fps else []
    graph = ",".join(filters)
    quality = QUALITY[encoder]
    if spec.video_kbps:
        quality = _without(quality, "-crf", "-b:v")
        rate = spec.video_kbps
        quality += ("-b:v", f"{rate}k", "-maxrate", f"{rate * 3 // 2}k", "-bufsize", f"{rate * 2}k")
    if _repeats_frames(spec, media):
        start_s, end_s = spec.seconds(media)
        length_s = min(end_s, media.shown_until_s) - start_s
        graph = repeat_filters(media, [*colours(video, binary)], (width, height), length_s)
        # the last frame lasts until the end, and its packet holds that duration
        quality += ("-bsf:v", f"setts=duration={LAST_TICKS}", *(("-bf", "0") if encoder == "libx264" else ()))
    words = ["-vf", graph, "-c:v", encoder, *quality, "-pix_fmt", "yuv420p"]
    # frames keep their own times: an uneven source would otherwise be padded to thousands of frames a second
    return [*words, *(() if spec.fps else clock_words(media)), "-fps_mode", "cfr" if spec.fps else "vfr"]


def _without(words: tuple[str, ...], *flags: str) -> tuple[str, ...]:
    pairs = zip(words[::2], words[1::2], strict=True)
    return tuple(word for flag, value in pairs if flag not in flags for word in (flag, value))
