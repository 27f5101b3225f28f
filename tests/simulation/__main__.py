"""`make simulate`: many seeds, a sample of them twice; or print one seed's trace."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from .many import ALL_CORES, Tally, run_seeds
from .run import Outcome, simulate

SAMPLE_ONE_IN = 100
OTHER_HASH_SEED = "4711"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested seeds; 1 when a promise was broken or a history differed."""
    request = _arguments().parse_args(argv)
    if request.seed is not None:
        return _one(request.seed, with_trace=request.trace)
    if request.histories:
        for seed, outcome in run_seeds(_seeds(request), request.processes):
            print(seed, outcome.history)
        return 0
    return _many(request)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=_positive, default=10_000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--each", type=_positive, default=1, help="run every so manieth seed")
    parser.add_argument("--processes", type=_positive, default=ALL_CORES, help="all cores unless given")
    parser.add_argument("--seed", type=int, help="run this one seed alone")
    parser.add_argument("--trace", action="store_true", help="print all that happens in it")
    parser.add_argument("--histories", action="store_true", help="print the hash of each history")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _seeds(options: argparse.Namespace) -> range:
    return range(options.first, options.first + options.seeds, options.each)


def _one(seed: int, *, with_trace: bool) -> int:
    outcome = simulate(seed, trace=print if with_trace else None)
    print(
        f"seed {seed}: {outcome.jobs} jobs, {outcome.steps} steps, {sum(outcome.faults.values())} faults, "
        f"{outcome.virtual_s:.0f} s, {outcome.history}"
    )
    _tell(outcome)
    return int(bool(outcome.wrong))


def _many(options: argparse.Namespace) -> int:
    """Run all seeds. Output is deterministic, except for times on stderr."""
    start, tally = time.monotonic(), Tally()
    for count, (_, outcome) in enumerate(run_seeds(_seeds(options), options.processes), 1):
        tally.add(outcome)
        _tell(outcome)
        if count % 1_000 == 0:
            print(f"{count} seeds, {len(tally.broken)} broken", flush=True)
            print(f"{time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    print("\n".join(tally.lines()), flush=True)
    differing = _differing(options, tally.histories)
    print(f"broken seeds: {tally.broken or 'none'}; histories that differed: {differing or 'none'}")
    print(f"{time.monotonic() - start:.0f} s in {options.processes} processes", file=sys.stderr)
    return int(bool(tally.broken or differing))


def _differing(options: argparse.Namespace, histories: dict[int, str]) -> list[int]:
    """Return the seeds of a sample whose history differed after other seeds, or in a process with other hashes."""
    sample = list(histories)[::SAMPLE_ONE_IN]
    here = {seed: outcome.history for seed, outcome in run_seeds(sample[::-1], options.processes)}
    each = ["--each", str(options.each * SAMPLE_ONE_IN), "--first", str(options.first), "--seeds", str(options.seeds)]
    command = [sys.executable, "-m", "tests.simulation", "--histories", "--processes", str(options.processes), *each]
    run = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": OTHER_HASH_SEED}, stdout=subprocess.PIPE, text=True, check=True
    )
    there = {int(seed): history for seed, history in (line.split() for line in run.stdout.splitlines())}
    print(f"{len(sample)} seeds were run again: in the other order, and with other hashes")
    return [seed for seed in sample if not histories[seed] == here[seed] == there[seed]]


def _tell(outcome: Outcome) -> None:
    for wrong in outcome.wrong:
        print(f"seed {outcome.seed}, {wrong}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
