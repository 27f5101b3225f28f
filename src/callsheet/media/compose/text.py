"""Set text: choose a face for each part, break lines, and draw, in both directions."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from io import BytesIO
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, features

from .fonts import SIMPLER, Faces, is_emoji, is_selector, needs_glyph, pillow_font_bytes
from .sfnt import FontFile

BITMAP_SIZES = (109, 136, 128, 160, 96, 64, 32)  # the sizes of bitmap colour fonts
IDEOGRAPHS = ((0x2E80, 0xA4CF), (0xF900, 0xFAFF), (0xFF00, 0xFFEF), (0x20000, 0x3FFFF))
STUB = 0.3  # of the width: a last line shorter than this looks lost
SHAPING = features.check("raqm")
# signs that may not begin a line, or end one, where lines break between any two characters
NOT_FIRST = "、。，．！？；：）］｝」』】〉》〕ー…‥・,.!?;:)]}%"
NOT_LAST = "（［｛「『【〈《〔([{"
Colour = tuple[int, int, int, int]


class Style(NamedTuple):
    """Faces in one size. `leading` is the line height relative to the size."""

    faces: tuple[FontFile, ...]
    size: int
    is_bold: bool = False
    leading: float = 1.36

    @classmethod
    def of(cls, faces: Faces, size: float, *, bold: bool = False) -> Style:
        """Return a plain or bold style."""
        return cls(faces.bold if bold else faces.plain, max(8, round(size)), bold, 1.2 if bold else 1.4)

    @property
    def line_height(self) -> int:
        """Pixels from one baseline to the next."""
        return round(self.size * self.leading)

    @property
    def ascent(self) -> int:
        """Pixels from the top of a line to its baseline, so that capitals sit in its middle."""
        return round(self.line_height / 2 + self.size * 0.36)


class Run(NamedTuple):
    """A stretch of text in one face."""

    text: str
    face: FontFile


def is_right_to_left(text: str) -> bool:
    """Whether the first letter with a direction runs right to left."""
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in ("L", "R", "AL"):
            return direction != "L"
    return False


def runs(text: str, style: Style) -> list[Run]:
    """Split a line into stretches of one face; signs between words keep the previous face."""
    main = style.faces[0]
    if _draws_all(main, text):  # nearly always true, and a hundred times as fast
        return [Run(text, main)] if text else []
    stretches: list[Run] = []
    for character in _drawable(text, style.faces):
        face = _face_for(character, style.faces, stretches[-1].face if stretches else None)
        if stretches and stretches[-1].face is face:
            stretches[-1] = Run(stretches[-1].text + character, face)
        else:
            stretches.append(Run(character, face))
    return stretches


@lru_cache(maxsize=50_000)
def width_of(text: str, style: Style) -> float:
    """Return the width of a line in pixels."""
    rtl = is_right_to_left(text)
    return sum(_length(run, style, rtl=rtl) for run in runs(text, style))


def wrap_lines(text: str, style: Style, width: float) -> list[str]:
    """Return lines no wider than `width`. A single word wider than that is split."""
    lines: list[str] = []
    line = ""
    for part in _parts(text):
        longer = (line + part).rstrip()
        if width_of(longer, style) <= width or not longer:
            line += part
            continue
        if line.strip():
            lines.append(line.strip())
        line = part.lstrip()
        while width_of(line.rstrip(), style) > width:
            cut = _fitting(line, style, width)
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line.strip()] if line.strip() else lines


def even_lines(text: str, style: Style, width: float) -> list[str]:
    """Wrap lines, balanced when the last line would be very short."""
    lines = wrap_lines(text, style, width)
    stub = len(lines) > 1 and width_of(lines[-1], style) < width * STUB
    return balance_lines(text, style, width) if stub else lines


def balance_lines(text: str, style: Style, width: float) -> list[str]:
    """Wrap to the minimum number of lines, with about equal lengths: for headings."""
    lines = wrap_lines(text, style, width)
    low, high = width / len(lines) * 0.9 if lines else width, width
    while len(lines) > 1 and high - low > style.size / 2:
        middle = (low + high) / 2
        if len(wrap_lines(text, style, middle)) > len(lines):
            low = middle
        else:
            high = middle
    return wrap_lines(text, style, high)


def draw_line(picture: Image.Image, place: tuple[float, float], text: str, style: Style, fill: Colour) -> None:
    """Draw one line onto an RGBA picture; `place` is its left end on the baseline."""
    rtl = is_right_to_left(text)
    stretches = runs(text, style)
    x, y = place
    for run in reversed(stretches) if rtl else stretches:
        if run.face.is_colour:
            _draw_colour(picture, (x, y), run, style)
        else:
            font = load(run.face, style.size, bold=style.is_bold)
            ImageDraw.Draw(picture).text((x, y), run.text, fill, font, anchor="ls", direction=_direction(rtl=rtl))
        x += _length(run, style, rtl=rtl)


@lru_cache(maxsize=128)
def load(face: FontFile, size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Load a face in a size; a bitmap font loads in its own size."""
    if not face.path:
        return ImageFont.truetype(BytesIO(pillow_font_bytes()), size)
    sizes = (size, *BITMAP_SIZES) if face.is_colour else (size,)
    for one in sizes:
        try:
            font = ImageFont.truetype(face.path, one, index=face.number)
        except OSError:
            if one == sizes[-1]:
                raise
            continue
        if face.is_variable and bold:
            _make_bold(font)
        return font
    raise AssertionError  # the loop returns or raises


def _make_bold(font: ImageFont.FreeTypeFont) -> None:
    names = font.get_variation_names()
    for name in names:
        if name.decode("ascii", "replace").strip("\0").lower() in ("bold", "semibold"):
            font.set_variation_by_name(name)
            if b"old" in name and b"emi" not in name:
                return


def _draws_all(face: FontFile, text: str) -> bool:
    """Whether one face draws the whole text, and the text has no emoji, which another face may draw in colour."""
    covered_characters = _cache_of(face)
    unknown_characters = set(text) - covered_characters
    covered_characters |= {one for one in unknown_characters if face.has(one) and not is_emoji(one)}
    return not face.is_colour and unknown_characters <= covered_characters


@lru_cache(maxsize=64)
def _cache_of(face: FontFile) -> set[str]:
    """Return the face's growing cache of characters that it is known to have."""
    del face
    return set()


def _drawable(text: str, faces: tuple[FontFile, ...]) -> str:
    """Replace signs that no face has with simpler ones."""
    if all(not needs_glyph(one) or any(face.has(one) for face in faces) for one in text):
        return text
    return "".join(one if any(face.has(one) for face in faces) else SIMPLER.get(one, one) for one in text)


def _face_for(character: str, faces: tuple[FontFile, ...], before: FontFile | None) -> FontFile:
    if before is not None and (is_selector(character) or character == "\u200d"):
        return before
    if is_emoji(character):
        for face in faces:
            if face.is_colour and face.has(character):
                return face
    if before is not None and not before.is_colour:
        joins = unicodedata.category(character) in ("Mn", "Me", "Mc", "Cf")
        neutral = character in " \u00a0.,:;!?-'\"()" and before.has(character)
        if neutral or (joins and (before.has(character) or not needs_glyph(character))):
            return before
    texts = [face for face in faces if not face.is_colour] or list(faces)
    return next((face for face in (*texts, *faces) if face.has(character)), texts[0])


def _length(run: Run, style: Style, *, rtl: bool) -> float:
    return _measure(run.text, run.face, style.size, style.is_bold, rtl)


@lru_cache(maxsize=20_000)
def _measure(text: str, face: FontFile, size: int, bold: bool, rtl: bool) -> float:  # noqa: FBT001 - a cache key
    font = load(face, size, bold=bold)
    return font.getlength(text, direction=_direction(rtl=rtl)) * (size / font.size if face.is_colour else 1)


def _direction(*, rtl: bool) -> str | None:
    return ("rtl" if rtl else "ltr") if SHAPING else None


def _draw_colour(picture: Image.Image, place: tuple[float, float], run: Run, style: Style) -> None:
    """Draw in the font's own size, then scale to the style's size."""
    font = load(run.face, style.size)
    width, height = max(1, round(font.getlength(run.text))), round(font.size * 1.5)
    large = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    baseline = round(font.size * 1.1)
    ImageDraw.Draw(large).text((0, baseline), run.text, (0, 0, 0, 255), font, anchor="ls", embedded_color=True)
    scale = style.size / font.size
    small = large.resize((max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.LANCZOS)
    picture.alpha_composite(small, (max(0, round(place[0])), max(0, round(place[1] - baseline * scale))))


@lru_cache(maxsize=1_000)
def _parts(text: str) -> tuple[str, ...]:
    """Split text at possible line breaks: words with their trailing space, and signs of scripts without spaces."""
    parts: list[str] = []
    word = ""
    for at, character in enumerate(text):
        word += character
        follows = text[at + 1 : at + 2]
        breaks = character == " " or (character in "-/" and len(word) > 2)  # noqa: PLR2004
        breaks = breaks or _breaks_between(character, follows)
        if breaks and follows not in ("", " ") and follows not in NOT_FIRST:
            parts.append(word)
            word = ""
    return (*parts, word) if word else tuple(parts)


def _breaks_between(character: str, follows: str) -> bool:
    if not follows or character in NOT_LAST:
        return False
    return _is_ideograph(character) or _is_ideograph(follows)


def _is_ideograph(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in IDEOGRAPHS)


def _fitting(text: str, style: Style, width: float) -> int:
    """Return how many characters fit; at least one, and combining marks stay with their letter."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if width_of(text[:middle], style) <= width else (low, middle - 1)
    while low > 1 and low < len(text) and unicodedata.combining(text[low]):
        low -= 1
    return low
