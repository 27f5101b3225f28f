"""Frames with text that is known: ten kinds, and forty captions over photographs that are hard to read in one pass.

Drawn with the typeface inside Pillow, so that they are the same on every machine, and kept as JPEG like the sampler's.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIZE = (1920, 1080)
QUALITY = 92


class Drawn(NamedTuple):
    """A frame with its lines of text."""

    name: str
    jpeg: bytes
    lines: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """Return every word of the frame."""
        return " ".join(self.lines).split()


@cache
def font(px: int) -> ImageFont.FreeTypeFont:
    result = ImageFont.load_default(px)
    assert isinstance(result, ImageFont.FreeTypeFont)
    return result


def jpeg(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def photograph(seed: int, size: tuple[int, int] = SIZE, low: int = 20, high: int = 235) -> Image.Image:
    """Soft blobs of colour with some grain: a photograph without text. Drawn at half size for speed."""
    random = np.random.default_rng(seed)
    half = ((size[0] + 1) // 2, (size[1] + 1) // 2)
    coarse = random.integers(low, high, (9, 16, 3), dtype=np.uint8)
    soft = np.asarray(Image.fromarray(coarse).resize(half, Image.Resampling.BICUBIC), dtype=np.int16)
    middle = random.integers(88, 168, (68, 120, 3), dtype=np.uint8)
    detail = np.asarray(Image.fromarray(middle).resize(half, Image.Resampling.BILINEAR), dtype=np.int16)
    grain = random.integers(-9, 10, (half[1], half[0], 1), dtype=np.int16)
    whole = np.clip(soft + detail - 128 + grain, 0, 255).astype(np.uint8)
    return Image.fromarray(whole).resize(size, Image.Resampling.BILINEAR)


class Pen:
    """Draws lines and keeps them."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image
        self._draw = ImageDraw.Draw(image)
        self.lines: list[str] = []

    def write(self, at: tuple[int, int], text: str, px: int, ink: str = "white", outline: int = 0) -> None:
        """A line; the place is its middle left."""
        self._draw.text(at, text, fill=ink, font=font(px), anchor="lm", stroke_width=outline, stroke_fill="black")
        self.lines.append(text)

    def fill(self, box: tuple[int, int, int, int], colour: str) -> None:
        self._draw.rectangle(box, fill=colour)


def blank(colour: str) -> Image.Image:
    return Image.new("RGB", SIZE, colour)


def slide() -> Pen:
    pen = Pen(blank("white"))
    pen.write((140, 160), "Quarterly results and outlook", 84, "#102040")
    for row, text in enumerate(
        [
            "Revenue grew by 18 percent",
            "Three new offices opened",
            "Hiring continues in spring",
            "Costs stay below plan",
        ]
    ):
        pen.write((180, 380 + row * 130), text, 54, "#303030")
    return pen


def dark_code() -> Pen:
    pen = Pen(blank("#1e1e28"))
    for row, (text, ink) in enumerate(
        [
            ("import asyncio", "#c792ea"),
            ("async def fetch(url, timeout):", "#82aaff"),
            ("session = await connect(url)", "#d6deeb"),
            ("return await session.read()", "#d6deeb"),
            ("asyncio.run(main())", "#addb67"),
        ]
    ):
        pen.write((120, 200 + row * 90), text, 40, ink)
    return pen


def caption() -> Pen:
    pen = Pen(photograph(3))
    pen.write((460, 960), "We never thought it would work", 64, "white", outline=4)
    return pen


def lower_third() -> Pen:
    pen = Pen(photograph(5))
    pen.fill((100, 800, 1100, 980), "#0a2a6a")
    pen.write((130, 850), "Maria Lindqvist", 60)
    pen.write((130, 930), "Head of Research, Northern Institute", 40, "#d0e0ff")
    return pen


def social() -> Pen:
    pen = Pen(blank("#f4f6f8"))
    pen.fill((300, 150, 1600, 900), "white")
    pen.write((360, 240), "@callsheet_dev", 48, "#1d72d8")
    pen.write((360, 400), "Launch day is here #shipping #python", 52, "#111111")
    pen.write((360, 520), "Read more at https://example.com/launch", 48, "#1d72d8")
    pen.write((360, 780), "1,204 likes 87 comments", 40, "#606060")
    return pen


def terminal() -> Pen:
    pen = Pen(blank("black"))
    for row, text in enumerate(
        [
            "$ git status",
            "On branch main",
            "Changes not staged for commit:",
            "modified: README.md",
            "no changes added to commit",
            "$ make test",
            "collected 412 items",
            "412 passed in 38.21s",
        ]
    ):
        pen.write((40, 60 + row * 36), text, 26, "#cccccc")
    return pen


def table() -> Pen:
    pen = Pen(blank("white"))
    rows = ["City Population Area", "Oslo 709037 454", "Madrid 3305408 604", "Vienna 1973403 415", "Lisbon 545796 100"]
    for row, text in enumerate(rows):
        for column, cell in enumerate(text.split()):
            pen.write((200 + column * 520, 220 + row * 130), cell, 52, "#202020")
        pen.fill((160, 284 + row * 130, 1700, 287 + row * 130), "#c0c0c0")
    return pen


def low_contrast() -> Pen:
    pen = Pen(blank("#8a9098"))
    pen.write((260, 420), "Subtle titles are hard to see", 76, "#b4bac2")
    pen.write((260, 600), "Chapter two: the quiet harbour", 60, "#b4bac2")
    return pen


def interface() -> Pen:
    pen = Pen(blank("#eceff1"))
    pen.fill((0, 0, 1920, 90), "#263238")
    pen.write((60, 45), "Settings", 44)
    for row, (label, button) in enumerate([("Notifications", "Enable"), ("Storage", "Manage"), ("Privacy", "Review")]):
        pen.write((120, 240 + row * 180), label, 48, "#212121")
        pen.fill((1300, 190 + row * 180, 1660, 290 + row * 180), "#1565c0")
        pen.write((1400, 240 + row * 180), button, 44)
    return pen


def promo() -> Pen:
    pen = Pen(photograph(11, low=120, high=235))
    pen.fill((500, 300, 1420, 780), "#b71c1c")
    pen.write((600, 400), "SUMMER SALE", 96)
    pen.write((600, 560), "Only $19.99 today", 72)
    pen.write((600, 690), "Code SAVE-2024", 60)
    return pen


KINDS: tuple[Callable[[], Pen], ...] = (
    slide, dark_code, caption, lower_third, social, terminal, table, low_contrast, interface, promo,
)  # fmt: skip


@cache
def kinds() -> tuple[Drawn, ...]:
    """Return one frame per kind."""
    pictures = [(kind.__name__, kind()) for kind in KINDS]
    return tuple(Drawn(name, jpeg(pen.image), tuple(pen.lines)) for name, pen in pictures)


SUBJECTS = ("river", "market", "engine", "harbour", "garden", "signal", "bridge", "village", "winter", "station")
VERBS = ("opens", "moves", "waits", "returns")


def captions(size: tuple[int, int] = SIZE) -> Iterator[Drawn]:
    """Forty captions, each white with a thin dark edge on a photograph of its own."""
    for number in range(40):
        text = f"The {SUBJECTS[number % 10]} {VERBS[number // 10]} at {number + 10} past noon"
        pen = Pen(photograph(100 + number, size, high=180))
        px = size[1] * 56 // 1080
        pen.write((size[0] // 5, size[1] * 8 // 9), text, px, "white", outline=max(3, px // 16))
        yield Drawn(f"caption-{number}", jpeg(pen.image), (text,))


def in_the_dark() -> Drawn:
    """Dark text in the dark half of a picture: a single threshold turns both black."""
    width, height = 1280, 720
    ground = np.tile(np.linspace(30, 250, width, dtype=np.float32), (height, 1))
    pen = Pen(Image.fromarray(ground.astype(np.uint8)).convert("RGB"))
    pen.write((60, 360), "Hidden harbour", 56, "#0a0a0a")
    return Drawn("in_the_dark", jpeg(pen.image), tuple(pen.lines))


def empty() -> Drawn:
    return Drawn("empty", jpeg(Image.new("RGB", (640, 360), "#404040")), ())


def plate(text: str) -> Drawn:
    """Return a small frame that OCR reads fast."""
    pen = Pen(Image.new("RGB", (640, 200), "white"))
    pen.write((30, 100), text, 48, "black")
    return Drawn(text, jpeg(pen.image), (text,))


FAILURES = (
    "FAILED tests/contracts/cortana/test_to_the_letter.py::test_frames_in_a_second_are_a_whole_number",
    "FAILED tests/http/test_dead_letters.py::test_filters_by_kind_and_time - assert 3 == 4",
    "FAILED tests/media/sampling/test_trouble.py::test_memory_does_not_grow_with_the_length_of_the_video",
)


def failures() -> Iterator[Drawn]:
    """A terminal with long paths, in small letters of some colours."""
    for px in (16, 18, 20, 22):
        for colour in ("#ff5555", "#be3232", "#e6e6e6"):
            pen = Pen(Image.new("RGB", (1280, 720), "#101010"))
            for row, text in enumerate(FAILURES):
                pen.write((20, 60 + row * 2 * px), text, px, colour)
            yield Drawn(f"failures in {px} px, {colour}", jpeg(pen.image), tuple(pen.lines))
