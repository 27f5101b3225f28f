"""A frame as a grey picture, and its bright text alone as black on white."""

from __future__ import annotations

import io
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, UnidentifiedImageError

from callsheet.media.errors import InputTooLarge

from .errors import NotAPicture
from .records import Box

MOST_PIXELS = 8192 * 8192
MOST_SIDE = 32767  # of Tesseract
LEAST_SIDE = 8  # no letter is smaller
FORMATS = ("JPEG", "PNG")

CELL = 8  # pixels; what is looked at for candidates of text
EDGE, DARK, BRIGHT = 90, 150, 200  # the edge of a letter, its ground and its inside
STEPS_BELOW_INK = 14
LEAST_INK, MOST_INK = 198, 236
FEW_CELLS = 12  # fewer than a word of two small letters has
FILLED = 0.6  # of a page or a label is bright, and less of what is around a letter
WIDE = 8  # cells to each side; a page is bright so far around, a label is not
AROUND = 3  # cells around what is cut out

Grey = NDArray[np.uint8]


class Mask(NamedTuple):
    """Part of a picture in which bright text is black and all else white, and where it was cut out."""

    pixels: Grey
    x: int
    y: int


def grey(picture: bytes) -> Image.Image | None:
    """The picture in grey; None when it is too small to hold a letter. Raises NotAPicture and InputTooLarge."""
    return _opened(picture, "L")


def bgr(picture: bytes) -> Grey | None:
    """The same in colours, with blue first."""
    image = _opened(picture, "RGB")
    return None if image is None else np.asarray(image)[:, :, ::-1]


def _opened(picture: bytes, mode: str) -> Image.Image | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(picture), formats=FORMATS)
            _check(image)
            image.draft(mode, image.size)  # a JPEG that is wanted in grey leaves its colours undecoded
            return image.convert(mode) if min(image.size) >= LEAST_SIDE else None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise InputTooLarge(f"a frame of over {MOST_PIXELS} pixels cannot be read") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        kind = "is no JPEG or PNG" if isinstance(error, UnidentifiedImageError) else f"is broken: {error}"
        raise NotAPicture(f"a frame of {len(picture)} bytes {kind}; sample the video again") from None


def bright_text(image: Image.Image, known: list[Box]) -> Mask | None:
    """What is as bright as most bright pixels next to dark ones; None if all such lies in the `known` boxes.

    Captions are of one colour and have a dark edge or ground. The colour is looked for in each frame (the highest step
    of the histogram), since a fixed limit either takes bright grounds in or loses captions in yellow and grey.
    """
    bright = image.point(_OVER_BRIGHT).reduce(CELL)
    page = np.asarray(bright.filter(ImageFilter.BoxBlur(WIDE))) > FILLED * 255
    cells = _grown(_grown(_cells(image, _UNDER_DARK))) & (np.asarray(bright) > 0) & ~page
    if np.count_nonzero(cells & ~_covered(known, cells.shape)) < FEW_CELLS:
        return None
    top, bottom = _span(cells, 1)
    left, right = _span(cells, 0)
    part = image.crop((left * CELL, top * CELL, min(right * CELL, image.width), min(bottom * CELL, image.height)))
    pixels = np.asarray(part)
    near = _enlarged(cells[top:bottom, left:right], pixels.shape)
    edged = near & _enlarged(_grown(_cells(part, _UNDER_EDGE)), pixels.shape)
    values = pixels[edged if np.count_nonzero(edged) >= FEW_CELLS * CELL * CELL else near]
    ink = _labels_turned(near & (pixels > _limit(values)))
    return Mask(np.where(ink, np.uint8(0), np.uint8(255)), left * CELL, top * CELL)


def _check(image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS or max(image.size) > MOST_SIDE:
        raise InputTooLarge(f"a frame of {image.width}x{image.height} is over {MOST_PIXELS} pixels")


def _cells(image: Image.Image, table: list[int]) -> NDArray[np.bool_]:
    """Those in which the table has marked a pixel."""
    return np.asarray(image.point(table).reduce(CELL)) > 0


def _enlarged(cells: NDArray[np.bool_], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """As pixels."""
    return np.repeat(np.repeat(cells, CELL, axis=0), CELL, axis=1)[: shape[0], : shape[1]]


def _limit(values: Grey) -> int:
    """Just below the value that most bright pixels have."""
    counts = np.bincount(values, minlength=256)[BRIGHT:]
    smooth = np.convolve(counts, np.ones(9), "same")
    return min(max(BRIGHT + int(smooth.argmax()) - STEPS_BELOW_INK, LEAST_INK), MOST_INK)


def _labels_turned(ink: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A bright label with dark text is ink all over: inside of it, what is not ink is."""
    filled = Image.fromarray(ink.view(np.uint8) * np.uint8(255)).reduce(CELL)
    label = _grown(np.asarray(filled.filter(ImageFilter.BoxBlur(2))) > FILLED * 255)
    if not label.any():
        return ink
    return np.logical_xor(ink, _enlarged(label, ink.shape))


def _covered(boxes: list[Box], shape: tuple[int, int]) -> NDArray[np.bool_]:
    inside = np.zeros(shape, dtype=np.bool_)
    for box in boxes:
        top, left = max(0, box.y // CELL - 1), max(0, box.x // CELL - 1)
        inside[top : (box.y + box.height) // CELL + 2, left : (box.x + box.width) // CELL + 2] = True
    return inside


def _span(cells: NDArray[np.bool_], axis: int) -> tuple[int, int]:
    at = np.flatnonzero(np.any(cells, axis=axis))
    return max(0, int(at[0]) - AROUND), int(at[-1]) + 1 + AROUND


def _grown(cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """With all their neighbours."""
    grown = cells.copy()
    grown[1:] |= cells[:-1]
    grown[:-1] |= cells[1:]
    wide = grown.copy()
    wide[:, 1:] |= grown[:, :-1]
    wide[:, :-1] |= grown[:, 1:]
    return wide


_UNDER_DARK = [255 if value < DARK else 0 for value in range(256)]
_UNDER_EDGE = [255 if value < EDGE else 0 for value in range(256)]
_OVER_BRIGHT = [255 if value > BRIGHT else 0 for value in range(256)]
