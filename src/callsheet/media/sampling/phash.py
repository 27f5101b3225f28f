"""A perceptual hash: 64 signs of the slowest waves of a small grey picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

SIDE = 32
LOW_WAVES = 8
BITS = LOW_WAVES * LOW_WAVES

Gray = npt.NDArray[np.uint8]


def _waves() -> npt.NDArray[np.float32]:
    """Return the first rows of the matrix of a cosine transform."""
    rows, places = np.arange(LOW_WAVES)[:, None], np.arange(SIDE)[None, :]
    return np.cos(np.pi * rows * (2 * places + 1) / (2 * SIDE)).astype(np.float32)


WAVES = _waves()
POWERS = np.uint64(1) << np.arange(BITS, dtype=np.uint64)[::-1]


def phash(gray: Gray) -> int:
    """Return the hash of a grey picture whose sides are multiples of 32."""
    height, width = gray.shape
    rows, columns = height // SIDE, width // SIDE
    # sums first along rows, then along columns: half the time of one mean over both
    sums: npt.NDArray[Any] = gray.reshape(SIDE, rows, width).sum(axis=1, dtype=np.uint16)
    small = sums.reshape(SIDE, SIDE, columns).sum(axis=2, dtype=np.uint32).astype(np.float32)
    slow = WAVES @ small @ WAVES.T
    return int(POWERS[(slow > np.median(slow)).ravel()].sum())


def similarity(one: int, other: int) -> float:
    """Return 1.0 for equal hashes, 0.0 if all bits differ."""
    return 1 - (one ^ other).bit_count() / BITS
