"""Files whose frames come at uneven times, as screen recorders write them. Frames carry their number (`number_in`)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np

from .making import TICKS
from .odd import numbered

SIZE = (640, 360)
RATE_HZ = 48_000


class Uneven(NamedTuple):
    """Frame start times, the end of the last frame, and the span of a tone."""

    starts: tuple[float, ...]
    end: float
    tone: tuple[float, float] | None = None

    @property
    def length_s(self) -> float:
        """From the first picture or sound to the end of the last."""
        first, last = self.tone or (self.starts[0], self.end)
        return max(self.end, last) - min(self.starts[0], first)

    def shown_at(self, time_s: float) -> int:
        """Return the number of the visible frame at a time from the start; the first frame counts from time 0."""
        zero = min(self.starts[0], (self.tone or self.starts)[0])
        return max(0, sum(start - zero <= time_s + 1e-4 for start in self.starts) - 1)


def every(begin: float, end: float, fps: float) -> tuple[float, ...]:
    return tuple(begin + at / fps for at in range(round((end - begin) * fps)))


UNEVEN = {
    "gaps": Uneven((*every(0, 2, 25), *every(6, 8, 25)), 8.0),
    "gaps_with_sound": Uneven((*every(0, 2, 25), *every(6, 8, 25)), 8.0, (0.0, 8.0)),
    "holds": Uneven(every(0, 2, 25), 7.0),
    "late": Uneven(every(1.5, 6, 25), 6.0),
    "late_picture": Uneven(every(1.5, 8, 25), 8.0, (0.0, 4.0)),
    "one_then_sixty": Uneven((*every(0, 5, 1), *every(5, 8, 60)), 8.0),
    "three_rates": Uneven((*every(0, 3, 24), *every(3, 6, 30), *every(6, 9, 60)), 9.0),
    "seldom": Uneven((0.0, 7.0, 14.5, 30.0), 40.0),
    "reordered": Uneven((0.0, 4.0, 6.0, 12.0), 12.04),
}


def uneven_in(folder: Path, name: str, suffix: str, *, is_reordered: bool = False) -> Path:
    """Return the MP4 or Matroska file of this name, with a wrong frame rate in its head; or with B-frames."""
    film = UNEVEN[name]
    path = folder / f"{name}.{suffix}"
    with av.open(str(path), "w", format={"mkv": "matroska"}.get(suffix, suffix)) as container:
        stream: Any = container.add_stream(
            "libx264",
            rate=30,
            options={"preset": "ultrafast", "x264-params": f"threads=2{':bframes=2:b-adapt=0' * is_reordered}"},
        )
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        stream.codec_context.time_base = Fraction(1, TICKS)
        tone: Any = container.add_stream("aac", rate=RATE_HZ) if film.tone else None
        _write_pictures(container, stream, film.starts, film.end)
        if tone is not None and film.tone is not None:
            _write_tone(container, tone, *film.tone)
    return path


def _write_pictures(container: Any, stream: Any, starts: Sequence[float], end: float) -> None:
    ticks = [round(start * TICKS) for start in (*starts, end)]
    lengths = {begin: after - begin for begin, after in pairwise(ticks)}
    film = numbered([start - starts[0] for start in starts], SIZE)
    for start, tick in zip(starts, ticks, strict=False):
        picture = film.picture_at(start - starts[0])
        frame = av.VideoFrame.from_ndarray(np.asarray(picture)).reformat(format="yuv420p")
        frame.pts, frame.time_base = tick, Fraction(1, TICKS)
        _mux(container, stream.encode(frame), lengths)
    _mux(container, stream.encode(None), lengths)


def _mux(container: Any, packets: Sequence[Any], lengths: dict[int, int]) -> None:
    for packet in packets:
        packet.duration = lengths[packet.pts]
        container.mux(packet)


def _write_tone(container: Any, stream: Any, begin: float, end: float) -> None:
    samples = np.sin(np.arange(round((end - begin) * RATE_HZ)) * 0.06).astype(np.float32)[None, :]
    for at in range(0, samples.shape[1], 1024):
        frame = av.AudioFrame.from_ndarray(samples[:, at : at + 1024], format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE_HZ, round(begin * RATE_HZ) + at, Fraction(1, RATE_HZ)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))
