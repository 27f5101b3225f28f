"""An app whose remote workers are killed by the tests: `callsheet worker tests.faults.remote_crew:app --url …`.

Each execution appends a line to the file that REMOTE_LOG names. REMOTE_SKEW_S sets this machine's clock wrong.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

SKEW_S = float(os.environ.get("REMOTE_SKEW_S", "0"))
if SKEW_S:
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + SKEW_S
    time.time_ns = lambda: _time_ns() + round(SKEW_S * 1e9)

from callsheet import Callsheet, Context  # noqa: E402 - after the clock

LOG = Path(os.environ.get("REMOTE_LOG", "log"))
app = Callsheet("sqlite:////nowhere/at/all.db")


def note(text: str) -> None:
    """Append one line in a single write: a kill cannot split the line."""
    descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


@app.task(max_attempts=50)
async def count(ctx: Context, n: int) -> int:
    """A job with a report and a little waiting, so that kills fall everywhere."""
    note(f"{n} {os.getpid()}")
    if n % 3 == 0:
        ctx.progress(50)
    await asyncio.sleep(0.005 * (n % 4))
    return n


@app.task(max_attempts=5)
async def slow(ctx: Context, seconds: float) -> float:
    """Hold a claim for a while; the answer is this machine's clock."""
    note(f"slow {os.getpid()}")
    await ctx.progress(10)
    await asyncio.sleep(seconds)
    return time.time()


@app.task(max_attempts=50)
async def poison() -> None:
    """Take the worker along."""
    note(f"poison {os.getpid()}")
    os.kill(os.getpid(), signal.SIGKILL)
