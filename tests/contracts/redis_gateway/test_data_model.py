"""Contract 001, "Redis Keys & Data Model": what our side writes, clause by clause, read with raw commands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import redis

from callsheet.engine import Engine
from callsheet.kernel import commands
from callsheet.kernel.job import Idempotency, Job, NewEvent
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import ClaimRequest

from . import HASH_FIELDS, KINDS, TERMINAL, events_of, fresh_url, gateway_job, pending, plain_client, ttls_of, types_of

ONE = ClaimRequest("w1")
TASKS = ("chat", "plan", "code", "tool", "rag", "embed")
OURS = {"contract", "max_attempts", "seq", "msg", "rare"}  # what stands beside the nine fields, see keys.py
FATAL = JobError("fatal", "no", retryable=False)
ENDS: dict[str, Callable[[Job], Settlement]] = {
    "done": lambda job: commands.succeed(job, '{"answer":"ü"}'),
    "error": lambda job: commands.fail(job, FATAL, rand=0),
    "canceled": lambda job: commands.cancel(job, "no"),
}
WRITES: dict[str, Callable[[Job], Settlement]] = {
    **ENDS,
    "progress": lambda job: commands.progress(job, 10),
    "stage": lambda job: commands.advance(job, "thinking"),
    "token": lambda job: commands.note(job, NewEvent("token", "llm", '{"text":"a"}')),
    "cancel_requested": lambda job: commands.request_cancel(job, "no"),
    "released": commands.release,
    "retrying": lambda job: commands.retry(job, JobError("503"), delay_ms=60_000),
}


@pytest_asyncio.fixture(params=KINDS)
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    async with Engine.from_url(fresh_url(request.param)) as engine:
        yield engine


@pytest_asyncio.fixture
async def client(engine: Engine) -> AsyncIterator[Any]:
    async with plain_client(engine.store.target.url) as client:  # type: ignore[attr-defined]
        yield client


async def running(engine: Engine, payload: str = "{}") -> Job:
    await engine.enqueue([gateway_job(payload)])
    (job,) = await engine.claim(ONE)
    return job


async def test_a_job_is_one_message_on_the_shared_stream(engine: Engine, client: Any) -> None:
    await engine.enqueue([gateway_job() for _ in range(3)])
    assert await client.type("jobs:stream") == "stream"
    assert await client.xlen("jobs:stream") == 3


@pytest.mark.parametrize("task", TASKS)
async def test_a_message_has_the_three_fields_and_no_other(engine: Engine, client: Any, task: str) -> None:
    new = gateway_job('{"prompt":"ü"}', task)
    await engine.enqueue([new])
    ((_, message),) = await client.xrange("jobs:stream")
    assert message == {"job_id": new.job_id, "task": task, "payload": '{"prompt":"ü"}'}


async def test_a_message_sent_again_has_the_same_fields(engine: Engine, client: Any) -> None:
    job = await running(engine, '{"n":1}')
    await engine.settle([commands.release(job)])
    ((_, message),) = await client.xrange("jobs:stream")
    assert message == {"job_id": job.job_id, "task": "chat", "payload": '{"n":1}'}


async def test_the_record_is_a_hash_and_the_events_are_a_stream(engine: Engine, client: Any) -> None:
    new = gateway_job()
    await engine.enqueue([new])
    assert await client.type(f"job:{new.job_id}") == "hash"
    assert await client.type(f"job:{new.job_id}:events") == "stream"


async def test_a_new_hash_has_the_nine_fields(engine: Engine, client: Any) -> None:
    new = gateway_job('{"prompt":"ü"}', "rag")
    before = await engine.store.now()
    await engine.enqueue([new])
    result = await client.hgetall(f"job:{new.job_id}")
    assert result.keys() == {*HASH_FIELDS, *OURS}
    at = result["created_ts"]
    assert before <= int(at) <= await engine.store.now()
    assert [result[name] for name in HASH_FIELDS] == [
        new.job_id,
        "rag",
        '{"prompt":"ü"}',
        "queued",
        at,
        at,
        "600",
        "",
        "",
    ]


@pytest.mark.parametrize("word", ENDS)
async def test_fields_are_strings_and_three_of_them_json(engine: Engine, client: Any, word: str) -> None:
    payload = {"prompt": "ü\n", "n": [1, 2.5, None, {"deep": True}]}
    job = await running(engine, json.dumps(payload))
    await engine.settle([ENDS[word](job)])
    result = await client.hgetall(f"job:{job.job_id}")
    assert json.loads(result["payload"]) == payload
    assert result["result"] == ('{"answer":"ü"}' if word == "done" else "")
    assert (json.loads(result["error"]) if result["error"] else {}) == (
        json.loads(FATAL.json()) if word == "error" else {}
    )
    assert all(result[name].isdigit() for name in ("created_ts", "updated_ts", "ttl_s"))


async def test_the_status_is_one_of_the_five_words(engine: Engine, client: Any) -> None:
    jobs = [await running(engine) for _ in range(5)]
    dead = jobs.pop()
    await engine.settle([end(job) for end, job in zip(ENDS.values(), jobs, strict=False)])
    await engine.settle([commands.retry(dead._replace(max_attempts=1), JobError("503"), delay_ms=0)])
    waiting = gateway_job()
    await engine.enqueue([waiting])
    ids = [*(job.job_id for job in jobs), dead.job_id, waiting.job_id]
    words = [await client.hget(f"job:{job_id}", "status") for job_id in ids]
    assert words == ["done", "error", "canceled", "running", "error", "queued"]


async def test_a_claim_is_running_with_its_time_and_its_event(engine: Engine, client: Any) -> None:
    job = await running(engine)
    assert await client.hmget(f"job:{job.job_id}", "status", "updated_ts") == ["running", str(job.updated_at)]
    assert (await events_of(client, job.job_id))[-1]["type"] == "running"


async def test_updated_ts_is_the_time_of_the_last_change(engine: Engine, client: Any) -> None:
    job = await running(engine)
    later = await engine.store.now() + 5_000
    await engine.settle([commands.succeed(job)], now=later)
    created_jobs, updated = await client.hmget(f"job:{job.job_id}", "created_ts", "updated_ts")
    assert (created_jobs, updated) == (str(job.created_at), str(later))


async def test_the_first_event_is_queued_by_the_gateway(engine: Engine, client: Any) -> None:
    new = gateway_job()
    await engine.enqueue([new])
    (event,) = await events_of(client, new.job_id)
    created_jobs = await client.hget(f"job:{new.job_id}", "created_ts")
    assert event == {"type": "queued", "ts": created_jobs, "step": "gateway.enqueue", "data": "{}", "progress": "0"}


@pytest.mark.parametrize("kind", WRITES)
async def test_an_event_has_the_four_fields_and_our_progress(engine: Engine, client: Any, kind: str) -> None:
    job = await running(engine)
    await engine.settle([WRITES[kind](job)])
    for event in await events_of(client, job.job_id):
        assert event.keys() == {"type", "ts", "step", "data", "progress"}
        assert len(event["ts"]) == 13
        assert event["ts"].isdigit()
        assert isinstance(json.loads(event["data"]), dict)
    assert event["type"] == kind


@pytest.mark.parametrize("word", ENDS)
async def test_every_end_has_one_terminal_event_of_its_word(engine: Engine, client: Any, word: str) -> None:
    job = await running(engine)
    await engine.settle([ENDS[word](job)])
    types = await types_of(client, job.job_id)
    assert [kind for kind in types if kind in TERMINAL] == [word] == types[-1:]
    assert await client.hget(f"job:{job.job_id}", "status") == word


async def test_both_keys_expire_from_the_start(engine: Engine, client: Any) -> None:
    new = gateway_job()
    await engine.enqueue([new])
    assert all(590 < ttl <= 600 for ttl in await ttls_of(client, new.job_id))


async def wear_off(client: Any, job_id: str) -> None:
    for key in (f"job:{job_id}", f"job:{job_id}:events"):
        await client.expire(key, 5)


@pytest.mark.parametrize("kind", WRITES)
async def test_every_update_refreshes_both_ttls(engine: Engine, client: Any, kind: str) -> None:
    new = gateway_job()
    await engine.enqueue([new])
    await wear_off(client, new.job_id)
    (job,) = await engine.claim(ONE)
    assert all(590 < ttl <= 600 for ttl in await ttls_of(client, new.job_id))
    await wear_off(client, new.job_id)
    await engine.settle([WRITES[kind](job)])
    assert all(590 < ttl <= 600 for ttl in await ttls_of(client, new.job_id))


async def test_a_job_that_waits_longer_than_its_ttl_is_not_lost(engine: Engine, client: Any) -> None:
    new = gateway_job()
    await engine.enqueue([new])
    await wear_off(client, new.job_id)
    await engine.store.promote(now=await engine.store.now() + 301_000)
    assert all(ttl > 590 for ttl in await ttls_of(client, new.job_id))


@pytest.mark.parametrize("ttl_s", [1, 2])
async def test_a_job_with_a_short_ttl_is_kept_until_it_has_ended(engine: Engine, client: Any, ttl_s: int) -> None:
    """A sweep renews what waits about once a second: such a TTL would expire earlier."""
    new = gateway_job()._replace(ttl_s=ttl_s)
    await engine.enqueue([new])
    assert all(2 < ttl <= 10 for ttl in await ttls_of(client, new.job_id)), "while it waits"
    for key in (f"job:{new.job_id}", f"job:{new.job_id}:events"):
        await client.persist(key)
    await engine.store.promote(now=await engine.store.now() + 5_000)
    assert all(ttl > 2 for ttl in await ttls_of(client, new.job_id)), "and when half of that is over"
    (job,) = await engine.claim(ClaimRequest("w1"))
    assert all(ttl > 2 for ttl in await ttls_of(client, new.job_id)), "while it runs"
    await engine.settle([commands.succeed(job)])
    assert all(ttl <= ttl_s for ttl in await ttls_of(client, new.job_id)), "then its own"


async def test_an_idempotency_key_is_kept_with_its_ttl(engine: Engine, client: Any) -> None:
    new = gateway_job(idempotency=Idempotency("order-7", "digest", ttl_s=900))
    await engine.enqueue([new])
    assert 890 < await client.ttl("idempotency:order-7") <= 900
    again = gateway_job(idempotency=Idempotency("order-7", "digest", ttl_s=900))
    (answer,) = await engine.enqueue([again])
    assert (answer.job_id, answer.created) == (new.job_id, False)
    assert await client.exists(f"job:{again.job_id}") == 0
    assert await client.xlen("jobs:stream") == 1


async def test_our_workers_are_consumers_of_the_group_workers(engine: Engine, client: Any) -> None:
    await running(engine)
    (group,) = await client.xinfo_groups("jobs:stream")
    assert (group["name"], group["pending"]) == ("workers", 1)
    assert [c["name"] for c in await client.xinfo_consumers("jobs:stream", "workers")] == ["w1"]


async def test_the_group_is_there_before_the_first_worker(engine: Engine, client: Any) -> None:
    await engine.enqueue([new := gateway_job()])
    with pytest.raises(redis.ResponseError, match="BUSYGROUP"):  # so a worker that begins at `$` misses nothing
        await client.xgroup_create("jobs:stream", "workers", id="$", mkstream=True)
    ((_, ((_, message),)),) = await client.xreadgroup("workers", "stranger", {"jobs:stream": ">"}, count=1)
    assert message["job_id"] == new.job_id


async def test_a_group_that_another_made_is_used_as_it_is(engine: Engine, client: Any) -> None:
    await client.xgroup_destroy("jobs:stream", "workers")
    await client.xgroup_create("jobs:stream", "workers", id="0", mkstream=True)
    job = await running(engine)
    assert await engine.get(job.job_id) == job
    assert len(await client.xinfo_groups("jobs:stream")) == 1


@pytest.mark.parametrize("word", ENDS)
async def test_a_message_is_acknowledged_when_its_job_has_ended_and_not_before(
    engine: Engine, client: Any, word: str
) -> None:
    job = await running(engine)
    await engine.settle([commands.progress(job, 50)])
    assert await pending(client) == 1
    await engine.settle([ENDS[word](job)])
    assert await pending(client) == 0
    assert await client.xlen("jobs:stream") == 0


@pytest.mark.parametrize("word", ENDS)
async def test_state_and_terminal_event_come_before_the_acknowledgement(engine: Engine, client: Any, word: str) -> None:
    await engine.settle([commands.release(await running(engine))])  # the server knows the script from here on
    (job,) = await engine.claim(ONE)
    key, seen = f"job:{job.job_id}", []
    async with client.monitor() as monitor:
        await engine.settle([ENDS[word](job)])
        await client.echo("nothing more")
        while (command := (await monitor.next_command())["command"]) != "ECHO nothing more":
            seen.append(command)
    (script,) = [n for n, command in enumerate(seen) if command.startswith("EVALSHA")]
    (state,) = [n for n, c in enumerate(seen) if c.startswith(f"HSET {key} ") and f" status {word} " in c]
    (event,) = [n for n, c in enumerate(seen) if c.startswith(f"XADD {key}:events ") and f" type {word} " in c]
    (ack,) = [n for n, command in enumerate(seen) if command.startswith("XACK jobs:stream workers ")]
    assert script < min(state, event) < max(state, event) < ack
