"""Convert a frame to grey, and extract its bright text as black on white."""

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
LEAST_SIDE = 8  # the smallest letter
FORMATS = ("JPEG", "PNG")

CELL = 8  # pixels; text candidates are found cell by cell
EDGE, DARK, BRIGHT = 90, 150, 200  # thresholds of a letter's edge, its background and its inside
STEPS_BELOW_INK = 14
LEAST_INK, MOST_INK = 198, 236
FEW_CELLS = 12  # fewer than a word of two small letters has
FILLED_SHARE = 0.6  # pages and labels are brighter than this share, surroundings of a letter darker
WIDE, LABEL = 8, 2  # cells to each side; a page is bright so far around, a label is not
AROUND = 3  # cells of margin around the mask

Grey = NDArray[np.uint8]


class Mask(NamedTuple):
    """A part of a picture with bright text in black and the rest in white, and its position."""

    pixels: Grey
    x: int
    y: int


def grey(picture: bytes) -> Image.Image | None:
    """Return the picture in grey, or None if it is smaller than a letter. Raises NotAPicture and InputTooLarge."""
    return _decode(picture, "L")


def bgr(picture: bytes) -> Grey | None:
    """Return the picture in colour, blue first, or None if it is smaller than a letter."""
    image = _decode(picture, "RGB")
    return None if image is None else np.asarray(image)[:, :, ::-1]


def _decode(picture: bytes, mode: str) -> Image.Image | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(picture), formats=FORMATS)
            _check(image)
            image.draft(mode, image.size)  # for grey, the JPEG decoder skips the colours
            return image.convert(mode) if min(image.size) >= LEAST_SIDE else None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise InputTooLarge(f"a frame of over {MOST_PIXELS} pixels cannot be read") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        kind = "is no JPEG or PNG" if isinstance(error, UnidentifiedImageError) else f"is broken: {error}"
        raise NotAPicture(f"a frame of {len(picture)} bytes {kind}; sample the video again") from None


def bright_text(image: Image.Image, known_boxes: list[Box]) -> Mask | None:
    """Return a mask of text in the most common bright colour; None if the `known_boxes` cover all of it.

    Captions have one colour and a dark edge or background. Each frame gets its own brightness threshold (the peak of
    the histogram): a fixed one either includes bright backgrounds or loses yellow and grey captions.
    """
    whole = np.asarray(image)
    bright, darkest = _shares(whole > BRIGHT), _by_cell(whole, np.minimum)
    cells = _grow(_grow(darkest < DARK)) & (bright > 0) & ~_is_filled(bright, WIDE)
    if np.count_nonzero(cells & ~_cells_in(known_boxes, cells.shape)) < FEW_CELLS:
        return None
    top, bottom = _span(cells, 1)
    left, right = _span(cells, 0)
    pixels = whole[top * CELL : bottom * CELL, left * CELL : right * CELL]
    near = _as_pixels(cells[top:bottom, left:right], pixels.shape)
    edge_pixels = near & _as_pixels(_grow(darkest[top:bottom, left:right] < EDGE), pixels.shape)
    values = pixels[edge_pixels if np.count_nonzero(edge_pixels) >= FEW_CELLS * CELL * CELL else near]
    ink = _invert_labels(near & (pixels > _limit(values)))
    return Mask(np.where(ink, np.uint8(0), np.uint8(255)), left * CELL, top * CELL)


def _check(image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS or max(image.size) > MOST_SIDE:
        raise InputTooLarge(f"a frame of {image.width}x{image.height} is over {MOST_PIXELS} pixels")


def _by_cell(pixels: Grey, combine: np.ufunc) -> Grey:
    """Combine the pixels of each cell into one value; cells at the right and bottom edges may be smaller."""
    for _ in range(2):  # first whole rows at once, then columns as rows
        cells: Grey = pixels[::CELL].copy()
        for at in range(1, CELL):
            row = pixels[at::CELL]
            combine(cells[: len(row)], row, out=cells[: len(row)])
        pixels = cells.T
    return pixels


def _shares(mask: NDArray[np.bool_]) -> Grey:
    counts = _by_cell(mask.view(np.uint8), np.add).astype(np.int32)
    height, width = (np.minimum(CELL, side - np.arange(0, side, CELL)) for side in mask.shape)
    areas = np.outer(height, width)
    shares: Grey = ((255 * counts + areas // 2) // areas).astype(np.uint8)
    return shares


def _is_filled(shares: Grey, far: int) -> NDArray[np.bool_]:
    """Return cells in whose neighbourhood (`far` cells to each side) most pixels are marked."""
    local_means = Image.fromarray(shares).filter(ImageFilter.BoxBlur(far))
    return np.asarray(local_means) > FILLED_SHARE * 255


def _as_pixels(cells: NDArray[np.bool_], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    return np.repeat(np.repeat(cells, CELL, axis=1), CELL, axis=0)[: shape[0], : shape[1]]


def _limit(values: Grey) -> int:
    counts = np.bincount(values, minlength=256)[BRIGHT:]
    smooth = np.convolve(counts, np.ones(9), "same")
    return min(max(BRIGHT + int(smooth.argmax()) - STEPS_BELOW_INK, LEAST_INK), MOST_INK)


def _invert_labels(ink: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Invert bright labels with dark text: there the dark pixels are the text."""
    label = _grow(_is_filled(_shares(ink), LABEL))
    if not label.any():
        return ink
    return np.logical_xor(ink, _as_pixels(label, ink.shape))


def _cells_in(boxes: list[Box], shape: tuple[int, int]) -> NDArray[np.bool_]:
    inside = np.zeros(shape, dtype=np.bool_)
    for box in boxes:
        top, left = max(0, box.y // CELL - 1), max(0, box.x // CELL - 1)
        inside[top : (box.y + box.height) // CELL + 2, left : (box.x + box.width) // CELL + 2] = True
    return inside


def _span(cells: NDArray[np.bool_], axis: int) -> tuple[int, int]:
    at = np.flatnonzero(np.any(cells, axis=axis))
    return max(0, int(at[0]) - AROUND), int(at[-1]) + 1 + AROUND


def _grow(cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
    taller = cells.copy()
    taller[1:] |= cells[:-1]
    taller[:-1] |= cells[1:]
    wide = taller.copy()
    wide[:, 1:] |= taller[:, :-1]
    wide[:, :-1] |= taller[:, 1:]
    return wide
