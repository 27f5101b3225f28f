"""Open the pictures of a script, with checks of format and size. Runs only in the sandboxed child."""

from __future__ import annotations

import warnings
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from .errors import PictureRefused

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS = 50_000_000
MAX_BYTES = 64 << 20
LEAST_SIDE = 8
LEAST_ASPECT, MOST_ASPECT = 0.02, 50.0


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
