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
WIDE, LABEL = 8, 2  # cells to each side; a page is bright so far around, a label is not
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
    whole = np.asarray(image)
    bright, darkest = _shares(whole > BRIGHT), _by_cell(whole, np.minimum)
    cells = _grown(_grown(darkest < DARK)) & (bright > 0) & ~_is_filled(bright, WIDE)
    if np.count_nonzero(cells & ~_covered(known, cells.shape)) < FEW_CELLS:
        return None
    top, bottom = _span(cells, 1)
    left, right = _span(cells, 0)
    pixels = whole[top * CELL : bottom * CELL, left * CELL : right * CELL]
    near = _enlarged(cells[top:bottom, left:right], pixels.shape)
    edged = near & _enlarged(_grown(darkest[top:bottom, left:right] < EDGE), pixels.shape)
    values = pixels[edged if np.count_nonzero(edged) >= FEW_CELLS * CELL * CELL else near]
    ink = _labels_turned(near & (pixels > _limit(values)))
    return Mask(np.where(ink, np.uint8(0), np.uint8(255)), left * CELL, top * CELL)


def _check(image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS or max(image.size) > MOST_SIDE:
        raise InputTooLarge(f"a frame of {image.width}x{image.height} is over {MOST_PIXELS} pixels")


def _by_cell(pixels: Grey, joined: np.ufunc) -> Grey:
    """One value for each cell, made of all in it; those at the right and at the bottom may have fewer."""
    for _ in range(2):  # the rows of each, whole and so at once, and then its columns as rows
        cells: Grey = pixels[::CELL].copy()
        for at in range(1, CELL):
            row = pixels[at::CELL]
            joined(cells[: len(row)], row, out=cells[: len(row)])
        pixels = cells.T
    return pixels


def _shares(marked: NDArray[np.bool_]) -> Grey:
    """How much of each cell is marked, 255 for all of it."""
    counts = _by_cell(marked.view(np.uint8), np.add).astype(np.int32)
    height, width = (np.minimum(CELL, side - np.arange(0, side, CELL)) for side in marked.shape)
    areas = np.outer(height, width)
    shares: Grey = ((255 * counts + areas // 2) // areas).astype(np.uint8)
    return shares


def _is_filled(shares: Grey, far: int) -> NDArray[np.bool_]:
    """Those cells around which, so far to each side, most is marked."""
    blurred = Image.fromarray(shares).filter(ImageFilter.BoxBlur(far))
    return np.asarray(blurred) > FILLED * 255


def _enlarged(cells: NDArray[np.bool_], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """As pixels."""
    return np.repeat(np.repeat(cells, CELL, axis=1), CELL, axis=0)[: shape[0], : shape[1]]


def _limit(values: Grey) -> int:
    """Just below the value that most bright pixels have."""
    counts = np.bincount(values, minlength=256)[BRIGHT:]
    smooth = np.convolve(counts, np.ones(9), "same")
    return min(max(BRIGHT + int(smooth.argmax()) - STEPS_BELOW_INK, LEAST_INK), MOST_INK)


def _labels_turned(ink: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A bright label with dark text is ink all over: inside of it, what is not ink is."""
    label = _grown(_is_filled(_shares(ink), LABEL))
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
