"""An app whose workers are killed by the tests: `python -m tests.faults.crew URL LOG LEASE_S CONCURRENCY`.

Each execution appends a line to LOG, so that the tests know what ran, and how often.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from callsheet import Callsheet, Context, RetryPolicy

app = Callsheet(sys.argv[1] if len(sys.argv) > 1 and "://" in sys.argv[1] else "sqlite::memory:")
LOG = Path(sys.argv[2] if len(sys.argv) > 2 else "log")


def note(text: str) -> None:
    """Append one line in a single write: a kill cannot split the line."""
    descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


# Three workers are killed: a job that was claimed by each of them would else be a dead letter, and rightly so.
@app.task(retry=RetryPolicy(max_attempts=50, max_lease_losses=50))
async def count(ctx: Context, n: int) -> int:
    """A job with a report and a little waiting, so that kills fall everywhere."""
    note(f"{n} {os.getpid()}")
    if n % 7 == 0:
        ctx.progress(50)
    await asyncio.sleep(0.001 * (n % 3))
    return n


@app.task(max_attempts=5)
async def slow(ctx: Context, seconds: float) -> str:
    """Hold the claim for a while."""
    note(f"slow {os.getpid()} {ctx.job.claim_version}")
    await asyncio.sleep(seconds)
    note(f"slept {os.getpid()} {ctx.job.claim_version}")
    return str(os.getpid())


@app.task(max_attempts=1)
async def once(ctx: Context, seconds: float) -> None:
    """A task that may start only once."""
    note(f"once {ctx.job_id}")
    if seconds:
        await asyncio.sleep(seconds)


async def main() -> None:
    """Work until SIGTERM."""
    worker = app.worker(lease=float(sys.argv[3]), concurrency=int(sys.argv[4]), poll=0.2)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    async with app:
        Path(f"{LOG}.{os.getpid()}").touch()  # the interpreter is up: what comes now is the program's own time
        await worker.run()


if __name__ == "__main__":
    uvloop.run(main())
