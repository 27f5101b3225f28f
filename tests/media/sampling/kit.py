"""What the tests of sampling share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from callsheet.media.sampling.records import Kept, Sampled, Sampling
from callsheet.media.sampling.sample import LIMITS, Means, sample
from tests.media.made_up import MadeUp, Truth

MEANS = Means(limits=LIMITS._replace(nice=0))  # others are at work on the same cores


class Outcome(NamedTuple):
    kept: list[Kept]
    sampled: Sampled

    def showing(self, truth: Truth) -> list[Kept]:
        """The kept frames that were taken while a text was on screen."""
        return [frame for frame in self.kept if truth.t_start_ms <= frame.timestamp_ms < truth.t_end_ms]

    def found(self, film: MadeUp) -> int:
        """Return the number of texts visible on at least one kept frame."""
        return sum(bool(self.showing(truth)) for truth in film.truths)


async def sampled(path: Path, folder: Path, options: Sampling = Sampling(), **more: Any) -> Outcome:  # noqa: B008
    frames: list[Kept] = []

    async def take(one: Kept) -> None:
        frames.append(one)

    return Outcome(frames, await sample(path, folder, take, options, **{"means": MEANS, **more}))
