"""Foreign gateways and workers, which know only the contract."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import Job, Status
from callsheet.store.protocol import ClaimRequest, JobQuery
from callsheet.store.redis import RedisStore
from tests.store_driver import new_job

ONE = ClaimRequest("w1")


async def foreign_job(client: Any, payload: str = '{"n":1}', *, whole: bool = True) -> str:
    """As the contract's gateway makes one: hash, event, message."""
    job_id = str(uuid.uuid4())
    ms = str((await client.time())[0] * 1000)
    if whole:
        fields = {"job_id": job_id, "task": "chat", "payload": payload, "status": "queued", "created_ts": ms}
        fields |= {"updated_ts": ms, "ttl_s": "3600", "result": "", "error": ""}
        await client.hset(f"job:{job_id}", mapping=fields)
        event = {"type": "queued", "ts": ms, "step": "gateway.enqueue", "data": "{}"}
        await client.xadd(f"job:{job_id}:events", event)
    await client.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": payload})
    return job_id


async def take_as_foreign_worker(client: Any) -> str:
    await ensure_group(client)
    ((_, ((message_id, _),)),) = await client.xreadgroup("workers", "stranger", {"jobs:stream": ">"}, count=1)
    return str(message_id)


async def ensure_group(client: Any) -> None:
    if not await client.exists("jobs:stream") or not await client.xinfo_groups("jobs:stream"):
        await client.xgroup_create("jobs:stream", "workers", id="0", mkstream=True)


def patient(store: RedisStore, ms: int) -> None:
    store.target = store.target._replace(foreign_idle_ms=ms)


async def test_a_foreign_gateways_job_is_claimed_and_finished(store: RedisStore, client: Any) -> None:
    job_id = await foreign_job(client)
    (seen,) = await store.get([job_id])
    assert seen is not None
    assert (seen.status, seen.contract, seen.kind) == (Status.QUEUED, "redis_gateway", "chat")
    (job,) = await store.claim(ONE)
    assert (job.job_id, job.contract, job.payload, job.ttl_s) == (job_id, "redis_gateway", '{"n":1}', 3600)
    assert await store.get([job_id]) == [job]
    await store.settle([commands.succeed(job, "7")])
    assert await client.hget(f"job:{job_id}", "status") == "done"
    assert await client.xlen("jobs:stream") == 0
    events = await store.events({job_id: 0}, 10)
    assert [(e.seq, e.type) for e in events] == [(1, "queued"), (2, "running"), (3, "done")]
    assert await store.counts() == {"default": {Status.SUCCEEDED: 1}}
    assert [item.job_id for item in (await store.find(JobQuery())).jobs] == [job_id]


async def test_a_message_without_a_hash_makes_a_job(store: RedisStore, client: Any) -> None:
    job_id = await foreign_job(client, whole=False)
    (job,) = await store.claim(ONE)
    assert (job.job_id, job.kind, job.payload) == (job_id, "chat", '{"n":1}')
    assert [e.type for e in await store.events({job_id: 0}, 10)] == ["queued", "running"]


async def test_a_payload_that_is_not_json_is_kept_raw(store: RedisStore, client: Any) -> None:
    for whole in (True, False):
        await foreign_job(client, 'not "json', whole=whole)
        (job,) = await store.claim(ONE)
        assert json.loads(job.payload) == {"_raw": 'not "json'}


async def test_a_message_of_nothing_is_acknowledged_away(store: RedisStore, client: Any) -> None:
    await client.xadd("jobs:stream", {"hello": "world"})
    assert await store.claim(ONE) == []
    assert await client.xlen("jobs:stream") == 0


async def test_a_foreign_job_can_be_cancelled_before_anyone_takes_it(store: RedisStore, client: Any) -> None:
    job_id = await foreign_job(client)
    (job,) = await store.get([job_id])
    assert job is not None
    await store.settle([commands.cancel(job, "no")])
    assert await store.counts() == {"default": {Status.CANCELED: 1}}
    assert await store.claim(ONE) == []
    assert await client.xlen("jobs:stream") == 0


@pytest.mark.parametrize("maker", ["a foreign gateway", "our own"])
async def test_a_foreign_workers_dead_delivery_becomes_a_lost_lease(store: RedisStore, client: Any, maker: str) -> None:
    job_id = (await store.enqueue([new_job()]))[0].job_id if maker == "our own" else await foreign_job(client)
    await take_as_foreign_worker(client)
    await client.hset(f"job:{job_id}", mapping={"status": "running"})
    await client.xadd(f"job:{job_id}:events", {"type": "running", "ts": "1", "step": "w", "data": "{}"})
    assert await store.claim(ONE) == []
    assert await store.with_expired_lease(10) == [], "it is not silent for long enough"
    patient(store, 0)
    (lost_job,) = await store.with_expired_lease(10)
    assert (lost_job.job_id, lost_job.worker_id, lost_job.status) == (job_id, "stranger", Status.RUNNING)
    await store.settle([commands.lose_lease(lost_job, rand=0)])
    patient(store, 60_000)
    (job,) = await store.claim(ONE, now=await store.now() + 3_600_000)
    assert (job.job_id, job.lease_losses, job.attempt_count) == (job_id, 1, 2)
    await store.settle([commands.succeed(job)])
    types = [e.type for e in await store.events({job_id: 0}, 10)]
    assert types == ["queued", "running", "lease_lost", "running", "done"]
    assert await client.xlen("jobs:stream") == 0
    assert await store.counts() == {"default": {Status.SUCCEEDED: 1}}


async def test_a_delivery_whose_job_has_ended_is_acknowledged_away(store: RedisStore, client: Any) -> None:
    job_id = await foreign_job(client)
    await take_as_foreign_worker(client)
    await client.hset(f"job:{job_id}", mapping={"status": "done", "result": "1"})
    patient(store, 0)
    assert await store.with_expired_lease(10) == []
    assert await client.xlen("jobs:stream") == 0
    (job,) = await store.get([job_id])
    assert job is not None
    assert (job.status, job.result, job.ended_at) == (Status.SUCCEEDED, "1", job.updated_at)


async def test_our_own_claims_are_no_dead_deliveries(store: RedisStore, client: Any) -> None:
    await store.enqueue([new_job() for _ in range(150)])
    jobs = await store.claim(ClaimRequest("w", limit=150))
    patient(store, 0)
    for _ in range(3):
        assert await store.with_expired_lease(10) == []
    assert (await client.xpending("jobs:stream", "workers"))["pending"] == 150
    assert all(beat.held for beat in await store.heartbeat([j.claim for j in jobs], lease_ms=1_000))


async def test_a_heartbeat_restarts_the_idle_time_of_the_message(store: RedisStore, client: Any) -> None:
    await store.enqueue([new_job()])
    (job,) = await store.claim(ONE)
    await client.execute_command(
        "XCLAIM", "jobs:stream", "workers", "w1", 0, await message_of(client, job), "IDLE", 90_000
    )
    assert (await pending(client))[0]["time_since_delivered"] >= 90_000
    await store.heartbeat([job.claim], lease_ms=1_000)
    (row,) = await pending(client)
    assert row["time_since_delivered"] < 90_000
    assert row["consumer"] == "w1"


async def pending(client: Any) -> list[dict[str, Any]]:
    return list(await client.xpending_range("jobs:stream", "workers", "-", "+", 10))


async def message_of(client: Any, job: Job) -> str:
    return str(await client.hget(f"job:{job.job_id}", "msg"))


async def test_events_of_a_foreign_writer_do_not_stop_ours(store: RedisStore, client: Any) -> None:
    await store.enqueue([new_job()])
    (job,) = await store.claim(ONE)
    ahead = f"{await store.now() + 60_000}-0"
    await client.xadd(f"job:{job.job_id}:events", {"type": "note", "ts": "1", "step": "", "data": "{}"}, id=ahead)
    await store.settle([commands.succeed(job)])
    events = await store.events({job.job_id: 0}, 10)
    assert [(e.seq, e.type) for e in events] == [(1, "queued"), (2, "running"), (3, "note"), (4, "done")]
    assert [e.type for e in await store.events({job.job_id: 3}, 10)] == ["done"]


async def test_a_message_that_comes_twice_is_acknowledged_away(store: RedisStore, client: Any) -> None:
    new = new_job()
    await store.enqueue([new])
    await client.xadd("jobs:stream", {"job_id": new.job_id, "task": new.kind, "payload": new.payload})
    (job,) = await store.claim(ClaimRequest("w1", limit=5))
    assert (await store.claim(ClaimRequest("w2", limit=5))) == []
    assert await store.get([new.job_id]) == [job]
    await store.settle([commands.succeed(job)])
    assert await client.xlen("jobs:stream") == 0
    await client.xadd("jobs:stream", {"job_id": new.job_id, "task": new.kind, "payload": new.payload})
    assert await store.claim(ClaimRequest("w2", limit=5)) == []
    assert await client.xlen("jobs:stream") == 0


async def test_a_message_does_not_bring_a_delayed_job_forward(store: RedisStore, client: Any) -> None:
    new = new_job(delay_ms=60_000)
    await store.enqueue([new])
    await client.xadd("jobs:stream", {"job_id": new.job_id, "task": new.kind, "payload": new.payload})
    assert await store.claim(ClaimRequest("w1", limit=5)) == []
    (job,) = await store.get([new.job_id])
    assert job is not None
    assert job.status is Status.QUEUED


async def test_a_job_whose_message_was_lost_is_sent_again(store: RedisStore, client: Any) -> None:
    lost_job, kept_job, running, delayed_job = new_job(), new_job(), new_job(priority=5), new_job(delay_ms=60_000)
    await store.enqueue([running])
    (job,) = await store.claim(ONE)
    await store.enqueue([lost_job, kept_job, delayed_job])
    message = await client.hget(f"job:{lost_job.job_id}", "msg")
    await client.xdel("jobs:stream", message)
    assert await store.promote() == 1
    assert await store.promote() == 0
    assert [j.job_id for j in await store.claim(ClaimRequest("w2", limit=9))] == [kept_job.job_id, lost_job.job_id]
    assert await store.get([job.job_id]) == [job]


async def test_a_message_that_a_foreign_worker_holds_is_not_sent_again(store: RedisStore, client: Any) -> None:
    await store.enqueue([new_job()])
    await take_as_foreign_worker(client)
    assert await store.promote() == 0
    assert await store.claim(ONE) == []


async def test_a_key_of_another_type_does_not_stop_claims_or_reaping(store: RedisStore, client: Any) -> None:
    patient(store, 0)
    poison = str(uuid.uuid4())
    await store.enqueue([first := new_job()])
    await client.set(f"job:{poison}", "a string")
    await client.xadd("jobs:stream", {"job_id": poison, "task": "chat", "payload": "{}"})
    await store.enqueue([second := new_job()])
    jobs = await store.claim(ClaimRequest("w1", limit=9))
    assert [job.job_id for job in jobs] == [first.job_id, second.job_id]
    await client.xadd("jobs:stream", {"job_id": poison, "task": "chat", "payload": "{}"})
    await take_as_foreign_worker(client)
    assert await store.with_expired_lease(10) == []
    assert await client.xlen("jobs:stream") == 2


async def test_a_running_job_without_a_lease_gets_one_back(store: RedisStore, client: Any) -> None:
    patient(store, 0)
    await store.enqueue([new_job()])
    (job,) = await store.claim(ClaimRequest("w1"))
    await client.delete("jobs:leases")
    await store.with_expired_lease(10)
    assert await client.zcard("jobs:leases") == 1
    assert await store.get([job.job_id]) == [job]


async def test_a_job_that_a_foreign_worker_has_ended_is_not_run_again(store: RedisStore, client: Any) -> None:
    job_id = await foreign_job(client)
    await client.hset(f"job:{job_id}", "status", "done")
    assert await store.claim(ONE) == []
    assert await client.hget(f"job:{job_id}", "status") == "done"
    assert await client.xlen("jobs:stream") == 0
