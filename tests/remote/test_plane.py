"""A worker may hold two claims of one job: a lost claim that is still held, and its successor."""

from __future__ import annotations

import pytest

from callsheet import Callsheet
from callsheet.kernel import commands
from callsheet.kernel.errors import StaleClaim
from callsheet.store.protocol import ClaimRequest
from callsheet.worker.remote import RemoteOptions
from callsheet.worker.remote.caller import Caller
from callsheet.worker.remote.credentials import Credentials
from callsheet.worker.remote.plane import RemoteJobSource
from tests.http.live import Live

from .conftest import add


async def test_steps_are_asked_for_by_the_claim_that_asks(live: Live, app: Callsheet, token: str) -> None:
    """A storm found it: the proof of the lost claim was sent, and the answer cost the job an attempt."""

    @app.task
    async def film() -> None:
        """A task that never runs."""

    job_id = await add(live, app, "film")
    caller = Caller(live.url, Credentials(RemoteOptions(live.url, token), "w1"), lambda: None)
    plane = RemoteJobSource(caller, (), lambda _: None)
    try:
        (job,) = await plane.claim(ClaimRequest("w1", ("default",), 1, lease_ms=60_000))
        await live.engine.settle([commands.release(job)])
        (held,) = await plane.claim(ClaimRequest("w1", ("default",), 1, lease_ms=60_000))
        assert (job.job_id, held.job_id) == (job_id, job_id)
        assert held.claim_version > job.claim_version
        assert (await plane.steps(held)).jobs == (job_id,)
        with pytest.raises(StaleClaim):
            await plane.steps(job)
    finally:
        await caller.close()
