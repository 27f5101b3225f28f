"""Contract 003 through a real server: workers that have nothing but HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsheet.contracts.control_plane import claims, routes, waiting
from callsheet.contracts.control_plane.claims import WAITING
from callsheet.kernel import commands
from callsheet.kernel.job import Outcome, Status
from callsheet.kernel.retry import JobError
from tests import stores
from tests.http.live import Live, serving

from .remote import Answer, Remote, add, parked

PLACES = ("sqlite", "postgres", "redis", "sqlite beside redis", "postgres beside redis")


@pytest.fixture(params=PLACES)
async def live(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    """The suite runs on each store, and on the SQL ones also with Redis Streams as the transport."""
    kind, beside, _ = str(request.param).partition(" beside ")
    redis_url = stores.fresh_url("redis") if beside else None
    async with serving(stores.ready_url(kind), routers=[routes.router], redis_url=redis_url) as live:
        yield live


@pytest.fixture
def worker(live: Live) -> Remote:
    return Remote(live)


async def test_a_claim_gives_all_that_a_worker_needs(live: Live, worker: Remote) -> None:
    assert await worker.claim() == {"claimed": False}
    job_id = await add(live, payload='{"a":1}')
    claim = await worker.claim()
    assert (claim["claimed"], claim["job_id"], claim["payload"]) == (True, job_id, {"a": 1})
    assert claim["stream"] == ("default" if live.engine.transport is None else "callsheet:stream:default")
    assert len(claim["lease_token"]) >= 22
    assert claim["heartbeat_interval_seconds"] < claim["lease_ttl_seconds"]
    assert claim["message_id"]
    job = await live.engine.get(job_id)
    assert job.status is Status.RUNNING
    assert claim["lease_token"] not in str(job)  # only its hash is kept


async def test_streams_are_served_in_their_order(live: Live, worker: Remote) -> None:
    low, high = await add(live, queue="low"), await add(live, queue="high")
    assert [(await worker.claim("high", "low"))["job_id"] for _ in range(2)] == [high, low]
    assert not (await worker.claim("none"))["claimed"]


async def test_a_hundred_claims_of_one_job_have_one_winner(live: Live) -> None:
    await add(live)
    answers = await asyncio.gather(*(Remote(live, f"w{n}").claim() for n in range(100)))
    assert sum(answer["claimed"] for answer in answers) == 1


async def test_a_heartbeat_extends_the_lease(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    claim = await worker.claim()
    before = (await live.engine.get(job_id)).lease_expires_at or 0
    beat = (await worker.send("heartbeat", job_id=job_id, lease_token=claim["lease_token"], progress=40)).json()
    after = await live.engine.get(job_id)
    assert beat["ok"]
    assert after.lease_expires_at is not None
    assert after.lease_expires_at - before > 15_000  # the claim's own lease was provisional
    assert abs(beat["lease_expires_at"] - after.lease_expires_at) < 2_000
    assert (after.progress, beat["cancel"]) == (40.0, False)
    await live.engine.cancel(job_id, "enough")
    beat = (await worker.send("heartbeat", job_id=job_id, lease_token=claim["lease_token"])).json()
    assert beat["cancel"]
    assert (await worker.say("fail", claim, error={"code": "canceled"})).json()["ok"]
    assert (await live.engine.get(job_id)).status is Status.CANCELED


@pytest.mark.parametrize("protocol", [1, 2])
async def test_who_beats_as_often_as_a_claim_says_keeps_its_job(live: Live, worker: Remote, protocol: int) -> None:
    job_id = await add(live)
    claim = await worker.claim(protocol=protocol)
    job = await live.engine.get(job_id)
    assert job.lease_expires_at is not None
    assert job.heartbeat_at is not None
    lease_s = (job.lease_expires_at - job.heartbeat_at) / 1000
    assert 2 * claim["heartbeat_interval_seconds"] < lease_s  # also if it does not beat at once, and one beat is lost
    assert claim["heartbeat_every_ms"] == 1000 * claim["heartbeat_interval_seconds"]
    assert claim["lease_expires_in_ms"] == 1000 * lease_s
    if protocol == 1:
        assert claim["lease_ttl_seconds"] == lease_s  # it knows of no other
    for name in ("lease_ttl_seconds", "heartbeat_interval_seconds"):
        assert isinstance(claim[name], int)  # typed clients read whole seconds


async def test_a_completion_is_committed_then_acknowledged_and_may_be_said_twice(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    claim = await worker.claim()
    for _ in range(2):
        answer = await worker.say("complete", claim, result={"frames": 7})
        assert (answer.status_code, answer.json()) == (200, {"ok": True, "ack": True})
    job = await live.engine.get(job_id)
    assert (job.status, job.result) == (Status.SUCCEEDED, '{"frames":7}')
    (attempt,) = await live.engine.store.attempts(job_id)
    assert (attempt.outcome, attempt.worker_id.partition("~")[0]) == (Outcome.SUCCEEDED, "w1")
    other = await worker.say("fail", claim, error={"code": "E"})
    assert (other.status_code, other.json()["code"]) == (409, "lease_lost")


async def test_a_failure_runs_again_until_it_is_a_dead_letter(live: Live, worker: Remote) -> None:
    job_id = await add(live, max_attempts=2, retry='{"backoff":{"table_ms":[0]}}')
    error = {"code": "OOM", "message": "no memory", "stack": "here", "retryable": True}
    first = await worker.claim()
    for _ in range(2):
        answer = (await worker.say("fail", first, error=error)).json()
        assert answer == {"ok": True, "ack": True, "requeued": True, "dlq": False}
    second = await worker.claim()
    assert second["job_id"] == job_id
    assert second["attempt_id"] != first["attempt_id"]
    assert second["fence"] > first["fence"]
    assert (await worker.say("fail", second, error=error)).json() == {
        "ok": True,
        "ack": True,
        "requeued": False,
        "dlq": True,
    }
    job = await live.engine.get(job_id)
    assert job.status is Status.DEAD_LETTER
    assert JobError("OOM", "no memory").code in (job.error or "")


async def test_a_failure_that_is_not_retryable_fails(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    answer = (await worker.say("fail", await worker.claim(), error={"code": "bad_input", "retryable": False})).json()
    assert (answer["requeued"], answer["dlq"]) == (False, False)
    assert (await live.engine.get(job_id)).status is Status.FAILED


@pytest.mark.parametrize("told", [{"message": None, "stack": None}, {"message": "m" * 9_000, "stack": "s" * 90_000}])
async def test_a_failure_is_taken_whatever_its_message_and_stack_are(live: Live, worker: Remote, told: Answer) -> None:
    job_id = await add(live)
    answer = await worker.say("fail", await worker.claim(), error={"code": "E", "retryable": False, **told})
    assert answer.json()["ok"], answer.text
    job = await live.engine.get(job_id)
    assert job.status is Status.FAILED
    assert len(job.error or "") < 13_000


async def test_a_release_costs_no_attempt(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    claim = await worker.claim()
    assert (await worker.say("release", claim)).json()["ok"]
    job = await live.engine.get(job_id)
    assert (job.status, job.attempt_count) == (Status.QUEUED, 0)
    assert (await worker.say("complete", claim, result=1)).status_code == 409


async def test_tokens_prove_claims_and_nothing_else_does(live: Live, worker: Remote) -> None:
    await add(live)
    claim = await worker.claim()
    stranger = Remote(live, "w2")
    for wrong in (
        await stranger.say("complete", claim, result=1),
        await worker.say("complete", {**claim, "lease_token": "guess"}, result=1),
        await worker.say("complete", {**claim, "attempt_id": "99"}, result=1),
        await stranger.send("heartbeat", job_id=claim["job_id"], lease_token=claim["lease_token"]),
    ):
        assert (wrong.status_code, wrong.json()["code"]) == (403, "forbidden")
    unknown = await worker.say("complete", {**claim, "job_id": "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"}, result=1)
    assert unknown.status_code == 404
    assert (await live.engine.get(claim["job_id"])).status is Status.RUNNING


async def test_an_expired_lease_is_lost_for_good(live: Live, worker: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "PROVISIONAL_S", 0.0)
    await add(live, retry='{"lost_lease_backoff":{"table_ms":[0]}}')
    first = await worker.claim()
    while not (expired_job := await live.engine.store.with_expired_lease(10)):
        await asyncio.sleep(0.002)
    await live.engine.settle([commands.lose_lease(expired_job[0], rand=0.0)])
    second = await Remote(live, "w2").claim()
    assert second["job_id"] == first["job_id"]
    lost_job = (await live.engine.get(second["job_id"])).error or ""
    assert "worker w1 went silent" in lost_job  # and not the hash of its token, which is a part of its id
    for verb, more in ("heartbeat", {}), ("complete", {"result": 1}), ("fail", {"error": {"code": "E"}}):
        late = await worker.say(verb, first, **more)
        assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    assert (await Remote(live, "w2").say("complete", second, result=2)).json()["ack"]


async def test_a_parked_claim_is_woken_by_a_new_job(live: Live, worker: Remote) -> None:
    waiting = asyncio.create_task(worker.claim("media", wait_ms=60_000))
    await parked(live, 1)
    job_id = await add(live, queue="media")
    assert (await asyncio.wait_for(waiting, 60))["job_id"] == job_id


async def test_many_who_wait_for_one_job_make_few_claims(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_S", (3600.0, 3600.0))
    first = asyncio.create_task(Remote(live, "first").claim("first", wait_ms=60_000))
    await parked(live, 1)
    while not first.done():  # what was told before the server listened is told to nobody
        await add(live, queue="first")
        await asyncio.sleep(0.05)
    waiters = [asyncio.create_task(Remote(live, f"w{n}").claim(wait_ms=60_000)) for n in range(60)]
    await parked(live, 60)
    claims, claim = 0, live.engine.store.claim

    async def counted(*args: Any, **more: Any) -> Any:
        nonlocal claims
        claims += 1
        return await claim(*args, **more)

    monkeypatch.setattr(live.engine.store, "claim", counted)
    await add(live)
    while not any(waiter.done() for waiter in waiters):
        await asyncio.sleep(0.005)
    # 60 if each asked; beside Redis a message and a hint tell of the same job, and may come apart
    assert claims <= (3 if live.engine.transport is None else 10)
    while not all(waiter.done() for waiter in waiters):  # one that just asks parks once more
        WAITING.of(live.state).let_go()
        await asyncio.sleep(0.005)
    assert sum(answer["claimed"] for answer in await asyncio.gather(*waiters)) == 1


async def test_who_has_gone_is_given_nothing(live: Live, worker: Remote) -> None:
    for n in range(20):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Remote(live, f"gone{n}").claim(wait_ms=20_000), 0.05)
    job_id = await add(live)
    claim = await asyncio.wait_for(worker.claim(wait_ms=60_000), 60)
    assert claim["job_id"] == job_id


@pytest.mark.parametrize(
    "body",
    [
        {"streams": []},
        {"streams": ["a"], "max_wait_ms": -1},
        {"streams": "a"},
        {"streams": [""]},
        {"worker_id": "", "streams": ["a"]},
        {"worker_id": "a~b", "streams": ["a"]},
    ],
)
async def test_a_wrong_claim_is_told(live: Live, worker: Remote, body: Answer) -> None:
    answer = await worker.send("claim", **body)
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")


async def test_a_wrong_end_changes_nothing(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    claim = await worker.claim()
    assert (await worker.say("complete", claim, follow_ups="none")).status_code == 422
    assert (await worker.say("complete", claim, result="x" * 1_100_000)).status_code == 413
    assert (await live.engine.get(job_id)).status is Status.RUNNING


async def test_a_key_without_the_scope_is_refused(live: Live) -> None:
    async with await live.key("acme") as client:
        answer = await client.post("/internal/worker/claim", json={"worker_id": "w", "streams": ["default"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
