"""Draw the layers of a scene: one transparent picture for each state of its text, and its prepared photograph.

`paint.py` animates these layers, frame by frame, so each layer is drawn once.

Pictures are opened with checks of format and size, in the sandboxed child alone. Records travel to the child and back
as JSON: named tuples become lists.
"""

from __future__ import annotations

import warnings
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageOps, UnidentifiedImageError

from .errors import PictureRefused
from .fonts import Faces
from .layout import BAR_GAP, BAR_HEIGHT, BAR_WIDTH, ITEM_INDENT, Block, Box, Layout, lay_out
from .script import Line, Picture, Scene, Settings
from .sfnt import FontFile
from .text import Colour, draw_line, width_of
from .theme import Theme, rounded_mask, theme_of

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS = 50_000_000
MAX_BYTES = 64 << 20
LEAST_SIDE = 8
LEAST_ASPECT, MOST_ASPECT = 0.02, 50.0

ROOM_TO_ZOOM = 1.25
WHITE: Colour = (255, 255, 255, 255)
SCRIM = 190
BULLET = 0.13  # of the text size


def open_picture(path: Path) -> Image.Image:
    """Return a picture with all pixels decoded. Raises PictureRefused; its message omits the path."""
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    size_bytes = path.stat().st_size
    if size_bytes > MAX_BYTES:
        raise PictureRefused(f"has {size_bytes} bytes, and {MAX_BYTES} are the most")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(path, formats=FORMATS)
            _check_size(picture)
            picture.load()
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise PictureRefused(f"has more than {MAX_PIXELS} pixels; make it smaller") from None
    except UnidentifiedImageError:
        raise PictureRefused(_what_else(path)) from None
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError) as error:
        raise PictureRefused(f"is damaged: {str(error)[:120]}") from None
    return picture


def _check_size(picture: Image.Image) -> None:
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise PictureRefused(f"has more than {MAX_PIXELS} pixels; make it smaller")
    if min(width, height) < LEAST_SIDE or not LEAST_ASPECT <= width / height <= MOST_ASPECT:
        raise PictureRefused(f"is {width}x{height} pixels, of which nothing can be seen")


def _what_else(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(1024).lstrip().lower()
    if not head:
        return "is empty"
    if b"<svg" in head or head.startswith(b"<?xml"):
        return "is SVG, which is not taken; save it as PNG"
    if head.startswith((b"<!doctype html", b"<html")):
        return "is a web page, not a picture; fetch the picture itself"
    return f"is no picture that is known here; {', '.join(FORMATS)} are"


class Still(NamedTuple):
    """A text layer, with all blocks up to the piece of `line` that begins at `offset`. -1: the heading alone.

    The file holds only the opaque part of the layer, at `x` and `y`.
    """

    file: str
    line: int
    offset: int
    x: int = 0
    y: int = 0


class Drawn(NamedTuple):
    """The layers of a scene. `photo` is its file name or empty; `box` is its position."""

    stills: tuple[Still, ...]
    theme: str
    photo: str = ""
    box: Box | None = None
    is_full: bool = False


def draw_scene(number: int, scene: Scene, settings: Settings, faces: Faces, places: tuple[Path, Path | None]) -> Drawn:
    """Draw one scene; `places` are the output folder and the picture. Raises PictureRefused."""
    folder, source = places
    photo = None if source is None else upright(source)
    layout = lay_out(scene, settings, faces, 0.0 if photo is None else photo.width / photo.height)
    theme = theme_of(scene.theme or settings.theme, settings.accent)
    name = ""
    if photo is not None and layout.card is not None:
        name = f"scene{number:03}-photo.jpg"
        _crop_with_room(photo, layout.card, theme).save(folder / name, quality=95, subsampling=0)
    stills = []
    for at, (line, offset, blocks) in enumerate(_states(layout)):
        file = f"scene{number:03}-{at:03}.png"
        layer = _layer(layout, settings, theme, blocks)
        edges = layer.getbbox() or (0, 0, 2, 2)
        layer.crop(edges).save(folder / file, compress_level=1)
        stills.append(Still(file, line, offset, edges[0], edges[1]))
    return Drawn(tuple(stills), theme.name, name, layout.card if name else None, layout.is_full)


def _states(layout: Layout) -> list[tuple[int, int, tuple[Block, ...]]]:
    """Return every state of the text: the heading alone, then one more block at a time, page by page."""
    states: list[tuple[int, int, tuple[Block, ...]]] = [(-1, 0, ())]
    for page in layout.pages:
        states += [(block.line, block.offset, page[: at + 1]) for at, block in enumerate(page)]
    return states


def upright(path: Path) -> Image.Image:
    """Return a picture in its upright orientation."""
    with open_picture(path) as picture:
        return ImageOps.exif_transpose(picture).copy()


def _crop_with_room(photo: Image.Image, box: Box, theme: Theme) -> Image.Image:
    size = round(box.width * ROOM_TO_ZOOM), round(box.height * ROOM_TO_ZOOM)
    if photo.mode in ("RGBA", "LA", "PA") or "transparency" in photo.info:
        clear = photo.convert("RGBA")
        photo = Image.new("RGB", clear.size, theme.card)
        photo.paste(clear, (0, 0), clear)
    elif photo.mode.startswith(("I", "F")):  # 16 bits or more of grey
        photo = ImageOps.autocontrast(photo.convert("F").convert("L"))
    return _crop_to_size(photo.convert("RGB"), size)


def _crop_to_size(photo: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Return the middle of a picture at a given size; `reducing_gap` makes large pictures fast."""
    share = min(photo.width / size[0], photo.height / size[1])
    width, height = size[0] * share, size[1] * share
    left, top = (photo.width - width) / 2, (photo.height - height) / 2
    box = (left, top, left + width, top + height)
    return photo.resize(size, Image.Resampling.LANCZOS, box, reducing_gap=3.0)


def _layer(layout: Layout, settings: Settings, theme: Theme, blocks: tuple[Block, ...]) -> Image.Image:
    picture = Image.new("RGBA", (settings.width, settings.height), (*theme.bottom, 0))
    if layout.is_full:
        _scrim(picture, layout, blocks)
    _heading(picture, layout, settings.unit, theme)
    for block in blocks:
        ink = theme.ink if block is blocks[-1] else theme.faded
        _block(picture, layout, block, settings.unit, (WHITE if layout.is_full else (*ink, 255), theme))
    return picture


def _heading(picture: Image.Image, layout: Layout, unit: float, theme: Theme) -> None:
    fill = WHITE if layout.is_full else (*theme.ink, 255)
    top = layout.heading_top
    if not layout.is_full:
        width, height = round(BAR_WIDTH * unit), max(2, round(BAR_HEIGHT * unit))
        left = layout.text.edges[2] - width if layout.is_rtl else layout.text.x
        bar_top = top - round(BAR_GAP * unit) - height
        picture.paste((*theme.accent, 255), (left, bar_top), rounded_mask((width, height), height / 2))
    style = layout.heading_style
    for at, row in enumerate(layout.heading):
        y = top + at * style.line_height + style.ascent
        draw_line(picture, (_left(layout, width_of(row, style)), y), row, style, fill)


def _block(picture: Image.Image, layout: Layout, block: Block, unit: float, paint: tuple[Colour, Theme]) -> None:
    fill, theme = paint
    style = layout.body_style
    indent = round(ITEM_INDENT * unit) if block.is_item else 0
    if indent and block.offset == 0:
        radius = max(2.0, style.size * BULLET)
        x = layout.text.edges[2] - radius - 1 if layout.is_rtl else layout.text.x + radius + 1
        y = block.top + style.line_height * 0.5
        box = (x - radius, y - radius, x + radius, y + radius)
        _dot(picture, box, (*theme.accent, fill[3]))
    for at, row in enumerate(block.rows):
        left = _left(layout, width_of(row, style)) + (-indent if layout.is_rtl else indent)
        draw_line(picture, (left, block.top + at * style.line_height + style.ascent), row, style, fill)


def _dot(picture: Image.Image, box: tuple[float, float, float, float], fill: Colour) -> None:
    """Draw a smooth circle: Pillow has no anti-aliasing, so a large circle is scaled down."""
    scale, side = 8, round(box[2] - box[0])
    mask = Image.new("L", (side * scale, side * scale), 0)
    ImageDraw.Draw(mask).ellipse((0, 0, side * scale - 1, side * scale - 1), 255)
    picture.paste(fill, (round(box[0]), round(box[1])), mask.resize((side, side), Image.Resampling.LANCZOS))


def _left(layout: Layout, width: float) -> float:
    return layout.text.edges[2] - width if layout.is_rtl else layout.text.x


def _scrim(picture: Image.Image, layout: Layout, blocks: tuple[Block, ...]) -> None:
    width, height = picture.size
    head = layout.heading_top + len(layout.heading) * layout.heading_style.line_height
    mask = Image.new("L", picture.size, 0)
    ramp = Image.linear_gradient("L").point(lambda level: level * SCRIM // 255)
    mask.paste(ramp.rotate(180).resize((width, min(height, round(head * 1.7)))), (0, 0))
    if blocks:
        top = max(0, round(blocks[0].top - (height - blocks[0].top) * 0.7))
        mask.paste(ramp.resize((width, height - top)), (0, top))
    picture.paste((6, 8, 14, 255), (0, 0), mask)
    picture.putalpha(mask)


def scene_of(raw: list[Any]) -> Scene:
    """Restore a scene from JSON."""
    scene = Scene(*raw)
    picture = None if scene.picture is None else Picture(*scene.picture)
    return scene._replace(lines=tuple(Line(*line) for line in scene.lines), picture=picture)


def faces_of(raw: list[Any]) -> Faces:
    """Restore faces from JSON."""
    plain, bold = (tuple(_font(one) for one in fonts) for fonts in raw)
    return Faces(plain, bold)


def layers_of(raw: list[Any]) -> Drawn:
    """Restore a scene's layers from JSON."""
    layers = Drawn(*raw)
    stills = tuple(Still(*still) for still in layers.stills)
    return layers._replace(stills=stills, box=None if layers.box is None else Box(*layers.box))


def faces_as_json(faces: Faces) -> list[list[list[Any]]]:
    """Convert faces to JSON for `faces_of`."""
    return [[list(astuple(font)) for font in fonts] for fonts in faces]


def _font(raw: list[Any]) -> FontFile:
    path, number, family, style, is_colour, is_variable, starts, ends = raw
    return FontFile(path, number, family, style, is_colour, is_variable, tuple(starts), tuple(ends))
