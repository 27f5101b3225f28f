"""The child's work: decode one stream once, look at a frame for every tick of the grid, and tell what is kept.

Times are those that the file gives its frames, counted from its earliest stream, as players and ffmpeg count them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from av.stream import Discard
from av.video.reformatter import Interpolation, VideoReformatter

from callsheet.media.taken import WHITELIST

from .frame_filter import ALONE_S, HEIGHT, WIDTH, Sieve, Verdict
from .phash import Gray
from .picture import Camera
from .records import Sampling

TELL_S = 0.5
BACK_S = 1  # time that jumps back by more begins anew after what was there; by less, the frame is skipped
UNDECODED_S = 0.5  # less than this at the end is a matter of rounding, not of lost frames
COVER = 0x400

Tell = Callable[[dict[str, Any]], None]


class Order(NamedTuple):
    """What the child is to do. `threads` are those of the decoder."""

    path: str
    demuxer: str
    stream: int
    folder: str
    max_pixels: int
    max_streams: int
    threads: int
    options: Sampling


class TooLarge(Exception):
    """A frame in the middle is larger than the file said."""


class Sample(NamedTuple):
    """A frame that was looked at."""

    frame: Any
    gray: Gray
    at: Fraction
    was_kept: bool


class Look:
    """One pass over one stream."""

    def __init__(self, order: Order, container: Any, tell: Tell) -> None:
        self._order, self._container, self._tell = order, container, tell
        self._stream = container.streams[order.stream]
        self._start = start_of(container)
        self._base = Fraction(self._stream.time_base)
        rate = self._stream.average_rate or self._stream.guessed_rate or order.options.target_fps
        self._usual = max(1, round(1 / (Fraction(rate) * self._base)))  # ticks of a frame that does not say its length
        self._period = 1 / Fraction(order.options.target_fps)
        self._shrink = VideoReformatter()
        self._camera = Camera(Path(order.folder), self._stream.sample_aspect_ratio)
        self._sieve = Sieve(order.options)
        self._last: Sample | None = None
        self._kept: dict[str, Any] | None = None
        self._gaps: list[tuple[int, int]] = []
        self._sampled = self._count = 0
        self._told_s = time.monotonic()

    def run(self) -> None:
        """Look at the whole stream; the last thing told is what it came to."""
        end = wanted = ceil(self._start / self._base)
        period = ceil(self._period / self._base)
        passed: tuple[Any, int] | None = None  # the latest frame that came before the next tick
        for frame, ticks, was_broken in self._frames():
            if passed is not None and min(ticks, end) >= wanted + period:  # it stood over a tick that has no other
                self._take(passed[0], self._at(passed[1]))
            if was_broken and ticks > end:
                self._gap(self._at(end), self._at(ticks))
            end = max(ticks + (frame.duration or self._usual), 0)
            passed = (frame, ticks)
            if ticks >= wanted:  # whole ticks until here: fractions of all frames cost as much as the sieve
                at, passed = self._at(ticks), None
                wanted = ceil(((at // self._period + 1) * self._period + self._start) / self._base)
                self._take(frame, at)
        if passed is not None and end >= wanted + period:
            self._take(passed[0], self._at(passed[1]))
        self._finish(self._at(end))

    def _frames(self) -> Iterator[tuple[Any, int, bool]]:
        """Each good frame, its time in ticks of the stream, and whether something before it could not be decoded."""
        shift, last, back = 0, None, ceil(BACK_S / self._base)
        was_broken = False
        for frame in decoded(self._container, self._stream):
            if frame is None or frame.is_corrupt or frame.pts is None:
                was_broken = True
                continue
            if frame.width * frame.height > self._order.max_pixels:
                raise TooLarge(f"a picture of {frame.width}x{frame.height}")
            ticks = frame.pts + shift
            if last is not None and ticks < last - back:
                shift += last + self._usual - ticks
                ticks = last + self._usual
            if last is not None and ticks <= last:
                continue
            last = ticks
            yield frame, ticks, was_broken
            was_broken = False

    def _at(self, ticks: int) -> Fraction:
        """Seconds from the start of the video."""
        return max(Fraction(0), ticks * self._base - self._start)

    def _take(self, frame: Any, at: Fraction) -> None:
        self._stand(at)
        small = self._shrink.reformat(
            frame, width=WIDTH, height=HEIGHT, format="gray", interpolation=Interpolation.AREA, threads=1
        )
        gray = self._camera.upright(small.to_ndarray().astype(np.uint8, copy=False), frame)
        verdict = self._sieve.take(gray, float(at))
        self._sampled += 1
        self._last = Sample(frame, gray, at, verdict is not None)
        if verdict is not None:
            self._keep(frame, at, verdict)
        if time.monotonic() - self._told_s > TELL_S:
            self._told_s = time.monotonic()
            self._tell({"at_ms": in_ms(at), "sampled": self._sampled})

    def _stand(self, until: Fraction) -> None:
        """The last sample stood until now: long enough to be at rest, it may be one to keep."""
        last = self._last
        if last is None or last.was_kept or until - last.at < ALONE_S:
            return
        verdict = self._sieve.stood(float(until))
        if verdict is not None:
            self._keep(last.frame, last.at, verdict)

    def _keep(self, frame: Any, at: Fraction, verdict: Verdict) -> None:
        since_ms = in_ms(verdict.since_s)
        self._close(since_ms)
        at_ms = in_ms(at)
        path, width, height = self._camera.write(frame, f"{at_ms}.jpg")
        self._kept = {
            "timestamp_ms": at_ms,
            "since_ms": since_ms,
            "pts": f"{at.numerator}/{at.denominator}",
            "phash": f"{verdict.phash:016x}",
            "width": width,
            "height": height,
            "path": str(path),
        }

    def _close(self, until_ms: int) -> None:
        """Tell of the frame that was kept last: now it is known until when it holds."""
        if self._kept is not None:
            self._count += 1
            self._tell({"kept": {**self._kept, "until_ms": max(until_ms, self._kept["timestamp_ms"])}})
            self._kept = None

    def _gap(self, begin: Fraction, end: Fraction) -> None:
        """Nothing is known of what was shown here; what comes after is looked at anew."""
        self._stand(begin)
        self._close(in_ms(begin))
        self._gaps.append((in_ms(begin), in_ms(end)))
        self._sieve, self._last = Sieve(self._order.options), None

    def _finish(self, end: Fraction) -> None:
        self._stand(end)
        duration = max(end, self._said_end())
        if self._sampled and duration - end > UNDECODED_S:
            self._close(in_ms(end))
            self._gaps.append((in_ms(end), in_ms(duration)))
        self._close(in_ms(duration))
        done = {"sampled": self._sampled, "kept": self._count, "duration_ms": in_ms(duration), "gaps": self._gaps}
        self._tell({"done": done})

    def _said_end(self) -> Fraction:
        """When the stream ends, by what the file says of it; 0 when it says nothing."""
        stream = self._stream
        if not stream.duration:
            return Fraction(0)
        return Fraction(((stream.start_time or 0) + stream.duration) * stream.time_base) - self._start


def look(order: Order, tell: Tell) -> None:
    """Decode and tell; raises what PyAV raises, and TooLarge."""
    options = {
        "protocol_whitelist": "file",
        "format_whitelist": order.demuxer,
        "codec_whitelist": WHITELIST,
        "max_streams": str(order.max_streams),
    }
    with av.open(f"file:{order.path}", format=order.demuxer, options=options) as container:
        stream = container.streams[order.stream]
        context = stream.codec_context
        context.thread_count = order.threads
        context.thread_type = "AUTO"
        context.options = {"max_pixels": str(order.max_pixels), "codec_whitelist": WHITELIST}
        for other in container.streams:
            if other.index != order.stream:
                other.discard = Discard.all
        Look(order, container, tell).run()


def decoded(container: Any, stream: Any) -> Iterator[Any]:
    """The frames; None for what could not be decoded. A file that ends too early just ends."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.FFmpegError:
            packet = None
            yield None
        if packet is None:
            return
        if packet.is_corrupt:
            yield None
        try:
            yield from packet.decode()
        except av.FFmpegError:
            yield None


def start_of(container: Any) -> Fraction:
    """When the earliest sound or picture begins, exactly; the container's own figure is rounded."""
    starts = [
        stream.start_time * stream.time_base
        for stream in container.streams
        if stream.type in ("video", "audio") and stream.start_time is not None and not int(stream.disposition) & COVER
    ]
    return min(starts, default=Fraction(0))


def in_ms(seconds: Fraction | float) -> int:
    """Whole milliseconds."""
    return round(seconds * 1000)
