"""`python -m bench.peers [--store redis] [--peers bullmq,saq] [--scenarios drain,latency] [--quick]`.

Measures the peers beside Callsheet, writes results/peers.json and peers.png, and prints the tables. `--report` only
prints and draws existing figures. `--quick` keeps its figures and its picture apart, as results/peers-quick.*.
"""

from __future__ import annotations

import argparse
import sys

from bench.peers import catalogue, plot, report, run


def main() -> int:
    options = _options()
    if not options.report:
        run.measure(options)
    plot.draw(quick=options.quick)
    print(report.sections(quick=options.quick))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="Measure other job queues beside ours.")
    parser.add_argument("--store", choices=catalogue.STORES, help="one kind of store")
    parser.add_argument("--peers", type=_names, help="some peers, by commas; Callsheet is always measured with them")
    parser.add_argument("--scenarios", type=_names, default=list(run.SCENARIOS), help=", ".join(run.SCENARIOS))
    parser.add_argument("--count", type=int, default=20_000, help="jobs to drain in a round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the drain")
    parser.add_argument(
        "--patience", type=float, default=90.0, help="seconds that a killed worker's job may take to run again"
    )
    parser.add_argument("--quick", action="store_true", help="one round of 2,000 jobs: shows that all of it works")
    parser.add_argument("--report", action="store_true", help="measure nothing, print the tables of the last run")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(run.SCENARIOS):
        parser.error(f"no scenario is called {', '.join(sorted(unknown))}")
    return options


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    sys.exit(main())
