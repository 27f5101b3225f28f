"""Runs many seeds in several processes and merges their outcomes."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from .run import Outcome, simulate

MOST_AT_ONCE = 10  # seeds that a process is given together
ALL_CORES = os.cpu_count() or 1


def run_seeds(
    seeds: Sequence[int], processes: int, run: Callable[[int], Outcome] = simulate
) -> Iterator[tuple[int, Outcome]]:
    """Run seeds and yield each with its outcome, in the order of the seeds, however many processes run them.

    New processes with fixed hash seeds keep this process' state out of histories.
    """
    if processes == 1 or len(seeds) < 2:
        yield from zip(seeds, map(run, seeds), strict=True)
        return
    at_once = max(1, min(MOST_AT_ONCE, len(seeds) // (2 * processes)))
    pool = ProcessPoolExecutor(min(processes, len(seeds)), get_context("spawn"))
    try:
        yield from zip(seeds, pool.map(run, seeds, chunksize=at_once), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


class Tally:
    """Sums over the outcomes of seeds. `histories` maps seeds to hashes, and `broken` lists seeds with violations."""

    def __init__(self) -> None:
        self.histories: dict[int, str] = {}
        self.broken: list[int] = []
        self._jobs = self._steps = self._choices = 0
        self._virtual_s = 0.0
        self._faults: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.histories[outcome.seed] = outcome.history
        if outcome.wrong:
            self.broken.append(outcome.seed)
        self._jobs += outcome.jobs
        self._steps += outcome.steps
        self._choices += outcome.choices
        self._virtual_s += outcome.virtual_s
        self._faults.update(outcome.faults)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report; equal for equal seeds, in any number of processes."""
        seeds = len(self.histories)
        whole = hashlib.blake2b("".join(self.histories.values()).encode(), digest_size=16).hexdigest()
        kinds = ", ".join(f"{kind} {count / seeds:.2f}" for kind, count in sorted(self._faults.items()))
        yield f"{seeds} seeds, {self._virtual_s / 3_600:.1f} virtual hours; the hash of all histories is {whole}"
        yield (
            f"a seed has {self._jobs / seeds:.1f} jobs, {self._steps / seeds:.0f} steps, "
            f"{self._choices / seeds:.0f} choices and {self._faults.total() / seeds:.1f} faults"
        )
        yield f"faults of each kind in a seed: {kinds or 'none'}"
