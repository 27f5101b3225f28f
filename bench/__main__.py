"""`python -m bench [store flat held_xmin cost http media peers report] [--only redis] [--quick]`: measure, then write RESULTS.md.

`python -m bench --base FOLDER` compares the cost of a drained job with another checkout instead.
`python -m bench studio --soak 60` keeps the studio open for an hour instead, and samples its memory.

A section that fails is reported at once, leaves no figures, and makes the exit code 1; the others still run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import uvloop

from bench import (
    compose,
    cost,
    drain_pairs,
    flat,
    held_xmin,
    large,
    live,
    media,
    ocr,
    pipeline,
    places,
    report,
    sampling,
    search,
    store,
    studio,
    studio_soak,
    truth,
)
from bench.control_plane import run as workers
from bench.http import run as http
from bench.measure import forget, say
from bench.outbox import run as outbox


class Measure(Protocol):
    """Measure one kind of store and keep the result."""

    def __call__(self, kind: str, *, quick: bool) -> Awaitable[None]: ...


class Section(NamedTuple):
    """The function that measures one section, and the stores or programs that it measures."""

    measure: Measure
    kinds: tuple[str, ...]


KINDS = ("sqlite", "postgres", "redis")
PEERS = "peers"
SECTIONS = {
    "store": Section(store.measure, KINDS),
    "flat": Section(flat.measure, ("sqlite", "postgres")),
    "cost": Section(cost.measure, KINDS),
    "held_xmin": Section(held_xmin.measure, ("postgres",)),
    "http": Section(http.measure, KINDS),
    "live": Section(live.measure, KINDS),
    "compose": Section(compose.measure, ("ffmpeg",)),
    "workers": Section(workers.measure, ("sqlite", "postgres")),
    "media": Section(media.measure, ("ffmpeg",)),
    "ocr": Section(ocr.measure, ("tesseract",)),
    "large": Section(large.measure, ("s3",)),
    "sampling": Section(sampling.measure, ("ffmpeg",)),
    "truth": Section(truth.measure, ("tesseract",)),
    "pipeline": Section(pipeline.measure, ("sqlite",)),
    "search": Section(search.measure, ("sqlite", "postgres")),
    "studio": Section(studio.measure, KINDS),
    "outbox": Section(outbox.measure, KINDS),
}


def main() -> int:
    options = _options()
    if options.soak:
        return _soak(options.soak)
    if options.base:
        return _compare(options.base, options.only, quick=options.quick)
    names = options.names or [*SECTIONS, PEERS]
    began = time.perf_counter()
    chosen_runs = [
        (name, kind)
        for name, section in SECTIONS.items()
        for kind in section.kinds
        if name in names and options.only in (None, kind)
    ]
    if not chosen_runs and PEERS not in names and names != ["report"]:
        sys.exit(f"{', '.join(names)} has nothing to measure on {options.only}")
    try:
        failures = [f"{name} {kind}" for name, kind in chosen_runs if not _run(name, kind, quick=options.quick)]
    finally:
        places.stop()
    if PEERS in names and not _run_peers(options.only, quick=options.quick):
        failures.append(PEERS)
    report.write()
    say(f"RESULTS.md written, {time.perf_counter() - began:.0f} s in all")
    if failures:
        say(f"FAILED: {', '.join(failures)}")
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the stores on this machine.")
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"{', '.join(SECTIONS)}, {PEERS}, report; all when none is given"
    )
    parser.add_argument("--only", choices=KINDS, help="one kind of store")
    parser.add_argument("--quick", action="store_true", help="small sizes: some minutes in all")
    parser.add_argument("--soak", type=int, metavar="MINUTES", help="only: the studio's pages open for so long")
    parser.add_argument(
        "--base", type=Path, metavar="FOLDER", help="only: the cost of a drained job here and in the checkout FOLDER"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - {*SECTIONS, PEERS, "report"}:
        parser.error(f"no bench is called {', '.join(sorted(unknown))}")
    return options


def _soak(minutes: int) -> int:
    """The studio's hour, apart from all else; its samples so far are kept when it fails."""
    try:
        uvloop.run(studio_soak.soak(minutes))
    finally:
        places.stop()
        report.write()
    return 0


def _compare(base: Path, only: str | None, *, quick: bool) -> int:
    """Compare drains with another checkout, on each kind of store or on one."""
    try:
        for kind in KINDS if only is None else (only,):
            uvloop.run(drain_pairs.measure(kind, base=base.resolve(), quick=quick))
    finally:
        places.stop()
        report.write()
    return 0


def _run_peers(only: str | None, *, quick: bool) -> bool:
    """Measure other queues beside ours, in a process of its own; False when that failed."""
    command = [sys.executable, "-m", "bench.peers"]
    command += ["--store", only] if only else []
    command += ["--quick"] if quick else []
    say("peers: each in an environment of its own, in turns with Callsheet")
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0


def _run(name: str, kind: str, *, quick: bool) -> bool:
    """Run one section; False when it failed."""
    say(f"— {name}, {kind}")
    forget(f"{name}-{kind}")
    try:
        uvloop.run(_call(lambda: SECTIONS[name].measure(kind, quick=quick)))
    except Exception:  # noqa: BLE001 - told, and the other sections still run
        traceback.print_exc()
        say(f"FAILED: {name}, {kind}")
        return False
    return True


async def _call(work: Callable[[], Awaitable[None]]) -> None:
    await work()


if __name__ == "__main__":
    sys.exit(main())
