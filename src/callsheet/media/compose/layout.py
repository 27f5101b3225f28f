"""Screen positions: margins, heading, pages of text, the picture's card. This module draws nothing.

Sizes refer to a screen 720 high (or 720 wide when upright) and are scaled to the real one.
"""

from __future__ import annotations

from typing import NamedTuple

from .fonts import Faces
from .script import Scene, Settings
from .sentences import is_wide, pieces
from .text import Style, balance_lines, even_lines, is_right_to_left

MARGIN = 88
GUTTER = 56
TITLE_SIZES = (80, 72, 64, 56, 48, 42, 36)
HEADING_SIZES = (54, 50, 46, 42, 38, 34, 30, 26)
BODY_SIZES = (42, 39, 36, 33, 30)
CAPTION_SIZE = 38
MOST_TITLE_LINES, MOST_HEADING_LINES = 3, 3
MOST_HEADING_SHARE = 0.45  # of the height of all text
WIDEST_TEXT = 1010
CARD_WIDTH, CARD_HEIGHT = 590, 540
NARROWEST, WIDEST = 0.74, 1.4
BAR_WIDTH, BAR_HEIGHT, BAR_GAP = 72, 8, 30
HEADING_GAP = 34
ITEM_INDENT = 38
LEAST_CHARS = 16  # minimum characters of a sentence's piece
BLOCK_GAP, PARAGRAPH_GAP = 0.42, 0.75


class Box(NamedTuple):
    """A rectangle in pixels; all four numbers are even, because colours have half the resolution."""

    x: int
    y: int
    width: int
    height: int

    @property
    def edges(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom."""
        return self.x, self.y, self.x + self.width, self.y + self.height


class Block(NamedTuple):
    """Lines of text from `top` on that appear together: `line` of the scene, from character `offset` on."""

    line: int
    offset: int
    rows: tuple[str, ...]
    top: int
    is_item: bool


class Layout(NamedTuple):
    """Positions and styles of one scene. `card` is the picture's box; `is_full` if it fills the whole screen."""

    text: Box
    heading: tuple[str, ...]
    heading_style: Style
    heading_top: int
    body_style: Style
    pages: tuple[tuple[Block, ...], ...]
    card: Box | None
    is_full: bool
    is_rtl: bool


def lay_out(scene: Scene, settings: Settings, faces: Faces, aspect: float = 0.0) -> Layout:
    """Return the layout of a scene. `aspect` is the picture's width over height; 0 without a picture."""
    unit = settings.unit
    rtl = is_right_to_left(" ".join((scene.heading, *(line.text for line in scene.lines))))
    is_full = bool(aspect) and (scene.layout == "full" or (scene.layout == "auto" and not scene.lines))
    card = _card(settings, aspect, rtl=rtl) if aspect and not is_full else None
    text = _text_box(settings, card, rtl=rtl)
    sizes, most_lines = (TITLE_SIZES, MOST_TITLE_LINES) if scene.is_title else (HEADING_SIZES, MOST_HEADING_LINES)
    heading_style, heading = _heading(scene.heading, faces, text, [size * unit for size in sizes], most_lines)
    if is_full:
        style = Style.of(faces, CAPTION_SIZE * unit)
        pages = _captions(scene, style, text)
        box = Box(0, 0, settings.width, settings.height)
        return Layout(text, heading, heading_style, text.y, style, pages, box, is_full, rtl)
    above = round((BAR_HEIGHT + BAR_GAP) * unit)
    head_height = above + len(heading) * heading_style.line_height + round(HEADING_GAP * unit)
    style, pages = _body(scene, faces, text, head_height, unit)
    used_height = head_height + _height(pages[0], style) if len(pages) == 1 else text.height
    if not scene.lines:
        used_height = head_height - round(HEADING_GAP * unit)
    over = 0.12 if card is not None and settings.is_stacked else 0.46  # slightly above the middle looks right
    shift = max(0, round((text.height - used_height) * over))
    shifted_pages = tuple(tuple(block._replace(top=block.top + shift) for block in page) for page in pages)
    return Layout(text, heading, heading_style, text.y + above + shift, style, shifted_pages, card, is_full, rtl)


def _card(settings: Settings, aspect: float, *, rtl: bool) -> Box:
    """Return the picture's box beside the text, or above it on a narrow screen; extreme shapes are cropped."""
    unit, margin = settings.unit, round(MARGIN * settings.unit * 0.8)
    aspect = min(WIDEST, max(NARROWEST, aspect))
    is_stacked = settings.is_stacked
    most_width = settings.width - 2 * margin if is_stacked else min(CARD_WIDTH * unit, settings.width * 0.46)
    most_height = settings.height * 0.4 if is_stacked else min(CARD_HEIGHT * unit, settings.height - 2 * margin)
    width = min(most_width, most_height * aspect)
    height = width / aspect
    if is_stacked:
        return _even((settings.width - width) / 2, margin * 1.4, width, height)
    x = margin if rtl else settings.width - margin - width
    return _even(x, (settings.height - height) / 2, width, height)


def _text_box(settings: Settings, card: Box | None, *, rtl: bool) -> Box:
    unit, margin = settings.unit, round(MARGIN * settings.unit)
    left, top, right, bottom = (
        margin,
        round(margin * 0.8),
        settings.width - margin,
        settings.height - round(margin * 0.8),
    )
    if card is not None and settings.is_stacked:
        top = card.edges[3] + round(GUTTER * unit)
    elif card is not None and rtl:
        left = card.edges[2] + round(GUTTER * unit)
    elif card is not None:
        right = card.x - round(GUTTER * unit)
    width = min(right - left, round(WIDEST_TEXT * unit))
    return _even(right - width if rtl else left, top, width, bottom - top)


def _even(x: float, y: float, width: float, height: float) -> Box:
    return Box(*(2 * round(value / 2) for value in (x, y, width, height)))


def _heading(text: str, faces: Faces, box: Box, sizes: list[float], most_lines: int) -> tuple[Style, tuple[str, ...]]:
    """Choose the largest size in which the heading has few lines and no split word."""
    style, rows = Style.of(faces, sizes[-1], bold=True), [text]
    tries = [(size, most_lines - 1) for size in sizes[:3]] + [(size, most_lines) for size in sizes]
    for size, most in tries:
        style = Style.of(faces, size, bold=True)
        rows = balance_lines(text, style, box.width)
        high = len(rows) * style.line_height > box.height * MOST_HEADING_SHARE
        if len(rows) <= most and not high and not _cuts_words(text, rows):
            break
    return style, tuple(rows)


def _cuts_words(text: str, rows: list[str]) -> bool:
    return not is_wide(text) and sum(len(row.split()) for row in rows) > len(text.split())


def _body(
    scene: Scene, faces: Faces, box: Box, head_height: int, unit: float
) -> tuple[Style, tuple[tuple[Block, ...], ...]]:
    """Choose the largest size in which all text fits on one page, else several pages of a medium size."""
    for size in BODY_SIZES:
        style = Style.of(faces, size * unit)
        pages = _pages(scene, style, box, head_height, unit)
        if len(pages) == 1:
            return style, pages
    style = Style.of(faces, BODY_SIZES[2] * unit)
    return style, _pages(scene, style, box, head_height, unit)


def _pages(scene: Scene, style: Style, box: Box, head_height: int, unit: float) -> tuple[tuple[Block, ...], ...]:
    """Split the blocks into pages; a sentence too long for one page is split."""
    room = box.height - head_height
    in_row = box.width / (style.size * 0.56)
    most_chars = max(40, round(in_row * max(2, int(room / style.line_height * 0.7))))
    while True:
        blocks = _blocks(scene, style, box, unit, most_chars)
        if most_chars <= LEAST_CHARS or all(len(block.rows) * style.line_height <= room for block in blocks):
            break
        most_chars //= 2
    pages: list[list[Block]] = [[]]
    top = 0
    for block in blocks:
        line = scene.lines[block.line]
        gap = PARAGRAPH_GAP if line.starts_paragraph and not line.is_item else BLOCK_GAP
        start = top + round(style.size * gap) if pages[-1] else 0
        height = len(block.rows) * style.line_height
        if pages[-1] and start + height > room:
            pages.append([])
            start = 0
        pages[-1].append(block._replace(top=box.y + head_height + start))
        top = start + height
    return tuple(tuple(page) for page in pages)


def _blocks(scene: Scene, style: Style, box: Box, unit: float, most_chars: int) -> list[Block]:
    blocks = []
    for number, line in enumerate(scene.lines):
        width = box.width - (round(ITEM_INDENT * unit) if line.is_item else 0)
        for offset, piece in pieces(line.text, most_chars):
            blocks.append(Block(number, offset, tuple(even_lines(piece, style, width)), 0, line.is_item))
    return blocks


def _captions(scene: Scene, style: Style, box: Box) -> tuple[tuple[Block, ...], ...]:
    """Return pages of one piece each, at the bottom of the screen."""
    pages: list[tuple[Block, ...]] = []
    in_row = box.width / (style.size * 0.56)
    for number, line in enumerate(scene.lines):
        for offset, piece in pieces(line.text, round(in_row * 1.7)):
            rows = tuple(balance_lines(piece, style, box.width))
            top = box.y + box.height - len(rows) * style.line_height
            pages.append((Block(number, offset, rows, top, is_item=False),))
    return tuple(pages)


def _height(page: tuple[Block, ...], style: Style) -> int:
    return page[-1].top + len(page[-1].rows) * style.line_height - page[0].top if page else 0
