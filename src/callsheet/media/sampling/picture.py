"""Write a decoded frame as an upright JPEG with square pixels. Child processes alone run this code."""

from __future__ import annotations

import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter
from PIL import Image

from .frame_filter import Gray

Turn = Callable[[Gray], Gray]  # of rows and columns, with or without colours

QUALITY = 92
DISPLAY_MATRIX = "DISPLAYMATRIX"
ONE = 65536
TURNS: dict[tuple[int, ...], Turn] = {
    (0, -ONE, ONE, 0): np.rot90,  # against the clock
    (-ONE, 0, 0, -ONE): lambda pixels: np.rot90(pixels, 2),
    (0, ONE, -ONE, 0): lambda pixels: np.rot90(pixels, 3),
    (-ONE, 0, 0, ONE): np.fliplr,
    (ONE, 0, 0, -ONE): np.flipud,
    (0, ONE, ONE, 0): lambda pixels: pixels.swapaxes(0, 1),
    (0, -ONE, -ONE, 0): lambda pixels: np.rot90(pixels, 2).swapaxes(0, 1),
}


class Camera:
    """Writes the frames of one stream."""

    def __init__(self, folder: Path, aspect: Fraction | None) -> None:
        self._folder = folder
        self._aspect = aspect or Fraction(1)
        self._reformatter = VideoReformatter()  # making one costs as much as a frame
        self._angle: int | None = None
        self._turn: Turn | None = None

    def write(self, frame: Any, name: str) -> tuple[Path, int, int]:
        """Write a frame; return its file, width and height."""
        width = max(1, round(frame.width * self._aspect))
        plain = self._reformatter.reformat(
            frame, width=width, height=frame.height, format="rgb24", interpolation=Interpolation.BICUBIC, threads=1
        )
        pixels = self.upright(plain.to_ndarray().astype(np.uint8, copy=False), frame)
        path = self._folder / name
        Image.fromarray(pixels).save(path, "JPEG", quality=QUALITY)
        return path, pixels.shape[1], pixels.shape[0]

    def upright(self, pixels: Gray, frame: Any) -> Gray:
        """Return a frame's pixels, in grey or in colours, in the viewer's orientation."""
        turn = self._turn_of(frame)
        return pixels if turn is None else np.ascontiguousarray(turn(pixels))

    def _turn_of(self, frame: Any) -> Turn | None:
        """Return `turn_of`, computed once per angle: a frame whose side data was read stays in memory for long."""
        if frame.rotation != self._angle:
            self._angle, self._turn = frame.rotation, turn_of(frame)
        return self._turn


def turn_of(frame: Any) -> Turn | None:
    """Return the function that turns a frame upright; None for upright frames and for odd angles."""
    matrix = frame.side_data.get(DISPLAY_MATRIX)
    if matrix is None:
        return None
    a, b, _, c, d = struct.unpack_from("=5i", bytes(matrix))
    return TURNS.get((a, b, c, d))
