"""Dead letters for tests: a server with their routes, and jobs that died in different ways."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from callsheet.api import dead_letters, jobs, operations
from callsheet.contracts.redis_gateway import routes
from callsheet.engine.ids import new_id
from callsheet.kernel import commands
from callsheet.kernel.job import NewJob, Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from tests.http.live import Live

ROUTERS = [routes.router, jobs.router, dead_letters.router, operations.router]


_last_moment = 0


async def _own_moment(live: Live) -> int:
    """The store's time in ms, later than any that was answered before: filters and orders tell jobs apart by it."""
    global _last_moment  # noqa: PLW0603 - all jobs of the process
    _last_moment = max(await live.engine.store.now(), _last_moment + 1)
    return _last_moment


async def dead(live: Live, code: str = "boom", *, worker: str = "w1~5ec2e7", **fields: Any) -> str:
    """A new job that has died of an error; its id. `retryable` False: it has failed.

    No two jobs are created or end in the same millisecond.
    """
    retryable = fields.pop("retryable", None)
    at = await _own_moment(live)
    new = NewJob(new_id(), **{"kind": "resize", "payload": '{"n":1}', "max_attempts": 1, "queue": "q", **fields})
    await live.engine.enqueue([new], now=at)
    while True:
        (job,) = await live.engine.claim(ClaimRequest(worker, (new.queue,), lease_ms=600_000), now=at)
        assert job.job_id == new.job_id
        error = JobError(code, f"it said {code}", retryable)
        settlement = commands.fail(job, error, rand=0.0)._replace(delay_ms=0)
        await live.engine.settle([settlement], now=at)
        if settlement.status.terminal:
            assert settlement.status is (Status.FAILED if retryable is False else Status.DEAD_LETTER)
            return new.job_id


async def ended(client: httpx2.AsyncClient, answer: httpx2.Response) -> dict[str, Any]:
    """Wait for an operation's end and return its body."""
    assert answer.status_code == 202, answer.text
    async with asyncio.timeout(60):
        while True:
            body: dict[str, Any] = (await client.get(answer.headers["location"])).json()
            if body["status"] != "running":
                return body
            await asyncio.sleep(0.01)


async def statuses(live: Live, *job_ids: str) -> list[str]:
    """How these jobs stand; `gone` for a missing job."""
    return [job.status.value if job is not None else "gone" for job in await live.engine.store.get(job_ids)]
