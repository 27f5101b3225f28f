"""The processor time of a drained no-op job, compared with another checkout: `python -m bench --base FOLDER`.

Both sides run in turns, each drain in a fresh process on a fresh store, with the interpreter and the packages of this
checkout; only Callsheet's own code differs. Processor time of the worker's process is measured, not the clock: a busy
machine changes it little. A drain that did not call its function once for each job stops the bench.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import Spread, keep, say
from bench.places import fresh, server_versions
from bench.side import JobsMissing

JOBS, PAIRS = 20_000, 20
QUICK_JOBS, QUICK_PAIRS = 5_000, 4
HERE = Path(__file__).parents[1]
SIDE = Path(__file__).with_name("drain_side.py")


class OtherCode(Exception):
    """A side ran code of another folder than the one that was to be measured."""


async def measure(kind: str, *, base: Path, quick: bool) -> None:
    """Drain in turns and keep the medians; the side that goes first alternates."""
    jobs, pairs = (QUICK_JOBS, QUICK_PAIRS) if quick else (JOBS, PAIRS)
    sides = {"base": base, "here": HERE}
    costs: dict[str, list[float]] = {side: [] for side in sides}
    for pair in range(pairs):
        for side in sides if pair % 2 else reversed(sides):
            async with fresh(kind) as url:
                costs[side].append(_drain(sides[side], url, jobs))
    ratios = [base_us / here_us for base_us, here_us in zip(costs["base"], costs["here"], strict=True)]
    facts: dict[str, Any] = {
        "jobs": jobs,
        "pairs": pairs,
        "commit": _commit_of(base),
        "us_per_job": {side: Spread.of(values)._asdict() for side, values in costs.items()},
        "ratio": {**Spread.of(ratios)._asdict(), "quartiles": statistics.quantiles(ratios, n=4)},
        "servers": await server_versions(),
    }
    say(
        f"drain_pairs {kind}: base {facts['us_per_job']['base']['median']:.2f} µs a job, "
        f"here {facts['us_per_job']['here']['median']:.2f} µs; base / here {facts['ratio']['median']:.3f} "
        f"(quartiles {facts['ratio']['quartiles'][0]:.3f} to {facts['ratio']['quartiles'][2]:.3f}, {pairs} pairs)"
    )
    keep(f"drain_pairs-{kind}", facts, quick=quick)


def _drain(checkout: Path, url: str, jobs: int) -> float:
    """Drain in a separate process; return the processor time of one job in µs."""
    command = [sys.executable, "-P", str(SIDE), url, str(jobs)]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONHASHSEED": "0"}
    answer = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    if Path(answer["package"]).resolve() != checkout.resolve():
        raise OtherCode(f"{answer['package']} was measured instead of {checkout}")
    if (answer["calls"], answer["left"]) != (jobs, 0):
        raise JobsMissing(f"{answer['calls']} of {jobs} jobs ran, {answer['left']} are left")
    return float(answer["cpu_s"]) * 1e6 / jobs


def _commit_of(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def sections(records: dict[str, dict[str, Any]], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the texts for RESULTS.md, from the records by kind of store."""
    figures = {kind: record["measured"] for kind, record in records.items()}
    rows = [
        (
            kind,
            *(f"{drain['us_per_job'][side]['median']:.2f} µs" for side in ("base", "here")),
            f"{drain['ratio']['median']:.3f}",
            " to ".join(f"{drain['ratio']['quartiles'][quartile]:.3f}" for quartile in (0, 2)),
            f"{drain['pairs']} × {drain['jobs']:,}",
            drain["commit"],
        )
        for kind, drain in figures.items()
    ]
    text = (
        "No-op jobs, 100 at once, by one worker; each drain in a fresh process, in turns with an older commit. Medians of "
        "the processor time of the worker's process; above 1 this checkout is cheaper."
    )
    return [
        text,
        table(("store", "base", "this checkout", "base / this", "quartiles", "pairs × jobs", "base is"), rows),
    ]
