"""Runs one seed from start to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from unittest.mock import patch

from callsheet.worker import current, shift
from callsheet.worker.disk import DiskRoom

from .checks import Checks
from .faults import Odds
from .loop import SimLoop, Stuck
from .parts import usage_of_disk
from .seeding import seeded
from .world import World


class Outcome(NamedTuple):
    """The outcome of a seed. `history` is the hash over every choice and every call of the store.

    `choices` counts moments with several possible next steps, and `faults` counts faults by kind.
    """

    seed: int
    history: str
    wrong: tuple[str, ...]
    steps: int
    choices: int
    virtual_s: float
    jobs: int
    faults: Mapping[str, int]


def simulate(seed: int, trace: Callable[[str], None] | None = None, odds: Odds | None = None) -> Outcome:
    """Run one seed and check what it left behind. The seed says how much goes wrong, unless `odds` are given."""
    loop = SimLoop(seed, shuffles=seed % 2 == 1, trace=trace)
    workers = current._workers
    with (
        seeded(loop, seed) as clock,
        patch.object(shift, "DiskRoom", lambda folder: DiskRoom(folder, usage_of_disk)),
    ):
        world = World(seed, loop, clock, odds)
        try:
            loop.run(world.run())
        except Stuck as error:
            world.found(str(error))
        Checks(world).run()
        jobs = len(world.jobs())
        world.store.db.close()
    current._workers = workers
    wrong, faults = tuple(world.faulty), +world.faults.counts
    return Outcome(seed, loop.history(), wrong, loop.steps, loop.choices, loop.time(), jobs, faults)
