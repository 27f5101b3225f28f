"""Measure: each scenario for each peer, in turns with Callsheet, each run in an empty database of its own."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from bench.measure import keep, say
from bench.peers import catalogue, environment, report
from bench.peers.catalogue import Entry
from bench.peers.ground import Ground
from bench.peers.program import Failed, figures

SCENARIOS = ("drain", "single", "latency", "steady", "decay", "kill", "zombie")
QUICK_COUNT = 2000
SINGLES = 300
TURNS = 5
Record = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    count: int
    rounds: int
    patience: float
    quick: bool

    def jobs(self, entry: Entry) -> int:
        """How many jobs this peer drains."""
        return min(self.count, entry.count or self.count)


class Scenario(NamedTuple):
    """A scenario of the drivers, with its number of rounds."""

    driver: str
    options: Callable[[Plan, Entry], dict[str, object]]
    rounds: Callable[[Plan], int]
    limit_s: Callable[[Plan], float]


def _fills(plan: Plan, entry: Entry) -> int:
    """How often a store is filled and drained in one life: ours for longer, to see whether it slows down."""
    if plan.quick:
        return 3
    return 50 if entry.name == catalogue.OURS and entry.store == "postgres" else 5


def _once(_: Plan) -> int:
    return 1


def _thrice(plan: Plan) -> int:
    return min(3, plan.rounds)


STEPS = {
    "drain": Scenario(
        "drain",
        lambda plan, entry: {"count": plan.jobs(entry), "singles": 0},
        lambda plan: plan.rounds,
        lambda _: 300.0,
    ),
    "single": Scenario("drain", lambda _, __: {"count": 1000, "singles": SINGLES}, _once, lambda _: 120.0),
    "latency": Scenario("latency", lambda _, __: {"count": 200}, _thrice, lambda _: 120.0),
    "steady": Scenario(
        "steady", lambda plan, _: {"rate": 300, "seconds": 3 if plan.quick else 10}, _thrice, lambda _: 150.0
    ),
    "decay": Scenario(
        "drain",
        lambda plan, entry: {"count": plan.jobs(entry), "singles": 0, "rounds": _fills(plan, entry)},
        _once,
        lambda _: 600.0,
    ),
    "kill": Scenario("kill", lambda plan, _: {"patience": plan.patience}, _once, lambda plan: plan.patience + 120),
    "zombie": Scenario(
        "zombie", lambda plan, _: {"patience": plan.patience}, _once, lambda plan: 2 * plan.patience + 240
    ),
}


class Results:
    """The figures so far, written to disk after each step and merged into an earlier run's.

    Quick figures have their own file.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._servers: dict[str, str] = {}
        self.peers: dict[str, Record] = {}
        path = report.source(quick=plan.quick)
        if path.exists():
            figures_before = json.loads(path.read_text("utf-8"))["measured"]
            self.peers, self._servers = figures_before["peers"], figures_before["servers"]

    def of(self, entry: Entry) -> Record:
        """Return the record of one peer, with its current settings."""
        record = self.peers.setdefault(entry.key, {})
        record |= {"name": entry.name, "store": entry.store, "mode": entry.mode, "recovery": entry.recovery}
        return record

    def keep(self, ground: Ground) -> None:
        self._servers |= ground.versions()
        keep(
            report.source(quick=self._plan.quick).stem,
            {"servers": self._servers, "plan": asdict(self._plan), "peers": self.peers},
            quick=self._plan.quick,
        )


def measure(options: argparse.Namespace) -> Results:
    """Run the chosen scenarios; the results record a failed peer, and other peers continue."""
    plan = Plan(
        QUICK_COUNT if options.quick else options.count,
        1 if options.quick else options.rounds,
        options.patience,
        options.quick,
    )
    entries = catalogue.choose(options.store, options.peers)
    results = Results(plan)
    with Ground() as ground:
        runnable = [entry for entry in entries if _is_ready(entry, results)]
        for store in catalogue.STORES:
            here = [entry for entry in runnable if entry.store == store]
            for name in options.scenarios if here else ():
                _take_turns(name, here, plan, ground, results)
        results.keep(ground)
    return results


def _is_ready(entry: Entry, results: Results) -> bool:
    """Return whether the peer's environment exists, building a missing one."""
    record = results.of(entry)
    record.pop("not_run", None)
    try:
        if entry.environment:
            environment.build(entry.environment)
    except environment.NotHere as error:
        record["not_run"] = str(error)
        say(f"{entry.key}: not run: {error}")
        return False
    return True


def _take_turns(name: str, entries: list[Entry], plan: Plan, ground: Ground, results: Results) -> None:
    """Run all rounds of a scenario; each round runs every peer once and begins with another peer."""
    step = STEPS[name]
    for entry in entries:
        results.of(entry)[name] = []
    for number in range(step.rounds(plan)):
        turn = number % len(entries)
        for entry in entries[turn:] + entries[:turn]:
            began = time.monotonic()
            figures_now = _measure_step(step, entry, plan, ground)
            record = results.of(entry)
            record[name].append(figures_now)
            record.setdefault("versions", {}).update(figures_now.pop("versions", {}))
            say(f"{name} {number + 1}  {entry.key:24} {_summary(figures_now)}  ({time.monotonic() - began:.0f} s)")
            results.keep(ground)


def _measure_step(step: Scenario, entry: Entry, plan: Plan, ground: Ground) -> Record:
    options = step.options(plan, entry)
    with ground.fresh(entry.ground) as url:
        before = ground.row_counts(entry.ground, url)
        try:
            record = figures(entry, step.driver, url, options, limit_s=step.limit_s(plan))
            after = ground.row_counts(entry.ground, url)
            if "rounds" in options and not plan.quick:
                record |= _aged_beside_fresh(entry, plan, url)
        except Failed as error:
            return {"not_run": str(error)}
    jobs = record.get("count", 0) * int(str(options.get("rounds", 1)))
    if step.driver == "drain" and jobs and not options["singles"]:
        record["server_per_job"] = {what: round((after[what] - before[what]) / jobs, 3) for what in after}
    return record


def _aged_beside_fresh(entry: Entry, plan: Plan, aged: str) -> Record:
    """Drain the old database and a new one in turns, so that other load on the machine slows both."""
    once: dict[str, object] = {"count": plan.jobs(entry), "singles": 0}

    def drain_once(url: str) -> float:
        return float(figures(entry, "drain", url, once, limit_s=120.0)["drain_per_s"][0])

    pairs = []
    with Ground() as new:
        for _ in range(TURNS):
            with new.fresh(entry.ground) as empty:
                pairs.append((drain_once(aged), drain_once(empty)))
    return {"aged_per_s": [a for a, _ in pairs], "fresh_per_s": [b for _, b in pairs]}


def _summary(record: Record) -> str:
    figures_shown = {
        name: value for name, value in record.items() if name not in ("scenario", "count", "why", "why_running")
    }
    return "  ".join(f"{name} {value}" for name, value in figures_shown.items())
