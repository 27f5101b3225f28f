"""Storms on a program without one guard: a storm that misses this is too mild.

`python -m tests.storm --without "fence of settle" --store redis --minutes 3 --seed 7` lays a copy of the program as the
mutation proof does, takes the guard out and makes the storm there. It fails when no rule was broken.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutations import laying
from tests.mutations.guard import Guard
from tests.mutations.of_outages import OUTAGES
from tests.mutations.of_postgres import POSTGRES
from tests.mutations.of_redis import REDIS
from tests.mutations.of_sqlite import SQLITE
from tests.mutations.of_storm import STORM

PATIENCE_S = 60.0  # for what will never end; a storm that has nothing to wait for takes no longer
BROKEN = 1
KNOWN = {"sqlite": SQLITE, "postgres": POSTGRES, "redis": REDIS}
GUARDS: dict[str, tuple[str, ...]] = {  # by names of the mutation proof, where of_storm.py has none of its own
    "fence of settle": ("fence of settle: version", "fence of ends: version", "fence of the short way: version"),
    "fence of heartbeat": ("fence of heartbeat: version",),
    "lost leases are reaped": (),
    "callbacks are written with their move": (),
    "an outage is no failure": ("an outage is no failure",),
}


def guards_of(name: str, store: str) -> list[Guard]:
    """Return the guards to remove for a storm; empty if the guard cannot be removed for this store alone."""
    own = [guard for guard in STORM if guard.store in (store, "kernel") and guard.name == name]
    return own or [guard for guard in (*KNOWN[store], *OUTAGES) if guard.name in GUARDS[name]]


def storm_without(name: str, store: str, arguments: Sequence[str]) -> bool:
    """Run a storm on a copy without a guard; return whether a rule was broken."""
    guards = guards_of(name, store)
    if not guards:
        raise SystemExit(f"{store} has no text that could be removed for {name!r}")
    with tempfile.TemporaryDirectory(prefix="storm-without-") as folder:
        target = Path(folder)
        laying.lay(guards, target)
        command = [sys.executable, "-m", "tests.storm", "--store", store, "--patience", str(PATIENCE_S), *arguments]
        environment = {**os.environ, **laying.variables(target)}
        return subprocess.run(command, cwd=target, env=environment, check=False).returncode == BROKEN
