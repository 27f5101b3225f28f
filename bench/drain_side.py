"""One side of `drain_pairs`: drains no-op jobs by one worker of whichever checkout is on the path, and prints its CPU.

Runs as a separate program: `PYTHONPATH=CHECKOUT/src python drain_side.py URL JOBS`. It uses only what every version
of Callsheet has.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
from pathlib import Path

import uvloop

import callsheet
from callsheet import Callsheet, Worker

BATCH, CONCURRENCY = 1_000, 100


async def drain(url: str, count: int) -> dict[str, float | int | str]:
    """Enqueue the jobs, drain them, and return the processor seconds of the drain with the counts that prove it."""
    app = Callsheet(url)
    calls = 0

    @app.task()
    async def noop(n: int) -> None:  # noqa: ARG001 - a payload as users have it
        nonlocal calls
        calls += 1

    await app.migrate()
    async with app:
        for first in range(0, count, BATCH):
            await noop.enqueue_many([{"n": n} for n in range(first, min(first + BATCH, count))])
        gc.collect()  # as `callsheet worker` does before it begins
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        begun_s = _cpu_s()
        await Worker(app, concurrency=CONCURRENCY, housekeeping=False).run(burst=True)
        cpu_s = _cpu_s() - begun_s
        backlog = await (await app.engine()).backlog()
    left = sum(queue.ready + queue.running for queue in backlog.values())
    return {"cpu_s": cpu_s, "calls": calls, "left": left, "package": str(Path(callsheet.__file__).parents[2])}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    print(json.dumps(uvloop.run(drain(sys.argv[1], int(sys.argv[2])))))
