"""Faults, derived from the seed: on the way to the store and back, with processes, clocks, disks and receivers.

Each kind of fault is active in about half of all worlds, so that some worlds meet few faults and some many; one world
in eight has none. All faults end when the `Chaos` does: then everything that was promised must come true.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.kernel.errors import StoreUnavailable
from callsheet.worker.run import ends

from .process import PATIENCE, Process

if TYPE_CHECKING:
    from .world import World

CALM_ONE_IN = 8
REPEATABLE = frozenset({"settle", "heartbeat", "outbox_settle", "outbox_heartbeat"})
LATEST_S = 4.0  # so late may a call be done for a second time
USUAL_S = (0.000_2, 0.002)


class Fate(NamedTuple):
    """The fate of one call."""

    there_s: float
    back_s: float
    refusal: Exception | None = None
    loses_answer: bool = False
    again_s: float | None = None
    is_dropped_with_caller: bool = False


class Odds(NamedTuple):
    """Probabilities of faults per call, and the active major faults."""

    refused: float = 0.0
    lost: float = 0.0
    odd: float = 0.0
    again: float = 0.0
    slow: float = 0.0
    hints_lost: float = 0.0
    receiver: float = 0.0
    greater: tuple[str, ...] = ()


class Faults:
    """Decides the fate of each call. `counts` has how often each kind of fault came about."""

    def __init__(self, world: World, seed: int, odds: Odds | None = None) -> None:
        self.chance = Random(f"faults {seed}")
        self.odds = odds or (Odds() if seed % CALM_ONE_IN == 0 else _odds(self.chance))
        self.is_calm = self.odds == Odds()
        self.greater = self.odds.greater
        self.only_answers_are_lost = self.odds == Odds(lost=self.odds.lost)
        self.counts: Counter[str] = Counter()
        self._world = world

    def fate(self, process: Process, verb: str, args: Any) -> Fate:
        """Return what becomes of this call."""
        chance, odds = self.chance, self.odds
        fate = Fate(chance.uniform(*USUAL_S), chance.uniform(*USUAL_S))
        if self.is_calm:
            return fate
        if chance.random() < odds.slow:
            fate = self._slow(process, fate)
        if verb in ("door", "open", "close", "listen_for"):
            return fate
        refusal = self._refusal(process, is_flush=verb == "settle" and any(map(ends, args[0])))
        return fate._replace(
            refusal=refusal,
            loses_answer=chance.random() < odds.lost,
            again_s=chance.uniform(0.001, LATEST_S) if verb in REPEATABLE and chance.random() < odds.again else None,
            is_dropped_with_caller=chance.random() < 0.5,
        )

    def _slow(self, process: Process, fate: Fate) -> Fate:
        there_s, back_s = self.chance.uniform(0, 1.5), self.chance.uniform(0, 1.5)
        process.suffer(there_s + back_s)
        self.counts["slow"] += 1
        return fate._replace(there_s=there_s, back_s=back_s)

    def _refusal(self, process: Process, *, is_flush: bool) -> Exception | None:
        if self.chance.random() < self.odds.refused:
            process.refusals += 1
            self.counts["refused"] += 1
            if process.refusals >= PATIENCE:
                process.suffer(1.0)
            return StoreUnavailable("the store refuses for now")
        process.refusals = 0
        if is_flush and process.role == "worker" and self.chance.random() < self.odds.odd:
            process.had_odd_errors = True
            self.counts["odd"] += 1
            return RuntimeError("the driver made a mistake")
        return None

    def loses_hint(self) -> bool:
        """Return whether a hint gets lost."""
        is_lost = self.chance.random() < self.odds.hints_lost
        self.counts["hint lost"] += is_lost
        return is_lost

    def end(self) -> None:
        """Let everything work from now on."""
        self.is_calm, self.odds = True, Odds()


def _odds(chance: Random) -> Odds:
    def some(most: float) -> float:
        return chance.uniform(0.0, most) if chance.random() < 0.5 else 0.0

    kinds = ("crash", "freeze", "cut", "silence", "jump", "stop", "fill", "away")
    return Odds(
        refused=some(0.1),
        lost=some(0.1),
        odd=some(0.05),
        again=some(0.1),
        slow=some(0.02),
        hints_lost=some(1.0),
        receiver=some(0.8),
        greater=tuple(kind for kind in kinds if chance.random() < 0.5),
    )


class Chaos:
    """Causes one major fault after another until its end time."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._chance = Random(f"chaos {seed}")
        self.lasts_s = self._chance.uniform(10.0, 30.0)

    async def run(self) -> None:
        """Cause faults, then repair all of them."""
        loop, kinds = self._world.loop, self._world.faults.odds.greater
        until = loop.time() + self.lasts_s
        while loop.time() < until:
            await asyncio.sleep(self._chance.expovariate(0.5))
            if kinds and self._world.running():
                self._strike(self._chance.choice(kinds))
        self._world.faults.end()
        for process in self._world.running():
            process.cut_until, process.full_since = 0.0, None

    def _strike(self, kind: str) -> None:
        busy = self._world.journal.busy()
        hits_busy = bool(busy) and self._chance.random() < 0.5
        process = self._chance.choice(busy if hits_busy else self._world.running())
        lasts_s = self._chance.choice((0.3, 2.0, 9.0, 20.0, 20.0)) * self._chance.uniform(0.5, 1.0)
        self._world.loop.note(f"{kind} {process.name} {lasts_s:.3f};")
        self._world.faults.counts[kind] += 1
        now = self._world.loop.time()
        if kind == "jump":
            self._world.jump(min(lasts_s, 9.0))
        elif kind == "crash":
            self._world.kill(process)
        elif kind == "stop":
            self._world.stop(process)
        elif kind == "fill" and process.full_since is None:
            process.full_since = now
            self._world.loop.call_later(lasts_s, _clear, process)
        elif kind == "freeze":
            process.suffer(lasts_s)
            self._world.loop.freeze(process, now + lasts_s)
        elif kind in ("cut", "silence"):
            process.suffer(lasts_s)
            process.cut_until, process.is_silent = now + lasts_s, kind == "silence"
        elif kind == "away":
            self._world.cut_all(lasts_s, is_silent=self._chance.random() < 0.5)


def _clear(process: Process) -> None:
    process.full_since = None
