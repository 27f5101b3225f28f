"""Parse ffmpeg's -progress output: blocks of key=value lines, each closed by progress=continue or progress=end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

ALMOST = 99.9  # the output check comes after


class Progress(NamedTuple):
    """Progress of an ffmpeg run. `percent` and `eta_s` are None while unknown; `percent` never falls."""

    percent: float | None
    out_time_s: float
    speed: float
    eta_s: float | None
    frames: int = 0


class Reader:
    """Reads the progress of one run."""

    def __init__(self, duration_s: float, on_progress: Callable[[Progress], object]) -> None:
        self._duration_s = duration_s
        self._on_progress = on_progress
        self._block: dict[str, str] = {}
        self._percent = 0.0
        self.out_time_s = 0.0
        self.moves = (0.0, 0)
        self.has_ended = False

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read progress lines until the program closes the stream."""
        while line := await stream.readline():
            self.take(line.decode("ascii", "replace"))

    def take(self, line: str) -> None:
        """Process one line."""
        key, _, value = line.strip().partition("=")
        self._block[key] = value.strip()
        if key == "progress":
            self.has_ended = value.strip() == "end"
            self._tell()
            self._block = {}

    def _tell(self) -> None:
        self.out_time_s = max(self.out_time_s, _number(self._block.get("out_time_us")) / 1e6)
        frames = int(_number(self._block.get("frame")))
        speed = _number(self._block.get("speed", "").rstrip("x"))
        self.moves = (self.out_time_s, frames)
        percent = eta_s = None
        if self._duration_s > 0:
            self._percent = max(self._percent, min(ALMOST, 100 * self.out_time_s / self._duration_s))
            percent = self._percent
            left_s = max(0.0, self._duration_s - self.out_time_s)
            eta_s = left_s / speed if speed > 0 else None
        self._on_progress(Progress(percent, self.out_time_s, speed, eta_s, frames))


def _number(text: str | None) -> float:
    """Parse a number; ffmpeg's N/A, before the first frame, counts as 0."""
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0
