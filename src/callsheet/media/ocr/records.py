"""What goes into reading and what comes out. Sizes are pixels of the frame; (0, 0) is its top left corner."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """How frames are read. `languages` are Tesseract's codes; `processes` 0 is one per core.

    `thorough` adds a pass that finds more at half the precision; `frame_s` is the most that one frame may take.
    """

    languages: tuple[str, ...] = ("eng",)
    min_confidence: float = 0.6
    thorough: bool = False
    engine: str = "tesseract"
    batch: int = 64
    processes: int = 0
    frame_s: float = 60.0


class Box(NamedTuple):
    """A rectangle in the frame."""

    x: int
    y: int
    width: int
    height: int


class Word(NamedTuple):
    """A word as an engine gives it; confidence is 0..100. Those of one pass, block and line stand on one line."""

    text: str
    box: Box
    confidence: float
    language: str
    block: int
    line: int
    pass_id: str


class Region(NamedTuple):
    """One line of text in one frame; confidence is 0..1."""

    text: str
    box: Box
    confidence: float
    language: str
    words: tuple[Word, ...]


class FrameText(NamedTuple):
    """What was read in one frame. `engine`: its name, version and passes; `retried`: it was read once more, harder."""

    regions: tuple[Region, ...]
    engine: str
    retried: bool


class Batch(NamedTuple):
    """Frames that stand next to one another; `first` is the place of the first among all that were asked for."""

    first: int
    keys: tuple[str, ...]
    texts: tuple[FrameText, ...]
