"""bench/peers.png: what each queue drains, and how soon an idle worker picks a job up, Callsheet in colour.

matplotlib draws it in a separate environment: `drawing.py` runs there and gets the numbers as JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from typing import Any

from bench.measure import say
from bench.peers import environment, report
from bench.peers.catalogue import ENTRIES, OURS, STORES, TITLES

FOLDER = environment.HERE.parent


def draw(*, quick: bool = False) -> None:
    """Draw bench/peers.png, or print why matplotlib is not available. A quick run is drawn beside its own figures."""
    target = report.source(quick=True).with_suffix(".png") if quick else FOLDER / "peers.png"
    panels = [_panel(store, report.load(quick=quick)) for store in STORES]
    if not any(panel["bars"] for panel in panels):
        say("no picture: nothing was drained")
        return
    try:
        python = environment.build("plot")
    except environment.NotHere as error:
        say(f"no picture: {error}")
        return
    process = subprocess.run(
        [str(python), str(environment.HERE / "drawing.py"), str(target)],
        input=json.dumps(panels),
        check=False,
        capture_output=True,
        text=True,
    )
    say(f"{target.name} written" if process.returncode == 0 else f"no picture: {process.stderr.strip()[-300:]}")


def _panel(store: str, peers: dict[str, Any]) -> dict[str, Any]:
    bars, waits = [], []
    for entry in ENTRIES:
        record = peers.get(entry.key, {})
        if entry.store != store:
            continue
        label = {"name": entry.name, "ours": entry.name == OURS}
        if rounds := report.good(record, "drain"):
            bars.append({**label, "value": statistics.median(round_["drain_per_s"][0] for round_ in rounds)})
        if idle := report.good(record, "latency"):
            p50, p99 = (statistics.median(once[which] for once in idle) for which in ("p50_ms", "p99_ms"))
            waits.append({**label, "p50": p50, "p99": p99})
    return {
        "title": TITLES[store],
        "bars": sorted(bars, key=lambda bar: -bar["value"]),
        "waits": sorted(waits, key=lambda wait: wait["p50"]),
    }
