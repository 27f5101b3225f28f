"""The public data model of the 001 contract, seen through a plain driver."""

from __future__ import annotations

import json
from typing import Any

from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewJob, Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from callsheet.store.redis import RedisStore
from tests.store_driver import new_job

CONTRACT = ("job_id", "task", "payload", "status", "created_ts", "updated_ts", "ttl_s", "result", "error")
ONE = ClaimRequest("w1")


async def claimed(store: RedisStore, **more: Any) -> Job:
    await store.enqueue([new_job(**more)])
    (job,) = await store.claim(ONE)
    return job


async def test_a_queued_job_is_the_nine_fields_a_message_and_an_event(store: RedisStore, client: Any) -> None:
    new = NewJob(new_job().job_id, "chat", '{"prompt":"ü"}', ttl_s=600, contract="redis_gateway")
    await store.enqueue([new])
    key = f"job:{new.job_id}"
    fields = await client.hgetall(key)
    assert {name: fields[name] for name in CONTRACT} == {
        "job_id": new.job_id,
        "task": "chat",
        "payload": '{"prompt":"ü"}',
        "status": "queued",
        "created_ts": fields["created_ts"],
        "updated_ts": fields["created_ts"],
        "ttl_s": "600",
        "result": "",
        "error": "",
    }
    assert fields["created_ts"].isdigit()
    ((message_id, message),) = await client.xrange("jobs:stream")
    assert message == {"job_id": new.job_id, "task": "chat", "payload": '{"prompt":"ü"}'}
    assert fields["msg"] == message_id
    ((event_id, event),) = await client.xrange(f"{key}:events")
    assert event_id == f"{fields['created_ts']}-1"
    assert event == {
        "type": "queued",
        "ts": fields["created_ts"],
        "step": "gateway.enqueue",
        "data": "{}",
        "progress": "0",
    }


async def test_defaults_are_not_stored(store: RedisStore, client: Any) -> None:
    new = new_job()
    await store.enqueue([new])
    assert set(await client.hgetall(f"job:{new.job_id}")) == {*CONTRACT, "max_attempts", "seq", "msg"}


async def test_the_status_is_in_the_contracts_words(store: RedisStore, client: Any) -> None:
    async def word(job: Job) -> tuple[str, str | None]:
        status, dead = await client.hmget(f"job:{job.job_id}", "status", "dead")
        return status, dead or None

    done_job, failed, dead, canceled = [await claimed(store) for _ in range(4)]
    assert await word(done_job) == ("running", None)
    await store.settle(
        [
            commands.succeed(done_job, '{"a":1}'),
            commands.fail(failed, JobError("fatal", retryable=False), rand=0.5),
            commands.retry(dead._replace(max_attempts=1), JobError("500"), delay_ms=0),
            commands.cancel(canceled, "no"),
        ]
    )
    assert [await word(job) for job in (done_job, failed, dead, canceled)] == [
        ("done", None),
        ("error", None),
        ("error", "1"),
        ("canceled", None),
    ]
    assert await client.hget(f"job:{done_job.job_id}", "result") == '{"a":1}'
    assert json.loads(await client.hget(f"job:{failed.job_id}", "error") or "")["code"] == "fatal"
    jobs = await store.get([failed.job_id, dead.job_id])
    assert [job and job.status for job in jobs] == [Status.FAILED, Status.DEAD_LETTER]


async def test_the_message_is_gone_once_the_job_has_ended(store: RedisStore, client: Any) -> None:
    job = await claimed(store)
    assert await client.xlen("jobs:stream") == 1
    assert (await client.xpending("jobs:stream", "workers"))["pending"] == 1
    await store.settle([commands.succeed(job)])
    assert await client.xlen("jobs:stream") == 0
    assert (await client.xpending("jobs:stream", "workers"))["pending"] == 0
    types = [event["type"] for _, event in await client.xrange(f"job:{job.job_id}:events")]
    assert types == ["queued", "running", "done"]


async def test_a_retried_job_has_a_new_message(store: RedisStore, client: Any) -> None:
    job = await claimed(store)
    await store.settle([commands.release(job)])
    ((message_id, _),) = await client.xrange("jobs:stream")
    assert await client.hget(f"job:{job.job_id}", "msg") == message_id
    assert (await client.xpending("jobs:stream", "workers"))["pending"] == 0


async def test_a_cancelled_job_leaves_no_message_for_others(store: RedisStore, client: Any) -> None:
    await store.enqueue([new := new_job()])
    (job,) = await store.get([new.job_id])
    assert job is not None
    await store.settle([commands.cancel(job)])
    assert await client.xlen("jobs:stream") == 0


async def test_ttl_is_set_refreshed_and_kept_while_the_job_waits(store: RedisStore, client: Any) -> None:
    job = await claimed(store, ttl_s=1_000, contract="redis_gateway")
    keys = (f"job:{job.job_id}", f"job:{job.job_id}:events")

    async def wear_off() -> None:
        for key in keys:
            assert 0 < await client.ttl(key) <= 1_000
            await client.expire(key, 5)

    await wear_off()
    await store.settle([commands.progress(job, 10)])
    await wear_off()
    await store.promote()
    assert [await client.ttl(key) for key in keys] == [5, 5], "not due before half of the TTL"
    await store.promote(now=await store.now() + 600_000)
    assert all([await client.ttl(key) > 900 for key in keys])
    await store.settle([commands.succeed(job)])
    await wear_off()


async def test_jobs_of_other_contracts_do_not_expire_before_they_end(store: RedisStore, client: Any) -> None:
    job = await claimed(store, ttl_s=60)
    keys = [f"job:{job.job_id}", f"job:{job.job_id}:events"]
    await store.settle([commands.progress(job, 10)])
    assert [await client.ttl(key) for key in keys] == [-1, -1]
    await store.settle([commands.cancel(job)])
    assert all([0 < await client.ttl(key) <= 60 for key in keys])
    (ended_job,) = await store.get([job.job_id])
    assert ended_job is not None
    await store.settle([commands.requeue(ended_job)])
    assert [await client.ttl(key) for key in keys] == [-1, -1]


async def test_a_job_without_ttl_does_not_expire(store: RedisStore, client: Any) -> None:
    job = await claimed(store)
    await store.settle([commands.succeed(job)])
    assert await client.ttl(f"job:{job.job_id}") == -1
    assert await client.hget(f"job:{job.job_id}", "ttl_s") == "0"


async def test_prune_forgets_a_job_whose_keys_expired_by_themselves(store: RedisStore, client: Any) -> None:
    job = await claimed(store, ttl_s=60, requester_id="acme")
    await store.settle([commands.succeed(job)])
    await client.delete(f"job:{job.job_id}", f"job:{job.job_id}:events")
    assert await store.prune(ended_before=0, limit=10, now=await store.now() + 61_000) == 1
    assert await store.counts() == {}
    left = {key async for key in client.scan_iter()}
    assert left <= {"jobs:stream", "jobs:seq", "callsheet:schema"}


async def test_lines_of_other_queues_and_priorities(store: RedisStore, client: Any) -> None:
    await store.enqueue([new_job(queue="video"), new_job(queue="video", priority=7), new_job(priority=-1)])
    for stream in ("jobs:stream:video", "jobs:stream#7:video", "jobs:stream#-1:default"):
        assert await client.xlen(stream) == 1
    jobs = await store.claim(ClaimRequest("w", ("video", "default"), limit=9))
    assert [job.priority for job in jobs] == [7, 0, -1]
    await store.settle([commands.succeed(job) for job in jobs])
    assert await store.claim(ClaimRequest("w", ("video", "default"), limit=9)) == []
    assert await client.exists("jobs:stream#7:video", "jobs:priorities:video") == 0
