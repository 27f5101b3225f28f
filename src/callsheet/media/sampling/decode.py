"""The child's work: decode one stream once, compare one frame per tick of the sampling grid, and report kept frames.

Times are the file's own frame times, counted from its earliest stream, as players and ffmpeg count them.
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

from callsheet.media.allowed_formats import WHITELIST

from .frame_filter import ALONE_S, HEIGHT, WIDTH, FrameFilter, Gray, Verdict
from .picture import Camera
from .records import Sampling

TELL_S = 0.5
BACK_S = 1  # a larger jump back in time continues after the last frame; at a smaller one the frame is skipped
UNDECODED_S = 0.5  # a shorter remainder is rounding, not lost frames
COVER = 0x400

Tell = Callable[[dict[str, Any]], None]


class Order(NamedTuple):
    """The child's order. `threads` are the decoder's."""

    path: str
    demuxer: str
    stream: int
    folder: str
    max_pixels: int
    max_streams: int
    threads: int
    options: Sampling


class TooLarge(Exception):
    """A frame in the middle is larger than the file's header says."""


class Sample(NamedTuple):
    """A sampled frame."""

    frame: Any
    gray: Gray
    at: Fraction
    was_kept: bool


class Look:
    """A single decoding pass over a video stream."""

    def __init__(self, order: Order, container: Any, tell: Tell) -> None:
        self._order, self._container, self._tell = order, container, tell
        self._stream = container.streams[order.stream]
        self._start = start_of(container)
        self._base = Fraction(self._stream.time_base)
        rate = self._stream.average_rate or self._stream.guessed_rate or order.options.target_fps
        self._usual = max(1, round(1 / (Fraction(rate) * self._base)))  # ticks of a frame without a duration
        self._period = 1 / Fraction(order.options.target_fps)
        self._shrink = VideoReformatter()
        self._camera = Camera(Path(order.folder), self._stream.sample_aspect_ratio)
        self._filter = FrameFilter(order.options)
        self._last: Sample | None = None
        self._last_kept: dict[str, Any] | None = None
        self._gaps: list[tuple[int, int]] = []
        self._sample_count = self._count = 0
        self._last_report_s = time.monotonic()

    def run(self) -> None:
        """Sample the whole stream; the last report is the summary."""
        end = next_ticks = ceil(self._start / self._base)
        period = ceil(self._period / self._base)
        last_before: tuple[Any, int] | None = None  # the latest frame before the next grid tick
        for frame, ticks, was_broken in self._frames():
            if last_before is not None and min(ticks, end) >= next_ticks + period:
                # a long frame: the only one visible at a tick of the grid
                self._take(last_before[0], self._at(last_before[1]))
            if was_broken and ticks > end:
                self._gap(self._at(end), self._at(ticks))
            end = max(ticks + (frame.duration or self._usual), 0)
            last_before = (frame, ticks)
            if ticks >= next_ticks:  # integer ticks until here: fractions for all frames cost as much as the filter
                at, last_before = self._at(ticks), None
                next_ticks = ceil(((at // self._period + 1) * self._period + self._start) / self._base)
                self._take(frame, at)
        if last_before is not None and end >= next_ticks + period:
            self._take(last_before[0], self._at(last_before[1]))
        self._finish(self._at(end))

    def _frames(self) -> Iterator[tuple[Any, int, bool]]:
        """Yield each good frame, its time in ticks of the stream, and whether an earlier part was undecodable."""
        shift, last, back = 0, None, ceil(BACK_S / self._base)
        was_broken = False
        for frame in decode_frames(self._container, self._stream):
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
        return max(Fraction(0), ticks * self._base - self._start)

    def _take(self, frame: Any, at: Fraction) -> None:
        self._recheck_last(at)
        small = self._shrink.reformat(
            frame, width=WIDTH, height=HEIGHT, format="gray", interpolation=Interpolation.AREA, threads=1
        )
        gray = self._camera.upright(small.to_ndarray().astype(np.uint8, copy=False), frame)
        verdict = self._filter.take(gray, float(at))
        self._sample_count += 1
        self._last = Sample(frame, gray, at, verdict is not None)
        if verdict is not None:
            self._keep(frame, at, verdict)
        if time.monotonic() - self._last_report_s > TELL_S:
            self._last_report_s = time.monotonic()
            self._tell({"at_ms": in_ms(at), "sampled": self._sample_count})

    def _recheck_last(self, until: Fraction) -> None:
        """If the last sample was visible long enough to be at rest, decide anew whether to keep it."""
        last = self._last
        if last is None or last.was_kept or until - last.at < ALONE_S:
            return
        verdict = self._filter.hold(float(until))
        if verdict is not None:
            self._keep(last.frame, last.at, verdict)

    def _keep(self, frame: Any, at: Fraction, verdict: Verdict) -> None:
        since_ms = in_ms(verdict.since_s)
        self._close(since_ms)
        at_ms = in_ms(at)
        path, width, height = self._camera.write(frame, f"{at_ms}.jpg")
        self._last_kept = {
            "timestamp_ms": at_ms,
            "since_ms": since_ms,
            "pts": f"{at.numerator}/{at.denominator}",
            "phash": f"{verdict.phash:016x}",
            "width": width,
            "height": height,
            "path": str(path),
        }

    def _close(self, until_ms: int) -> None:
        """Report the frame that was kept last, now that its end is known."""
        if self._last_kept is not None:
            self._count += 1
            self._tell({"kept": {**self._last_kept, "until_ms": max(until_ms, self._last_kept["timestamp_ms"])}})
            self._last_kept = None

    def _gap(self, begin: Fraction, end: Fraction) -> None:
        """Record an undecodable range; the comparison starts anew after it."""
        self._recheck_last(begin)
        self._close(in_ms(begin))
        self._gaps.append((in_ms(begin), in_ms(end)))
        self._filter, self._last = FrameFilter(self._order.options), None

    def _finish(self, end: Fraction) -> None:
        self._recheck_last(end)
        duration = max(end, self._declared_end())
        if self._sample_count and duration - end > UNDECODED_S:
            self._close(in_ms(end))
            self._gaps.append((in_ms(end), in_ms(duration)))
        self._close(in_ms(duration))
        summary = {
            "sampled": self._sample_count,
            "kept": self._count,
            "duration_ms": in_ms(duration),
            "gaps": self._gaps,
        }
        self._tell({"done": summary})

    def _declared_end(self) -> Fraction:
        """Return the stream's end in seconds according to the file's header, or 0 without a declared duration."""
        stream = self._stream
        if not stream.duration:
            return Fraction(0)
        return Fraction(((stream.start_time or 0) + stream.duration) * stream.time_base) - self._start


def look(order: Order, tell: Tell) -> None:
    """Decode the stream and report its frames. Raises PyAV's errors, and TooLarge."""
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


def decode_frames(container: Any, stream: Any) -> Iterator[Any]:
    """Yield the frames, and None for undecodable data. A truncated file just ends."""
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
    """Return when the earliest sound or picture begins, exactly; the container's own figure is rounded."""
    starts = [
        stream.start_time * stream.time_base
        for stream in container.streams
        if stream.type in ("video", "audio") and stream.start_time is not None and not int(stream.disposition) & COVER
    ]
    return min(starts, default=Fraction(0))


def in_ms(seconds: Fraction | float) -> int:
    """Convert seconds to whole milliseconds."""
    return round(seconds * 1000)
