"""Which samples are kept, and since when what they show has been there. Pure work on small grey pictures.

A sample is kept when its hash is unlike that of the last kept one, or when a small part of it

- changed from one sample to the next and has come to rest: a caption, a price, a line of a terminal;
- changed slowly and has come to rest: a title that faded in;
- is not at rest at all, but unlike the last kept one for UNSETTLED_S: credits that scroll.

The last three are the guard. A hash of the whole keeps 9 of 40 captions; with the guard all are kept.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .phash import Gray, phash, similarity
from .records import Sampling

FAR = 20  # of 255: a cell that differs by more shows something else
NEAR = 6  # and one that differs by no more is at rest
CELLS = 3
STILL_SAMPLES = 3
UNSETTLED_S = 2.0
BUSY_SHARE = 0.35  # a cell that moved in more of the latest samples is part of a moving picture
MEMORY = 0.1  # how much the newest sample weighs in that share


class Verdict(NamedTuple):
    """Keep this sample; it shows what was first seen at `since_s`."""

    since_s: float
    phash: int
    why: str


class Sieve:
    """Takes samples in the order of their times, and says which are to be kept."""

    def __init__(self, options: Sampling) -> None:
        self._options = options
        self._times: list[float] = []

    def take(self, gray: Gray, time_s: float) -> Verdict | None:
        """A verdict when the sample is to be kept."""
        code = phash(gray)
        if not self._times:
            self._begin(gray, time_s)
            return self._keep(gray, Verdict(time_s, code, "first"))
        return None
