"""Which samples are kept, and since when what they show has been there. Pure work on small grey pictures.

A sample is kept when its hash is unlike that of the last kept one, or when a small part of it

- changed from one sample to the next and has come to rest: a caption, a price, a line of a terminal;
- changed slowly and has come to rest: a title that faded in;
- is not at rest at all, and has been unlike the last kept one for UNSETTLED_S: credits that scroll.

These three are the guard. Cells of a picture that moves all the time, such as a speaker's camera in a corner, are busy
and count for the third alone. Of forty captions in a minute the hash keeps 21, and the guard makes it forty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .phash import Gray, phash, similarity
from .records import Sampling

WIDTH, HEIGHT = 320, 160
FAR = 20  # of 255: a cell that differs by more shows something else
NEAR = 6  # and one that differs by no more is at rest
STIR = 2  # what a coder adds to a still picture; more is movement
CELLS = 6
DRIFT_CELLS = 24  # slow changes are everywhere in a picture that moves; text that fades in has hundreds of cells
BUSY = 3  # of the last eight samples; a caption that comes moves its cells once
STILL = 0b11111  # the latest samples, in none of which a cell moved
UNSETTLED_S = 2.0
ALONE_S = 0.25  # a frame that is shown for longer than this is at rest by itself

MOST_TIMES = 1024
MOST_PASSES = 5

Mask = npt.NDArray[np.bool_]


class Verdict(NamedTuple):
    """Keep this sample; it shows what was first seen at `since_s`. `why` is one of hash, jump, drift, unsettled."""

    since_s: float
    phash: int
    why: str


class Sieve:
    """Takes samples in the order of their times, and says which are to be kept."""

    def __init__(self, options: Sampling) -> None:
        self._options = options
        self._count = 0
        self._guarded_s = -np.inf
        self._unlike_s: float | None = None
        self._passed = 0

    def take(self, gray: Gray, time_s: float) -> Verdict | None:
        """A verdict when the sample is to be kept. `gray` is HEIGHT by WIDTH, and not changed afterwards."""
        if self._count and self._passes(gray, time_s):
            return None
        code = phash(gray)
        if not self._count:
            self._begin(gray, time_s, code)
            return self._keep(gray, Verdict(time_s, code, "first"))
        self._look(gray, time_s)
        self._last, self._last_code = gray, code
        verdict = self._judged(time_s)
        return None if verdict is None else self._keep(gray, verdict)

    def stood(self, until_s: float) -> Verdict | None:
        """The same for the last sample again, once it has been on screen long enough to be at rest by itself."""
        self._look(self._last, self._times[-1])
        self._moves.fill(0)
        verdict = self._judged(until_s)
        return None if verdict is None else self._keep(self._last, verdict)

    def _begin(self, gray: Gray, time_s: float, code: int) -> None:
        self._last, self._last_code = gray, code
        self._times = [time_s]
        self._moves = np.zeros(gray.shape, np.uint8)  # a bit for each of the last eight samples
        self._jumps = np.zeros(gray.shape, np.int16)  # in which sample since the kept one a cell last changed at once
        self._onsets = np.zeros(gray.shape, np.int16)  # and since which it has been unlike the kept one

    def _passes(self, gray: Gray, time_s: float) -> bool:
        """Whether a sample is the last one again, which saves the whole look. Some of them in a row may add up."""
        passes = self._unlike_s is None and self._passed < MOST_PASSES and _difference(gray, self._last).max() <= STIR
        self._passed = self._passed + 1 if passes else 0
        if passes:
            self._last, self._times[-1] = gray, time_s
            self._moves <<= 1
        return bool(passes)

    def _look(self, gray: Gray, time_s: float) -> None:
        """What changed since the last sample, and since the kept one."""
        self._count += 1
        self._times.append(time_s)
        if len(self._times) > MOST_TIMES:
            self._forget()
        at = len(self._times) - 1
        step = _difference(gray, self._last)
        self._rest: Mask = step <= NEAR
        np.putmask(self._jumps, step > FAR, at)
        self._moves <<= 1
        self._moves |= step > STIR
        self._unlike: Mask = _difference(gray, self._kept) > FAR
        np.putmask(self._onsets, ~self._unlike, at + 1)
        if np.count_nonzero(self._unlike) < CELLS:
            self._unlike_s = None
        elif self._unlike_s is None:
            self._unlike_s = time_s

    def _forget(self) -> None:
        """Half of the times, so that a picture that stands for a day takes no more memory than one for a minute."""
        half = MOST_TIMES // 2
        self._times = [self._times[0], *self._times[half + 1 :]]
        for places in (self._jumps, self._onsets):
            np.maximum(places - half, 0, out=places)

    def _judged(self, now_s: float) -> Verdict | None:
        code = self._last_code
        if similarity(code, self._kept_code) < self._options.dedupe_threshold:
            return Verdict(self._jumped_s(), code, "hash")
        if not self._options.guard or self._unlike_s is None:
            return None
        if now_s - self._guarded_s >= self._options.guard_min_interval_s - 1e-6:
            settled = self._unlike & self._rest & (self._jumps > 0) & (np.bitwise_count(self._moves) < BUSY)
            if np.count_nonzero(settled) >= CELLS:
                return Verdict(self._jumped_s(settled), code, "jump")
            still = self._unlike & (self._moves & STILL == 0)
            if np.count_nonzero(still) >= DRIFT_CELLS:
                return Verdict(self._times[int(np.median(self._onsets[still]))], code, "drift")
        if now_s - self._unlike_s >= UNSETTLED_S:
            return Verdict(self._jumped_s(), code, "unsettled")
        return None

    def _jumped_s(self, among: Mask | None = None) -> float:
        """When most of the cells changed that now show something else: at rest since, or in this very sample."""
        at = len(self._times) - 1
        cells = self._unlike & (self._rest | (self._jumps == at)) if among is None else among
        counts = np.bincount(self._jumps[cells], minlength=2)
        counts[0] = 0  # those that never jumped
        return self._times[int(counts.argmax()) if counts.max() >= CELLS else at]

    def _keep(self, gray: Gray, verdict: Verdict) -> Verdict:
        if verdict.why not in ("first", "hash"):
            self._guarded_s = self._times[-1]
        self._count = max(1, self._count)
        self._kept, self._kept_code = gray, verdict.phash
        self._times = self._times[-1:]
        self._unlike_s = None
        self._jumps.fill(0)
        self._onsets.fill(0)
        return verdict


def _difference(one: Gray, other: Gray) -> Gray:
    """Without the wrap of unsigned numbers."""
    result: Gray = np.maximum(one, other) - np.minimum(one, other)
    return result
