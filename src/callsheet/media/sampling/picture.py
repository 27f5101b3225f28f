"""A decoded frame as the JPEG that a viewer would see: upright, with square pixels. Used by the child alone."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter
from PIL import Image

from .phash import Gray

QUALITY = 92
DISPLAY_MATRIX = "DISPLAYMATRIX"
ONE = 65536
TURNS = {
    (0, -ONE, ONE, 0): Image.Transpose.ROTATE_90,
    (-ONE, 0, 0, -ONE): Image.Transpose.ROTATE_180,
    (0, ONE, -ONE, 0): Image.Transpose.ROTATE_270,
    (-ONE, 0, 0, ONE): Image.Transpose.FLIP_LEFT_RIGHT,
    (ONE, 0, 0, -ONE): Image.Transpose.FLIP_TOP_BOTTOM,
    (0, ONE, ONE, 0): Image.Transpose.TRANSPOSE,
    (0, -ONE, -ONE, 0): Image.Transpose.TRANSVERSE,
}


class Camera:
    """Writes frames of one stream."""

    def __init__(self, folder: Path, aspect: Fraction | None) -> None:
        self._folder = folder
        self._aspect = aspect or Fraction(1)
        self._reformatter = VideoReformatter()  # making one costs as much as a frame
        self._angle: int | None = None
        self._turn: Image.Transpose | None = None

    def write(self, frame: Any, name: str) -> tuple[Path, int, int]:
        """The file, its width and its height."""
        width = max(1, round(frame.width * self._aspect))
        plain = self._reformatter.reformat(
            frame, width=width, height=frame.height, format="rgb24", interpolation=Interpolation.BICUBIC, threads=1
        )
        picture = Image.fromarray(plain.to_ndarray())
        if (turn := self._turn_of(frame)) is not None:
            picture = picture.transpose(turn)
        path = self._folder / name
        picture.save(path, "JPEG", quality=QUALITY)
        return path, picture.width, picture.height

    def upright(self, gray: Gray, frame: Any) -> Gray:
        """A small grey picture of a frame, turned as the whole one will be."""
        turn = self._turn_of(frame)
        return gray if turn is None else np.array(Image.fromarray(gray).transpose(turn))

    def _turn_of(self, frame: Any) -> Image.Transpose | None:
        """As `turn_of`, which is asked once: a frame that gave its side data is part of a cycle, and stays for long."""
        if frame.rotation != self._angle:
            self._angle, self._turn = frame.rotation, turn_of(frame)
        return self._turn


def turn_of(frame: Any) -> Image.Transpose | None:
    """What makes a frame upright; None for nothing, and for an angle that is not a right one."""
    matrix = frame.side_data.get(DISPLAY_MATRIX)
    if matrix is None:
        return None
    a, b, _, c, d = struct.unpack_from("=5i", bytes(matrix))
    return TURNS.get((a, b, c, d))
