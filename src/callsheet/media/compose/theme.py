"""Colours and backgrounds: a dark and a light theme, one accent, a soft gradient without bands."""

from __future__ import annotations

import colorsys
import random
from functools import lru_cache
from typing import NamedTuple

from PIL import Image, ImageChops, ImageFilter

Rgb = tuple[int, int, int]
ACCENTS = {"dark": "#6ea8fe", "light": "#2f5fd0"}
NOISE_SEED = 7
GLOW_EDGE = 178  # of Pillow's gradient in the middle of its sides: farther out are only the corners
LEAST_CONTRAST = 3.0  # of large marks against their background


class Theme(NamedTuple):
    """Colours. `ink` is the current text, `faded` earlier text, `quiet` small marks."""

    name: str
    top: Rgb
    bottom: Rgb
    ink: Rgb
    faded: Rgb
    quiet: Rgb
    card: Rgb
    accent: Rgb


def theme_of(name: str, accent: str = "") -> Theme:
    """Return a theme with its own or the given accent, adjusted until it contrasts with the background."""
    if name == "light":
        theme = Theme("light", (250, 250, 247), (228, 233, 243), (22, 26, 36), (90, 96, 110), (120, 126, 140),
                      (255, 255, 255), (0, 0, 0))  # fmt: skip
    else:
        theme = Theme("dark", (22, 26, 40), (11, 13, 21), (246, 247, 250), (152, 159, 176), (126, 134, 152),
                      (36, 41, 58), (0, 0, 0))  # fmt: skip
    return theme._replace(accent=_with_contrast(rgb_of(accent or ACCENTS[theme.name]), theme))


def rgb_of(text: str) -> Rgb:
    """Parse a colour such as `#4f8cff`."""
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def contrast(one: Rgb, other: Rgb) -> float:
    """Return the WCAG contrast, from 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@lru_cache(maxsize=8)
def ground(theme: Theme, size: tuple[int, int]) -> Image.Image:
    """Return the background: a gradient, an accent glow, and a fine grain that hides bands."""
    width = size[0]
    ramp = Image.linear_gradient("L").resize(size, Image.Resampling.BICUBIC)
    picture = Image.composite(Image.new("RGB", size, theme.bottom), Image.new("RGB", size, theme.top), ramp)
    glow = Image.radial_gradient("L").resize((width, width), Image.Resampling.BICUBIC)
    share = 0.3 if theme.name == "dark" else 0.2
    glow = glow.point(lambda level: int((max(0, GLOW_EDGE - level) / GLOW_EDGE) ** 1.6 * 255 * share))
    mask = Image.new("L", size, 0)
    mask.paste(glow, (width - round(width * 0.62), -round(width * 0.55)))
    picture.paste(theme.accent, (0, 0), mask)
    return ImageChops.add(picture, _grain(size), offset=-1)


def _grain(size: tuple[int, int]) -> Image.Image:
    """Return noise of 0 to 2 levels, always the same, made of repeated tiles."""
    side = 256
    tile = Image.frombytes("L", (side, side), bytes(random.Random(NOISE_SEED).choices((0, 1, 1, 2), k=side * side)))  # noqa: S311
    whole = Image.new("L", size)
    for x in range(0, size[0], side):
        for y in range(0, size[1], side):
            whole.paste(tile, (x, y))
    return Image.merge("RGB", (whole, whole, whole))


def rounded_mask(size: tuple[int, int], radius: float) -> Image.Image:
    """Return a mask with round, smooth corners."""
    from PIL import ImageDraw  # noqa: PLC0415 - only here

    scale = 4
    corner = max(1, round(radius))
    large = Image.new("L", (corner * 2 * scale, corner * 2 * scale), 0)
    ImageDraw.Draw(large).ellipse((0, 0, *(side - 1 for side in large.size)), 255)
    small = large.resize((corner * 2, corner * 2), Image.Resampling.LANCZOS)
    mask = Image.new("L", size, 255)
    for left in (False, True):
        for top in (False, True):
            x, y = (0 if left else corner), (0 if top else corner)
            part = small.crop((x, y, x + corner, y + corner))
            mask.paste(part, (0 if left else size[0] - corner, 0 if top else size[1] - corner))
    return mask


def shadow(size: tuple[int, int], box: tuple[int, int, int, int], blur: float, strength: float) -> Image.Image:
    """Return a soft shadow mask of a box."""
    mask = Image.new("L", size, 0)
    mask.paste(round(255 * strength), box)
    return mask.filter(ImageFilter.GaussianBlur(blur))


def _luminance(colour: Rgb) -> float:
    parts = [level / 255 for level in colour]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)  # noqa: PLR2004
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _with_contrast(accent: Rgb, theme: Theme) -> Rgb:
    hue, light, full = colorsys.rgb_to_hls(*(level / 255 for level in accent))
    step = 0.03 if theme.name == "dark" else -0.03
    while contrast(accent, theme.top) < LEAST_CONTRAST:  # terminates: white and black have enough contrast
        light = min(1.0, max(0.0, light + step))
        red, green, blue = colorsys.hls_to_rgb(hue, light, full)
        accent = round(red * 255), round(green * 255), round(blue * 255)
    return accent
