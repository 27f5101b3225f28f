"""`python -m tests.storm`: run a storm on each store, or check an existing history: `… check FOLDER`.

`--without "fence of settle"` makes it on a copy of the program that lacks this guard, and fails if nobody notices.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests import binaries
from tests.storm.checker import Violation, check
from tests.storm.ending import NET_S
from tests.storm.history import FOLDER, History
from tests.storm.plan import STORES, Plan, long_plan
from tests.storm.run import storm
from tests.storm.without import GUARDS, storm_without

COLUMNS = (
    "jobs", "kill", "freeze", "zombie", "heir", "cut", "lost", "hole", "slow", "restart", "disk", "deaf", "clock",
    "missed", "violations",
)  # fmt: skip
SHOWN = 20


def main() -> int:
    """Return 1 when a rule was broken."""
    options = _parser().parse_args()
    if options.verb == "check":
        return _tell_violations(check(History.read(Path(options.history))))
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    if options.without:
        return _tell_without(options, ["--seed", str(seed), "--minutes", str(options.minutes)])
    library = None if options.no_clock else binaries.faketime_library()
    if library is None and not options.no_clock:
        print("without libfaketime, which cannot be had here, no clock but that of SQLite is stepped")
    plans = [_plan(seed, store, options, library) for store in options.store or STORES]
    if options.plan:
        print("\n".join(map(str, plans)))
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background SIGINT is ignored; nothing may be left behind
        signal.signal(number, signal.default_int_handler)
    root = Path(options.folder or tempfile.mkdtemp(prefix="storm-"))
    rows = {plan.store: _one(plan, root / plan.store, library, options.patience) for plan in plans}
    _tell_table(rows)
    stores = " ".join(f"--store {plan.store}" for plan in plans) + (" --no-clock" if options.no_clock else "")
    again = f"--seed {seed} --minutes {options.minutes:g} {stores}"
    print(f"\nhistories are in {root}; the same again: make storm ARGS='{again}'")
    return int(any(row["violations"] for row in rows.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("verb", nargs="?", choices=["run", "check"], default="run")
    parser.add_argument("history", nargs="?", help="with check: the folder of one history")
    parser.add_argument("--folder", help="where the histories are to be; a new one unless given")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, on each store")
    parser.add_argument("--store", action="append", choices=STORES, help="only on this store; may be given again")
    parser.add_argument("--seed", type=int, help="the faults and orders of this seed")
    parser.add_argument("--plan", action="store_true", help="print the plan and do nothing")
    parser.add_argument("--no-clock", action="store_true", help="leave the store's clock alone")
    parser.add_argument("--patience", type=float, default=NET_S, help="seconds without progress that end a wait")
    parser.add_argument("--without", choices=GUARDS, help="take this guard out of a copy; a storm must notice")
    return parser


def _plan(seed: int, store: str, options: argparse.Namespace, library: Path | None) -> Plan:
    clock = not options.no_clock and (store == "sqlite" or library is not None)
    return long_plan(seed, store, options.minutes, clock=clock)


def _one(plan: Plan, folder: Path, library: Path | None, patience_s: float) -> dict[str, int]:
    """Make one storm and check its history; return a row of the table."""
    folder.mkdir(parents=True)
    os.environ[FOLDER] = str(folder)
    began_at = time.monotonic()
    print(f"\n{plan.store}: seed {plan.seed}, {len(plan.faults)} faults in {plan.seconds / 60:g} minutes", flush=True)
    result = storm(plan, folder, lambda line: _tell_line(plan.store, line), library=library, patience_s=patience_s)
    counts = asyncio.run(result)
    history = History.read(folder)
    violations = check(history)
    _tell_violations(violations)
    print(f"{plan.store}: over after {time.monotonic() - began_at:.0f} s")
    return {**counts, "jobs": len(history.jobs), "violations": len(violations)}


def _tell_line(store: str, line: str) -> None:
    print(f"{store:8} {line}", flush=True)


def _tell_without(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run a storm without a guard, per store; return 1 if no rule noticed one."""
    names = {store: storm_without(options.without, store, arguments) for store in options.store or STORES}
    for store, noticed in names.items():
        print(f"{store} without {options.without!r}: {'noticed' if noticed else 'NOT NOTICED'}")
    return int(not all(names.values()))


def _tell_violations(violations: list[Violation]) -> int:
    for violation in violations[:SHOWN]:
        print(f"  VIOLATION {violation.rule}: {violation.what}")
    if len(violations) > SHOWN:
        print(f"  … and {len(violations) - SHOWN} more")
    print(f"{len(violations)} violations")
    return int(bool(violations))


def _tell_table(rows: dict[str, dict[str, int]]) -> None:
    print("\n" + "".join(f"{name:>8}" for name in ("store", *(name[:7] for name in COLUMNS))))
    for store, row in rows.items():
        print(f"{store:>8}" + "".join(f"{row.get(name, 0):>8}" for name in COLUMNS))


if __name__ == "__main__":
    sys.exit(main())
