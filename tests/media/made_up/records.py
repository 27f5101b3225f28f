"""What is known of a made-up video."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Truth(NamedTuple):
    """One line of text and when it is on screen, from the first frame on. `px` is the size of its font.

    Text that fades counts while it is at least half visible, and text that scrolls while all of it is in the picture.
    """

    text: str
    t_start_ms: int
    t_end_ms: int
    px: int


class MadeUp(NamedTuple):
    """A video and its truths. `times_ms` has the true time of each frame; sizes are those that a viewer sees."""

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
