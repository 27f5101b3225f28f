"""Repeat long frames: screen recordings have gaps of seconds between frames, and a last frame that stays.

A stream holds only the times at which frames begin. Where one frame lasts longer than HOLD_S, players, segments and
seeks get wrong lengths and late key frames. So such a source repeats its frame twice a second: a thin strip with a
steady frame rate is stacked beside it, which yields a frame for each of both inputs, and is cropped off again. Every
frame of the source keeps its own time.
"""

from __future__ import annotations

from .probe import Media

HOLD_S = 0.5
TICKS_HZ = 50  # near the end, so that the last frame ends with the source
CLOCK_HZ = 90_000
LAST_TICKS = CLOCK_HZ // TICKS_HZ  # of the last frame
STRIP = 2  # pixels
FIRST = "setpts=if(eq(N\\,0)\\,min(PTS\\,0)\\,PTS)"  # the first frame starts at time 0


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
