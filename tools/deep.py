"""Runs the suites that take too long for `make test` and prints one table: `make deep`.

`python -m tools.deep mutations faults` runs some of the suites; arguments after `--` go to pytest. Each suite runs as
its own `make` target does. The exit code is 1 when a suite failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
SUITES = {
    "mutations": ("-n", "4", "--dist", "worksteal", "tests/mutations"),
    "differential": ("tests/differential",),
    "faults": ("tests/faults",),
}
DID_NOT_RUN = "did not run"


class Ran(NamedTuple):
    """The outcome of one suite run; `problems` are its failed tests, or the reason why no test ran."""

    suite: str
    pass_count: int
    skip_count: int
    problems: tuple[str, ...]
    took_s: float


def main(words: Sequence[str]) -> int:
    """Run the suites that are named, else all; the exit code."""
    names, _, more = _split_words(words)
    if unknown := set(names) - set(SUITES):
        print(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}", file=sys.stderr)  # noqa: T201
        return 2
    ran = [_run(suite, more) for suite in names or SUITES]
    print(table(ran))  # noqa: T201
    return int(any(one.problems for one in ran))


def table(ran: Sequence[Ran]) -> str:
    """Return the suites as a table, and below it every test that failed."""
    rows = [("suite", "passed", "failed", "skipped", "minutes")]
    rows += [
        (one.suite, str(one.pass_count), str(len(one.problems)), str(one.skip_count), f"{one.took_s / 60:.1f}")
        for one in ran
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *(f"failed: {problem}" for one in ran for problem in one.problems)])


def read_report(suite: str, report: Path, took_s: float) -> Ran:
    """Return the outcome in a report of pytest (JUnit's XML); a missing or empty report counts as a problem."""
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []  # noqa: S314 - pytest wrote it
    failures = tuple(_name_of(case) for case in cases if {part.tag for part in case} & {"failure", "error"})
    skip_count = sum(case.find("skipped") is not None for case in cases)
    problems = failures if cases else (f"{suite} {DID_NOT_RUN}",)
    return Ran(suite, len(cases) - len(failures) - skip_count, skip_count, problems, took_s)


def _split_words(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    at = list(words).index("--") if "--" in words else len(words)
    return list(words[:at]), "--", list(words[at + 1 :])


def _run(suite: str, more: Sequence[str]) -> Ran:
    print(f"{suite} …", file=sys.stderr, flush=True)  # noqa: T201
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *SUITES[suite], *more]
        process = subprocess.run(command, cwd=ROOT, env={**os.environ, "CALLSHEET_DEEP": "1"}, check=False)  # noqa: S603
        ran = read_report(suite, report, time.monotonic() - began)
    if process.returncode and not ran.problems:  # it was stopped, or collected nothing that it was asked for
        return ran._replace(problems=(f"{suite} ended with {process.returncode}",))
    return ran


def _name_of(case: ET.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '')}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
