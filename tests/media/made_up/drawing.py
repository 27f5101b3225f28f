"""Drawing one frame of a film: a background, then lines of text that stand, fade or scroll."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .records import Truth

Colour = tuple[int, int, int]
WHITE: Colour = (255, 255, 255)
BLACK: Colour = (0, 0, 0)
FADE_STEPS = 25


class Line(NamedTuple):
    """A line of text with its position and time span. `fade_s` at both ends; `scroll` in pixels a second, upwards."""

    text: str
    start_s: float
    end_s: float
    at: tuple[float, float]
    px: int = 40
    colour: Colour = BLACK
    font: str = ""
    outline: int = 0
    box: Colour | None = None
    fade_s: float = 0.0
    scroll: float = 0.0
    is_truth: bool = True

    def shown_at(self, time_s: float) -> float:
        """Return the visible share of a line, from 0 to 1."""
        if not self.start_s <= time_s < self.end_s:
            return 0.0
        if not self.fade_s:
            return 1.0
        share = min(1.0, (time_s - self.start_s) / self.fade_s, (self.end_s - time_s) / self.fade_s)
        return round(share * FADE_STEPS) / FADE_STEPS

    def place_at(self, time_s: float) -> tuple[float, float]:
        """Its left upper corner."""
        return self.at[0], self.at[1] - self.scroll * (time_s - self.start_s)

    def truth(self, height: int) -> Truth:
        """Return the time span in which the line is readable."""
        start_s, end_s = self.start_s + self.fade_s / 2, self.end_s - self.fade_s / 2
        if self.scroll:
            _, top, _, bottom = font_of(self.font, self.px).getbbox(self.text)
            enters = self.start_s + (self.at[1] + bottom - height) / self.scroll
            leaves = self.start_s + (self.at[1] + top) / self.scroll
            start_s, end_s = max(start_s, enters), min(end_s, leaves)
        return Truth(self.text, round(start_s * 1000), round(end_s * 1000), self.px)


Background = Callable[[float, tuple[int, int]], Image.Image]


class Film(NamedTuple):
    """A film, drawn frame by frame.

    `moves`: its background changes in every frame; `inset`: an inset in the corner moves.
    """

    lines: tuple[Line, ...]
    background: Background
    seconds: float
    fps: int = 25
    size: tuple[int, int] = (1280, 720)
    moves: bool = False
    inset: bool = False

    def truths(self) -> tuple[Truth, ...]:
        """Return the truths of all lines, ordered by start."""
        result = (line.truth(self.size[1]) for line in self.lines if line.is_truth)
        return tuple(sorted((truth for truth in result if truth.t_end_ms > truth.t_start_ms), key=lambda t: t[1:3]))

    def state_at(self, time_s: float) -> object:
        """Return a key for the drawn state: equal keys mean equal pictures."""
        seen = tuple((line.shown_at(time_s), line.scroll and time_s) for line in self.lines)
        return (seen, self.moves and time_s, self.background(time_s, (16, 9)).tobytes())

    def picture_at(self, time_s: float) -> Image.Image:
        """Return the frame at a time, without the inset."""
        picture = self.background(time_s, self.size)
        for line in self.lines:
            if share := line.shown_at(time_s):
                picture = _with_line(picture, line, line.place_at(time_s), share)
        return picture


def _with_line(picture: Image.Image, line: Line, place: tuple[float, float], share: float) -> Image.Image:
    target = picture if share == 1 else picture.copy()
    draw = ImageDraw.Draw(target)
    font = font_of(line.font, line.px)
    if line.box is not None:
        left, top, right, bottom = draw.textbbox(place, line.text, font=font)
        pad = line.px // 2
        draw.rectangle((left - pad, top - pad, right + pad, bottom + pad), fill=line.box)
    draw.text(place, line.text, fill=line.colour, font=font, stroke_width=line.outline, stroke_fill=BLACK)
    return target if share == 1 else Image.blend(picture, target, share)


@cache
def font_of(name: str, px: int) -> ImageFont.FreeTypeFont:
    """Return a system font, or None; Pillow's own otherwise, and for no name."""
    if name:
        try:
            return ImageFont.truetype(f"{name}.ttf", px)
        except OSError:
            pass
    own = ImageFont.load_default(px)
    assert isinstance(own, ImageFont.FreeTypeFont)  # Pillow's wheels have FreeType
    return own


def width_of(text: str, px: int, font: str = "") -> float:
    """Return the width of a line in pixels."""
    return font_of(font, px).getlength(text)


def plain(colour: Colour) -> Background:
    """Return a picture of one colour."""
    return lambda _, size: Image.new("RGB", size, colour)


def scenes(colours: tuple[Colour, ...], each_s: float) -> Background:
    """Another picture every so many seconds, with large dark and bright parts.

    Visible to a hash of the whole picture.
    """

    def draw(time_s: float, size: tuple[int, int]) -> Image.Image:
        number = int(time_s / each_s) % len(colours)
        return _texture(number, size, colours[number], 2.2).copy()

    return draw


def moving(time_s: float, size: tuple[int, int]) -> Image.Image:
    """A soft photo-like picture that pans."""
    wide = _texture(99, (size[0] + 400, size[1]), (96, 110, 120))
    left = int((time_s * 60) % 400)
    return wide.crop((left, 0, left + size[0], size[1]))


def with_inset(picture: Image.Image, time_s: float) -> Image.Image:
    """A small moving picture in a corner, as of a speaker's camera."""
    size = (picture.width // 8, picture.height // 8)
    whole = picture.copy()
    whole.paste(moving(time_s, size), (picture.width - size[0] - 20, 20))
    return whole


@cache
def _texture(seed: int, size: tuple[int, int], colour: Colour, contrast: float = 1.0) -> Image.Image:
    """Blobs of several sizes around a colour, the same for a seed."""
    chance = np.random.default_rng(seed)
    sum_of = np.zeros((size[1], size[0]), np.float32)
    for cells, weight in ((8, 30.0), (24, 14.0), (90, 4.0)):
        coarse = chance.normal(0, 1, (max(2, cells * size[1] // size[0]), cells)).astype(np.float32)
        sum_of += weight * contrast * np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC))
    shades = np.array(colour, np.float32)[None, None, :] + sum_of[:, :, None]
    return Image.fromarray(np.clip(shades, 0, 255).astype(np.uint8))
