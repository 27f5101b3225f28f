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
    in_order = sorted(values)
    return in_order[min(len(in_order) - 1, int(share * len(in_order)))]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_ids(count: int) -> list[str]:
    """Return ids from the engine's generator; both sides get the same ids."""
    return [new_id() for _ in range(count)]


def say(text: str) -> None:
    """One line of progress."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def forget(name: str) -> None:
    """Drop what an earlier run kept, so that a section which fails leaves no old figures behind."""
    (RESULTS / f"{name}.json").unlink(missing_ok=True)


def keep(name: str, figures: Any, *, quick: bool) -> None:
    """Write a section's figures, with time and machine, to its results file."""
    RESULTS.mkdir(exist_ok=True)
    stamp = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    record = {"at": stamp, "quick": quick, "machine": machine.describe(), "measured": figures}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def all_results() -> dict[str, Any]:
    """Return the figures of all sections from their results files."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))}
