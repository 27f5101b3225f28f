"""The known facts about a made-up video."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Truth(NamedTuple):
    """A line of text, with its span on screen counted from the first frame. `px` is the size of its font.

    Fading text counts while at least half visible, scrolling text while completely in the picture.
    """

    text: str
    t_start_ms: int
    t_end_ms: int
    px: int


class MadeUp(NamedTuple):
    """A video with its truths. `times_ms` has the true time of each frame; sizes are those that a viewer sees."""

    name: str
    path: Path
    truths: tuple[Truth, ...]
    fps: float
    duration_ms: int
    width: int
    height: int
    times_ms: tuple[float, ...]

    def shown_at(self, time_ms: float) -> tuple[str, ...]:
        """The lines on screen at a time."""
        return tuple(truth.text for truth in self.truths if truth.t_start_ms <= time_ms < truth.t_end_ms)
