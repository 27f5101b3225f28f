"""The producers' orders: the seed determines a producer's n-th order, so it can be repeated."""

from __future__ import annotations

import random
import uuid
from typing import Any, NamedTuple

REQUESTER = "storm"
SPACE = uuid.UUID("b3f4c0de-57a2-4a55-8a3c-1d6a1f0c5a11")
KEYS = 4
LIMIT = 2  # of jobs that run at once with the same key
LONG_MS = 2_000
LONGEST_MS = 7_000
LONG_SHARE = 0.35


class Order(NamedTuple):
    """An order for one job.

    `expects`: its permitted outcomes. `fields`: the keywords of a NewJob beside its payload.
    """

    key: str
    task: str
    payload: dict[str, Any]
    expects: tuple[str, ...] = ("succeeded",)
    fields: dict[str, Any] = {}  # noqa: RUF012 - never changed
    act: str = ""

    @property
    def job_id(self) -> str:
        """The id that the job gets where the producer chooses it."""
        return id_of(self.key)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the order's facts for the history."""
        return {"key": self.key, "task": self.task, "expects": list(self.expects), "act": self.act, **self.fields}


def id_of(key: str) -> str:
    """Return the id of the job with a key."""
    return str(uuid.uuid5(SPACE, key))


def http_orders(seed: int, n: int, longest_ms: int = LONGEST_MS) -> list[Order]:
    """Return the n-th order of the producer that has nothing but HTTP."""
    chance, key = random.Random(f"{seed}:http:{n}"), f"http {seed} {n}"
    ms = _work_ms(chance, longest_ms)
    match chance.randrange(12):
        case 0:
            return [Order(key, "doomed", {"mark": key}, ("failed",))]
        case 1:
            return [Order(key, "count", _count(key, n, ms), ("succeeded", "canceled"), act="cancel")]
        case 2 | 3:
            return [Order(key, "grind", {"mark": key, "ms": ms})]
        case 4:
            return [Order(key, "count", _count(key, n, ms, fails=1))]
        case 5:
            return [Order(key, "count", _count(key, n, ms), act="again")]
        case 6:
            return [Order(key, "vigil", {"mark": key, "ms": 3_000})]
    return [Order(key, "count", _count(key, n, ms))]


def python_orders(seed: int, n: int, hook: str, longest_ms: int = LONGEST_MS) -> list[Order]:
    """Return the n-th orders of the producer that uses the library; they are enqueued together."""
    chance, key = random.Random(f"{seed}:python:{n}"), f"python {seed} {n}"
    ms = _work_ms(chance, longest_ms)
    name = f"key {chance.randrange(KEYS)}"
    match chance.randrange(14):
        case 0 | 1:
            return [Order(key, "keyed", {"mark": key, "ms": ms}, fields={"unique_key": f"unique {name}"})]
        case 2 | 3:
            fields = {"concurrency_key": f"limited {name}", "concurrency_limit": LIMIT}
            return [Order(key, "keyed", {"mark": key, "ms": ms}, fields=fields)]
        case 4 | 5:
            return _family(chance, key, ms)
        case 6 | 7 | 8:
            payload = {"mark": key, "status_webhook_url": hook, "metadata": {"mark": key}, "ms": ms}
            fails = int(chance.random() < 0.2)
            return [Order(key, "film", {**payload, "fails": fails})]
        case 9:
            return [Order(key, "count", _count(key, n, ms), fields={"delay_ms": chance.randrange(2_000)})]
        case 10:
            return [Order(key, "tick", {"mark": key}, act="schedule")]
        case 11 | 12:
            return [Order(key, "vigil", {"mark": key, "ms": 3_000}, fields={"priority": 1})]
    return [Order(key, "count", _count(key, n, ms, fails=chance.randrange(2)))]


def _family(chance: random.Random, key: str, ms: int) -> list[Order]:
    """Return one or two parents and a dependent child."""
    well = chance.random() < 0.6
    runs = chance.random() < 0.5
    first = Order(f"{key} a", "keyed", {"mark": f"{key} a", "ms": ms})
    second = Order(f"{key} b", "doomed", {"mark": f"{key} b"}, ("failed",))
    parents = [first] if well else [first, second]
    fields = {"depends_on": [parent.job_id for parent in parents], "on_dependency_failure": "run" if runs else "cancel"}
    expects = ("succeeded",) if well or runs else ("canceled",)
    return [*parents, Order(f"{key} c", "keyed", {"mark": f"{key} c", "ms": 10}, expects, fields)]


def _count(key: str, n: int, ms: int, fails: int = 0) -> dict[str, Any]:
    return {"mark": key, "n": n, "ms": ms, "fails": fails}


def _work_ms(chance: random.Random, longest_ms: int) -> int:
    """Return how long the work takes: mostly a moment, but so often long that workers always hold some of it."""
    return chance.randrange(LONG_MS, longest_ms) if chance.random() < LONG_SHARE else chance.randrange(150)
