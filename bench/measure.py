"""Clocks, medians and percentiles, and the files in which a run keeps what it has measured."""

from __future__ import annotations

import datetime as dt
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import machine
from callsheet.engine.ids import new_id

PAYLOAD = '{"a":1,"b":"hello"}'
RESULT = '{"ok":true}'
WORKER = "bench-worker"
LEASE_MS = 60_000
RESULTS = Path(__file__).parent / "results"


class Spread(NamedTuple):
    """The median of some rounds, and how far they lie apart."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie: the nearest one measured, not interpolated."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_ids(count: int) -> list[str]:
    """Ids as the engine makes them; both sides get the same."""
    return [new_id() for _ in range(count)]


def say(text: str) -> None:
    """One line of progress."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def forget(name: str) -> None:
    """Drop what an earlier run kept, so that a section which fails leaves no old figures behind."""
    (RESULTS / f"{name}.json").unlink(missing_ok=True)


def keep(name: str, measured: Any, *, quick: bool) -> None:
    """Write a section's result, with when and where it was measured."""
    RESULTS.mkdir(exist_ok=True)
    stamp = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    record = {"at": stamp, "quick": quick, "machine": machine.describe(), "measured": measured}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def kept() -> dict[str, Any]:
    """All results there are, by section."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))}
