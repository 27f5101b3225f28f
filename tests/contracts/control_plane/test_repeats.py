"""Claims asked twice, and claims that wait: who is given a job, and how soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from callsheet.contracts.control_plane import routes, waiting
from callsheet.kernel.job import Status
from tests import stores
from tests.http.live import Live, serving

from .remote import Remote, add, parked

NAME = "a-name-of-a-claim-01"


@pytest.fixture
async def live(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    monkeypatch.setattr(waiting, "POLL_S", (3600.0, 3600.0))  # who is woken is woken by what happened, not by the clock
    async with serving(stores.fresh_url("memory"), routers=[routes.router]) as live:
        yield live


async def test_of_two_requests_of_one_claim_only_the_last_is_given_jobs(live: Live) -> None:
    """The first may hang in a network that has swallowed its worker: what it got would be nobody's."""
    worker = Remote(live)
    first = asyncio.create_task(worker.claim(wait_ms=60_000, claim_request_id=NAME, first=True))
    await parked(live, 1)
    second = asyncio.create_task(worker.claim(wait_ms=60_000, claim_request_id=NAME))
    await parked(live, 2)
    ids = [await add(live), await add(live)]
    answers = await asyncio.gather(first, second)
    assert [answer["claimed"] for answer in answers] == [False, True]
    statuses = [(await live.engine.get(job_id)).status for job_id in ids]
    assert sorted(statuses) == [Status.QUEUED, Status.RUNNING]


@pytest.mark.parametrize("how", ["release", "follow_up", "retry"])
async def test_what_comes_back_or_follows_wakes_one_who_waits(live: Live, how: str) -> None:
    """No hint of a store in memory tells of it, and who waits to the end is given nothing."""
    busy, idle = Remote(live), Remote(live, "w2")
    await add(live)
    claim = await busy.claim()
    parked_claim = asyncio.create_task(idle.claim(wait_ms=60_000))
    await parked(live, 1)
    match how:
        case "release":
            await busy.say("release", claim)
        case "retry":
            await busy.say("fail", claim, error={"code": "x"}, retry_in_ms=0)
        case _:
            await busy.say("complete", claim, result=1, follow_ups=[{"task": "next"}])
    assert (await parked_claim)["claimed"]


async def test_who_has_gone_does_not_keep_a_wake_up(live: Live) -> None:
    leaving = [asyncio.create_task(Remote(live, f"w{n}").claim(wait_ms=60_000)) for n in range(20)]
    await parked(live, 20)
    for claim in leaving:
        claim.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    alive = asyncio.create_task(Remote(live, "alive").claim(wait_ms=60_000))
    await parked(live, 21)
    await add(live)
    assert (await alive)["claimed"]
