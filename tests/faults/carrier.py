"""A process that dies at a chosen point between the database and Redis.

`python -m tests.faults.carrier URL REDIS_URL POINT`: `before publish` dies when its enqueue is committed, `before ack`
when the end of its job is committed, `before end` when it has claimed a job. It tells the job's id first.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from callsheet.engine import Engine
from callsheet.engine.transport import transport
from callsheet.kernel import commands
from callsheet.store.protocol import ClaimRequest
from tests.store_driver import new_job


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tell(job_id: str) -> None:
    print(job_id, flush=True)  # noqa: T201


async def main(url: str, redis_url: str, point: str) -> None:
    async with Engine.from_url(url, redis_url=redis_url) as engine:
        assert engine.transport is not None
        transport.TAKE_S = 60.0  # its message is waited for, on a busy machine too
        if point == "before publish":
            new = new_job()
            tell(new.job_id)
            await engine.enqueue([new])
            die()  # the step waits in this process
        (job,) = await engine.claim(ClaimRequest("carrier", lease_ms=500))
        assert (await engine.transport.places_of([job]))[job.job_id] is not None
        tell(job.job_id)
        if point == "before end":
            die()
        settle = engine.store.settle

        async def commit_and_die(*args: Any, **more: Any) -> None:
            await settle(*args, **more)
            die()

        engine.store.settle = commit_and_die  # type: ignore[assignment, method-assign]
        await engine.settle([commands.succeed(job)])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
