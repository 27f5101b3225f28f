"""A storm's plan: which faults come when. The seed alone determines it, before the start.

In a storm of some minutes `at` is a number of seconds; a short storm counts finished functions instead of seconds, so
that slow machines meet equal faults at equal progress.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from tests.storm.orders import LONG_MS, LONGEST_MS

Unit = Literal["seconds", "jobs"]
Card = tuple[str, str]  # a kind of fault, and what it happens to
STORES = ("sqlite", "postgres", "redis")
EVERY_S = 1.6  # between two faults, on average
CALM_S = 10.0  # without new faults, at the beginning and at the end
# What a deck of faults holds: a kind, what it happens to, and how often. In 3 minutes it is dealt two or three times.
DECK = (
    ("kill", "worker", 3), ("kill", "remote", 2), ("kill", "server", 2), ("kill", "people", 1),
    ("zombie", "worker", 5), ("zombie", "remote", 3), ("zombie", "silence", 3), ("heir", "worker", 2),
    ("freeze", "server", 2), ("freeze", "worker", 1), ("freeze", "people", 1),
    ("cut", "store", 2), ("cut", "server", 2), ("cut", "s3", 2),
    ("hole", "store", 1), ("hole", "server", 1), ("hole", "s3", 1),
    ("lost", "store", 4), ("lost", "server", 3), ("lost", "s3", 1),
    ("slow", "server", 1), ("slow", "store", 1),
    ("restart", "store", 2), ("restart", "s3", 1), ("clock", "store", 2),
    ("disk", "workers", 2), ("deaf", "receiver", 2),
)  # fmt: skip
LAST_ACT = ("zombie", "zombie", "zombie", "zombie", "heir", "heir")


class Fault(NamedTuple):
    """One fault: it lasts some seconds, starting at `at`. `size` is the delay of a slow line or the step of a clock."""

    at: float
    kind: str
    target: str
    lasts_s: float = 0.0
    size: float = 0.0

    def __str__(self) -> str:
        size = f" by {self.size:g}" if self.size else ""
        return f"{self.at:8.1f}  {self.kind:8} {self.target:18} for {self.lasts_s:4.1f} s{size}"


@dataclass(frozen=True)
class Crew:
    """How many processes of each kind take part."""

    servers: int = 2
    workers: int = 3
    remotes: int = 2

    @property
    def parts(self) -> dict[str, list[str]]:
        """The names of the processes by kind."""
        counts = {"server": self.servers, "worker": self.workers, "remote": self.remotes}
        ids_of_kind = {kind: [f"{kind}-{n}" for n in range(count)] for kind, count in counts.items()}
        return {**ids_of_kind, "people": ["http-producer", "python-producer", "watcher"]}

    def lines(self, store: str) -> dict[str, list[str]]:
        """Return the names of connections that faults can cut, by target."""
        parts = self.parts
        users = [*parts["server"], *parts["worker"], "python-producer"]
        return {
            "store": [f"{name}>store" for name in users] if store != "sqlite" else [],
            "server": [f"{name}>server" for name in parts["remote"]] + [f"people>{name}" for name in parts["server"]],
            "s3": ["worker>s3"],
        }


@dataclass(frozen=True)
class Plan:
    """A seed and its derived plan. `jobs` limits each producer's orders; None: by default until the time is over.

    Faults of `last_act` follow sequentially after all others, without later kills: what a zombie keeps then is kept for
    ever.
    """

    seed: int
    store: str
    unit: Unit
    seconds: float
    jobs: int | None
    clock: bool
    crew: Crew
    faults: tuple[Fault, ...]
    last_act: tuple[Fault, ...] = ()

    @property
    def longest_ms(self) -> int:
        """How long the longest work takes: in a short storm just long enough for a zombie."""
        return LONGEST_MS if self.unit == "seconds" else LONG_MS + 500

    @property
    def held_s(self) -> float:
        """How long is waited for a worker to hold some work; a longer one is killed anyway."""
        return 8.0 if self.unit == "seconds" else 1.0

    def told(self) -> dict[str, Any]:
        """Return the plan as the history keeps it."""
        return {**asdict(self), "faults": [fault._asdict() for fault in (*self.faults, *self.last_act)]}

    def __str__(self) -> str:
        head = f"seed {self.seed} on {self.store}: {len(self.faults)} faults, by {self.unit}"
        return "\n".join([head, *map(str, (*self.faults, *self.last_act))])


def long_plan(seed: int, store: str, minutes: float, *, clock: bool = False) -> Plan:
    """Return a plan of random faults for so many minutes. Each kind comes as often as its share of the deck says."""
    seconds, crew, chance = minutes * 60, Crew(), random.Random(f"{seed}:{store}")
    hand = _deal(chance, store, clock=clock)
    faults = [_fault(chance, at, next(hand), crew.lines(store), crew) for at in _moments(chance, seconds)]
    last_act = tuple(Fault(seconds, kind, "any", 0.5) for kind in LAST_ACT)
    return Plan(seed, store, "seconds", seconds, None, clock, crew, tuple(faults), last_act)


def _deal(chance: random.Random, store: str, *, clock: bool) -> Iterator[Card]:
    """Give kinds of faults and what they happen to, one shuffled deck after another."""
    deck = [(kind, group) for kind, group, times in DECK for _ in range(times)]
    if store == "sqlite":
        deck = [card for card in deck if card[0] == "clock" or card[1] != "store"]
    while True:
        yield from chance.sample([card for card in deck if clock or card[0] != "clock"], len(deck) - 2 * (not clock))


def short_plan(seed: int, store: str, jobs: int) -> Plan:
    """Return a plan with one fault of each kind, in an order that the seed chooses, while `jobs` are asked for."""
    crew, chance = Crew(servers=1, workers=2, remotes=1), random.Random(f"{seed}:{store}")
    kinds = [
        ("kill", "worker-0", 0.0),
        ("kill", "remote-0", 0.0),
        ("cut", "worker>s3", 0.5),
        ("lost", "people>server-0", 0.0),
        ("lost", "remote-0>server", 0.0),
        ("disk", "workers", 0.5),
    ]
    if store != "sqlite":
        kinds += [("restart", "store", 0.1), ("lost", "worker-1>store", 0.0)]
    chance.shuffle(kinds)
    # A zombie first, while there is the most work; then the server, which takes the longest to come back.
    kinds[:0] = [("zombie", "worker-1", 0.0), ("kill", "server-0", 0.0)]
    step = 2 * jobs * 0.7 / len(kinds)
    faults = tuple(Fault(round((n + 1) * step), *kind, size=_size(kind[0])) for n, kind in enumerate(kinds))
    return Plan(seed, store, "jobs", 0.0, jobs, clock=False, crew=crew, faults=faults)


def _moments(chance: random.Random, seconds: float) -> Iterator[float]:
    at = min(CALM_S, seconds / 5) + chance.expovariate(1 / EVERY_S)
    while at < seconds - min(CALM_S, seconds / 5):
        yield round(at, 1)
        at += chance.expovariate(1 / EVERY_S)


def _fault(chance: random.Random, at: float, card: Card, lines: dict[str, list[str]], crew: Crew) -> Fault:
    """Return one fault of a kind; chance picks its target and duration."""
    kind, _ = card
    size = round(chance.choice((-1, 1)) * chance.uniform(1, 40), 1) if kind == "clock" else _size(kind)
    return Fault(at, kind, _target(chance, card, lines, crew), round(_lasts_s(chance, card), 1), size)


def _lasts_s(chance: random.Random, card: Card) -> float:
    """Return how long a fault lasts. Most silences outlive a lease of 3 s; a zombie's duration ends with an event.

    A storage is away for longer than its client tries again by itself, and a full disk until somebody writes to it.
    """
    kind, group = card
    if kind in ("zombie", "lost"):
        return 0.0
    if group == "s3":
        return chance.uniform(4.0, 8.0)
    if kind == "disk":
        return chance.uniform(2.0, 4.0)
    if kind in ("freeze", "hole") and chance.random() < 0.5:
        return chance.uniform(4.0, 7.0)
    return min(chance.expovariate(1 / 1.5) + 0.1, 10.0)


def _target(chance: random.Random, card: Card, lines: dict[str, list[str]], crew: Crew) -> str:
    kind, group = card
    if group == "silence":
        of_workers = [name for some in lines.values() for name in some if name.startswith(("worker-", "remote-"))]
        return chance.choice(of_workers)
    if kind in ("cut", "hole", "slow", "lost"):
        return "all>store" if group == "store" and chance.random() < 0.2 else chance.choice(lines[group])
    return chance.choice(crew.parts.get(group, [group]))


def _size(kind: str) -> float:
    return 150.0 if kind == "slow" else 0.0  # milliseconds for each piece
