"""A small worker process for the fault tests: the program claims, settles and prints JSON lines.

`python -m tests.faults.worker URL MODE NAME LEASE_MS`. Modes: `drain` works until stopped, and `dawdle` pauses before
each settlement; `hold` claims one job, waits for a line on its standard input, and then tries every write that a claim
allows; `falter` claims a batch, ends its first job and does nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from typing import Any

from callsheet.kernel import commands
from callsheet.kernel.errors import StoreUnavailable
from callsheet.kernel.job import Job, NewOutboxEvent
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.store import store_from_url
from callsheet.store.protocol import ClaimRequest, Settled, Store

BATCH = 10


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201


async def patiently(ask: Any) -> Any:
    """Retry while the store is unreachable."""
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            await asyncio.sleep(0.05)


async def drain(store: Store, name: str, lease_ms: int, pause_s: float = 0.0) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    request = ClaimRequest(name, ("default",), BATCH, lease_ms)
    while not stopping.is_set():
        jobs: list[Job] = await patiently(lambda: store.claim(request))
        for job in jobs:
            await asyncio.sleep(pause_s)
            settlement = commands.succeed(job, f'"{name}"')
            (answer,) = await patiently(lambda s=settlement: store.settle([s]))
            if answer is not Settled.STALE:
                tell(done=job.job_id, version=job.claim_version)
        if not jobs:
            await asyncio.sleep(0.01)


def every_write(job: Job) -> dict[str, Settlement]:
    """Return every kind of write that a claim's holder may request."""
    out = (NewOutboxEvent(f"zombie-{job.job_id}", "https://h", "b"),)
    return {
        "advance": commands.advance(job, "s"),
        "progress": commands.progress(job, 99),
        "checkpoint": commands.checkpoint(job, "c", "1"),
        "refresh": commands.refresh(job),
        "succeed": commands.succeed(job, outbox=out),
        "fail": commands.fail(job, JobError("fatal"), rand=0),
        "retry": commands.retry(job, JobError("x"), delay_ms=0),
        "release": commands.release(job),
        "cancel": commands.cancel(job),
    }


async def hold(store: Store, name: str, lease_ms: int) -> None:
    (job,) = await store.claim(ClaimRequest(name, ("default",), 1, lease_ms))
    tell(claimed=job.job_id, version=job.claim_version)
    await asyncio.to_thread(sys.stdin.readline)
    answers = {}
    for what, write in every_write(job).items():
        (answers[what],) = await store.settle([write])
    (beat,) = await store.heartbeat([job.claim], lease_ms=lease_ms)
    tell(answers=answers, held=beat.held)


async def falter(store: Store, name: str, lease_ms: int) -> None:
    first, *_ = await store.claim(ClaimRequest(name, ("default",), BATCH, lease_ms))
    await store.settle([commands.succeed(first, f'"{name}"')])
    tell(done=first.job_id, version=first.claim_version)
    await asyncio.to_thread(sys.stdin.readline)


async def dawdle(store: Store, name: str, lease_ms: int) -> None:
    await drain(store, name, lease_ms, pause_s=0.012)


async def main(url: str, mode: str, name: str, lease_ms: str) -> None:
    store = await store_from_url(url).open()
    tell(ready=name)
    await {"drain": drain, "dawdle": dawdle, "hold": hold, "falter": falter}[mode](store, name, int(lease_ms))
    await store.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
