"""Frames with rotation metadata."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from callsheet.media.sampling.picture import ONE, TURNS

AS_PILLOW_DOES: dict[tuple[int, ...], Image.Transpose] = {
    (0, -ONE, ONE, 0): Image.Transpose.ROTATE_90,
    (-ONE, 0, 0, -ONE): Image.Transpose.ROTATE_180,
    (0, ONE, -ONE, 0): Image.Transpose.ROTATE_270,
    (-ONE, 0, 0, ONE): Image.Transpose.FLIP_LEFT_RIGHT,
    (ONE, 0, 0, -ONE): Image.Transpose.FLIP_TOP_BOTTOM,
    (0, ONE, ONE, 0): Image.Transpose.TRANSPOSE,
    (0, -ONE, -ONE, 0): Image.Transpose.TRANSVERSE,
}


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)], ids=["grey", "colours"])
@pytest.mark.parametrize("matrix", TURNS)
def test_a_frame_is_turned_by_its_matrix(matrix: tuple[int, ...], shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    turned_picture = Image.fromarray(pixels).transpose(AS_PILLOW_DOES[matrix])
    assert np.array_equal(TURNS[matrix](pixels), np.asarray(turned_picture))
