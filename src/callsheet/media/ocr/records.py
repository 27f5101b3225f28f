"""The records of OCR input and output. Sizes are pixels of the frame; (0, 0) is its top left corner."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """OCR options. `languages` are Tesseract's codes; `processes` 0 means one per core.

    `thorough` adds a pass that finds more at half the precision; `frame_s` is the time limit of one frame.
    """

    languages: tuple[str, ...] = ("eng",)
    min_confidence: float = 0.6
    thorough: bool = False
    engine: str = "tesseract"
    batch: int = 64
    processes: int = 0
    frame_s: float = 60.0


class Box(NamedTuple):
    """A pixel rectangle of the frame."""

    x: int
    y: int
    width: int
    height: int


class Word(NamedTuple):
    """An engine's word; confidence is 0..100. Words with the same pass, block and line belong to one line."""

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
    """Text read in one frame. `engine`: name, version and passes; `retried`: the thorough pass ran later."""

    regions: tuple[Region, ...]
    engine: str
    retried: bool


class Batch(NamedTuple):
    """Consecutive frames; `first` is the position of the first one among all requested keys."""

    first: int
    keys: tuple[str, ...]
    texts: tuple[FrameText, ...]
