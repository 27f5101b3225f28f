"""Cells of a picture, beside what they mean; cells of the last row and column may be smaller."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from callsheet.media.ocr.picture import CELL, _as_pixels, _by_cell, _shares

SHAPES = [(40, 64), (41, 71), (9, 8), (8, 9), (15, 23)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_darkest_of_a_cell_is_the_least_in_it(shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    rows, columns = (range(0, side, CELL) for side in shape)
    least = [[pixels[top : top + CELL, left : left + CELL].min() for left in columns] for top in rows]
    assert _by_cell(pixels, np.minimum).tolist() == least


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("often", [0.02, 0.5, 1.0])
def test_the_share_of_a_cell_is_the_mean_that_pillow_takes(shape: tuple[int, int], often: float) -> None:
    marks = np.random.default_rng(2).random(shape) < often
    picture = Image.fromarray(marks.astype(np.uint8) * np.uint8(255))
    means = np.asarray(picture.reduce(CELL)).astype(np.int16)
    assert np.abs(_shares(marks) - means).max() <= 1  # a half goes either way


def test_a_cell_is_as_many_pixels_again() -> None:
    cells = np.array([[True, False], [False, True]])
    pixels = _as_pixels(cells, (12, 11))
    assert pixels.shape == (12, 11)
    assert pixels.sum() == CELL * CELL + (12 - CELL) * (11 - CELL)
    assert np.array_equal(_by_cell(pixels.view(np.uint8), np.maximum).astype(bool), cells)
