"""Decide which samples to keep, and since when their content has been visible. Pure work on small grey pictures.

A sample is kept when its hash differs from that of the last kept one, or when a small part of it

- changed from one sample to the next and has come to rest: a caption, a price, a line of a terminal;
- changed slowly and has come to rest: a title that faded in;
- never rests, and has differed from the last kept sample for UNSETTLED_S: credits that scroll.

These three rules are the guard. Cells of a constantly moving picture, such as a speaker's camera in a corner, are busy
and count for the third rule alone. Of forty captions in a minute the hash keeps 21; with the guard all forty are kept.

The hash is perceptual: 64 signs of the slowest waves of a small grey picture.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .records import Sampling

SIDE = 32
LOW_WAVES = 8
BITS = LOW_WAVES * LOW_WAVES

Gray = npt.NDArray[np.uint8]

WIDTH, HEIGHT = 320, 160
FAR = 20  # of 255: a cell with a larger difference has new content
NEAR = 6  # of 255: a cell with at most this difference is at rest
STIR = 2  # coding noise of a still picture; larger differences are movement
CELLS = 6
DRIFT_CELLS = 24  # a moving picture has slow changes everywhere; text that fades in has hundreds of cells
BUSY = 3  # of the last eight samples; a new caption moves its cells once
STILL = 0b11111  # the latest samples, all without movement of the cell
UNSETTLED_S = 2.0
ALONE_S = 0.25  # a frame visible for longer than this is at rest

MOST_TIMES = 1024
MOST_PASSES = 5

Mask = npt.NDArray[np.bool_]


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


class Verdict(NamedTuple):
    """Keep this sample; its content first appeared at `since_s`. `why` is one of hash, jump, drift, unsettled."""

    since_s: float
    phash: int
    why: str


class FrameFilter:
    """Takes samples in order of time, and decides which ones to keep."""

    def __init__(self, options: Sampling) -> None:
        self._options = options
        self._count = 0
        self._last_guard_s = -np.inf
        self._unlike_s: float | None = None
        self._skip_count = 0

    def take(self, gray: Gray, time_s: float) -> Verdict | None:
        """Return a verdict if the sample must be kept. `gray` is HEIGHT by WIDTH and must not change later."""
        if self._count and self._passes(gray, time_s):
            return None
        code = phash(gray)
        if not self._count:
            self._begin(gray, time_s, code)
            return self._keep(gray, Verdict(time_s, code, "first"))
        self._look(gray, time_s)
        self._last, self._last_code = gray, code
        verdict = self._judge(time_s)
        return None if verdict is None else self._keep(gray, verdict)

    def hold(self, until_s: float) -> Verdict | None:
        """Judge the last sample again, after it was visible long enough to be at rest."""
        self._look(self._last, self._times[-1])
        self._moves.fill(0)
        verdict = self._judge(until_s)
        return None if verdict is None else self._keep(self._last, verdict)

    def _begin(self, gray: Gray, time_s: float, code: int) -> None:
        self._last, self._last_code = gray, code
        self._times = [time_s]
        self._moves = np.zeros(gray.shape, np.uint8)  # a bit for each of the last eight samples
        self._jumps = np.zeros(gray.shape, np.int16)  # the sample since the kept one in which a cell last jumped
        self._onsets = np.zeros(gray.shape, np.int16)  # the sample since which a cell differs from the kept one

    def _passes(self, gray: Gray, time_s: float) -> bool:
        """Whether a sample equals the last one, which saves the comparison. Long runs are still compared at times."""
        passes = (
            self._unlike_s is None and self._skip_count < MOST_PASSES and _difference(gray, self._last).max() <= STIR
        )
        self._skip_count = self._skip_count + 1 if passes else 0
        if passes:
            self._last, self._times[-1] = gray, time_s
            self._moves <<= 1
        return bool(passes)

    def _look(self, gray: Gray, time_s: float) -> None:
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
        self._unlike: Mask = _difference(gray, self._last_kept) > FAR
        np.putmask(self._onsets, ~self._unlike, at + 1)
        if np.count_nonzero(self._unlike) < CELLS:
            self._unlike_s = None
        elif self._unlike_s is None:
            self._unlike_s = time_s

    def _forget(self) -> None:
        """Drop half of the times, so that a day-long still picture takes no more memory than a minute."""
        half = MOST_TIMES // 2
        self._times = [self._times[0], *self._times[half + 1 :]]
        for places in (self._jumps, self._onsets):
            np.maximum(places - half, 0, out=places)

    def _judge(self, now_s: float) -> Verdict | None:
        code = self._last_code
        if similarity(code, self._kept_code) < self._options.dedupe_threshold:
            return Verdict(self._jump_time_s(), code, "hash")
        if not self._options.guard or self._unlike_s is None:
            return None
        if now_s - self._last_guard_s >= self._options.guard_min_interval_s - 1e-6:
            settled_cells = self._unlike & self._rest & (self._jumps > 0) & (np.bitwise_count(self._moves) < BUSY)
            if np.count_nonzero(settled_cells) >= CELLS:
                return Verdict(self._jump_time_s(settled_cells), code, "jump")
            still = self._unlike & (self._moves & STILL == 0)
            if np.count_nonzero(still) >= DRIFT_CELLS:
                return Verdict(self._times[int(np.median(self._onsets[still]))], code, "drift")
        if now_s - self._unlike_s >= UNSETTLED_S:
            return Verdict(self._jump_time_s(), code, "unsettled")
        return None

    def _jump_time_s(self, among: Mask | None = None) -> float:
        """Return when most changed cells jumped. Only cells at rest since, or jumping now, count."""
        at = len(self._times) - 1
        cells = self._unlike & (self._rest | (self._jumps == at)) if among is None else among
        counts = np.bincount(self._jumps[cells], minlength=2)
        counts[0] = 0  # cells without a jump
        return self._times[int(counts.argmax()) if counts.max() >= CELLS else at]

    def _keep(self, gray: Gray, verdict: Verdict) -> Verdict:
        if verdict.why not in ("first", "hash"):
            self._last_guard_s = self._times[-1]
        self._count = max(1, self._count)
        self._last_kept, self._kept_code = gray, verdict.phash
        self._times = self._times[-1:]
        self._unlike_s = None
        self._jumps.fill(0)
        self._onsets.fill(0)
        return verdict


def _difference(one: Gray, other: Gray) -> Gray:
    """Return the absolute difference, without wrap-around of unsigned numbers."""
    result: Gray = np.maximum(one, other) - np.minimum(one, other)
    return result
