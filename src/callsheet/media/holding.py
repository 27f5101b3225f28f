"""Frames that stand for long: screen recordings have gaps of seconds, and a last frame that holds.

A stream has only the times at which frames begin. Where one stands for longer than HOLD_S, players, segments and seeks
have nothing to go by: lengths come out wrong, and key frames too late. So such a source is shown again twice a second:
a thin strip of pictures that come at steady times is put beside it, which makes a frame of each of its own and of each
of theirs, and is cut off again. Every frame of the source keeps its own time.
"""

from __future__ import annotations

from .probe import Media

HOLD_S = 0.5
TICKS_HZ = 50  # at the end, so that the last frame ends where the source does
CLOCK_HZ = 90_000
LAST_TICKS = CLOCK_HZ // TICKS_HZ  # of the last frame
STRIP = 2  # pixels
FIRST = "setpts=if(eq(N\\,0)\\,min(PTS\\,0)\\,PTS)"  # what is there first is there from the beginning


def holds(media: Media) -> bool:
    """Whether a frame of the source stands for so long that it has to be shown again, or the first comes late."""
    video = media.video
    return video is not None and max(video.longest_s, (video.start_s or 0.0) - media.start_s) > HOLD_S


def shown_again(media: Media, before: list[str], size: tuple[int, int], length_s: float) -> str:
    """Filters of one input: those before, the picture at a size, and again until `length_s` where nothing new comes."""
    width, height = size
    length_s = max(length_s, 1 / TICKS_HZ)
    source = ",".join([*before, f"scale={width}:{height}", "setsar=1", "format=yuv420p", f"settb=1/{CLOCK_HZ}"])
    if _sound_ends_first(media):
        return f"{source},fps={TICKS_HZ}:start_time=0,settb=1/{CLOCK_HZ}"
    end = f"gte(t\\,{max(0.0, length_s - 2 / TICKS_HZ):.6f})"
    strip = f"color=c=black:s={STRIP}x{height}:r={TICKS_HZ}:d={length_s:.6f}"
    strip += f",select=not(mod(n\\,{round(HOLD_S * TICKS_HZ)}))+{end},setsar=1,format=yuv420p,settb=1/{CLOCK_HZ}"
    return f"{source},{FIRST}[shown];{strip}[strip];[shown][strip]hstack,crop={width}:{height}:0:0,settb=1/{CLOCK_HZ}"


def _sound_ends_first(media: Media) -> bool:
    """Whether pictures must come steadily: ffmpeg 7.0 stands still when sound ends before those with a strip do."""
    sound = media.audio
    if sound is None:
        return False
    end_s = (sound.start_s or 0.0) + (sound.duration_s or 0.0) - media.start_s
    return end_s < media.shown_until_s + HOLD_S


def clock_words(media: Media) -> tuple[str, ...]:
    """Words for the encoder: times as fine as those of the source; a file that says 30 a second may have 60."""
    uneven = media.video is not None and (media.video.is_variable or holds(media))
    return ("-enc_time_base:v", f"1:{CLOCK_HZ}") if uneven else ()
