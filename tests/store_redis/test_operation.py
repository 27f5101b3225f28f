"""Life with a real server: prefixes, lost groups and scripts, restarts, settings, exact counts."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.errors import IllegalMove, SchemaMismatch, StoreUnavailable, UnknownStore
from callsheet.kernel.job import Claim, Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, Hint, JobQuery
from callsheet.store.redis import RedisStore
from callsheet.store.redis.keys import SCHEMA_NAMES, idempotency_name
from tests import stores
from tests.servers import RedisServer
from tests.store_driver import StoreDriver, new_job

ONE = ClaimRequest("w1")


async def test_all_keys_of_a_store_carry_its_prefix(client: Any, store: RedisStore) -> None:
    await store.close()
    await client.flushdb()
    prefixed = await RedisStore.from_url(f"{store.target.url}?prefix={{cs0}}:").open()
    await prefixed.enqueue([new_job(ttl_s=60, requester_id="a", priority=3, unique_key="u"), new_job(delay_ms=5)])
    (job,) = await prefixed.claim(ONE)
    await prefixed.settle([commands.succeed(job)])
    keys = [key async for key in client.scan_iter()]
    assert keys
    assert [key for key in keys if not key.startswith("{cs0}:")] == []
    await client.set("mine", "1")
    await prefixed.empty()
    assert {key async for key in client.scan_iter()} == {"mine", "{cs0}:callsheet:schema"}
    await prefixed.close()


async def test_a_flushed_server_is_used_again(store: RedisStore, client: Any) -> None:
    await store.enqueue([new_job()])
    await store.claim(ONE)
    await client.flushdb()
    await client.script_flush()
    new = new_job()
    await store.enqueue([new])
    assert [job.job_id for job in await store.claim(ONE)] == [new.job_id]


async def test_counts_are_exact_after_random_moves(store: RedisStore) -> None:
    rng = random.Random(20260731)
    ids = [e.job_id for e in await store.enqueue([new_job(queue=rng.choice("ab")) for _ in range(60)])]
    moves: list[Any] = [commands.succeed, commands.cancel, commands.requeue, commands.release, commands.request_cancel]
    for _ in range(40):
        await store.claim(ClaimRequest("w", ("a", "b"), limit=rng.randint(1, 5)))
        settlements = []
        for job in await store.get(rng.sample(ids, 8)):
            assert job is not None
            try:
                settlements.append(rng.choice(moves)(job))
            except IllegalMove:
                continue
        await store.settle(settlements)
        truth = Counter((job.queue, job.status) for job in await store.get(ids) if job)
        counts = {(q, s): n for q, of_queue in (await store.counts()).items() for s, n in of_queue.items()}
        assert counts == truth


async def test_the_stream_holds_what_waits_and_runs_and_nothing_else(store: RedisStore, client: Any) -> None:
    await store.enqueue([new_job() for _ in range(20)])
    jobs = await store.claim(ClaimRequest("w", limit=10))
    await store.settle([commands.release(job) if i % 2 else commands.succeed(job) for i, job in enumerate(jobs)])
    assert await client.xlen("jobs:stream") == 15
    while again := await store.claim(ClaimRequest("w", limit=7)):
        await store.settle([commands.succeed(job) for job in again])
    assert await client.xlen("jobs:stream") == 0
    assert (await store.counts())["default"] == {Status.SUCCEEDED: 20}


async def test_a_store_works_again_after_its_server_restarted() -> None:
    with RedisServer.start(settings={"appendfsync": "always"}) as server:
        store = await RedisStore.from_url(server.fresh_url()).open()
        hints: Any = store.hints()
        waiting = asyncio.ensure_future(anext(hints))
        (first,) = await store.enqueue([new_job()])
        await waiting
        server.kill9()
        with pytest.raises(StoreUnavailable):
            await store.claim(ONE)
        server.start_again()
        (job,) = await store.claim(ONE)
        assert job.job_id == first.job_id
        assert (await store.heartbeat([Claim(job.job_id, 1)], lease_ms=10))[0].held
        await hints.aclose()
        await store.close()
        await store.close()


async def test_hints_cross_processes(store: RedisStore) -> None:
    other = await RedisStore.from_url(store.target.url).open()
    hints: Any = other.hints()
    assert await anext(hints) == Hint(), "subscribed: anything may have happened before"
    (job,) = await store.enqueue([new_job(queue="video")])
    assert await anext(hints) == Hint(frozenset({"video"}))
    (claimed_job,) = await store.claim(ClaimRequest("w", ("video",)))
    assert (await anext(hints)).jobs == {job.job_id}
    await store.settle([commands.succeed(claimed_job)])
    assert (await anext(hints)).jobs == {job.job_id}
    await hints.aclose()
    await other.close()


async def test_a_newer_schema_is_refused(store: RedisStore, client: Any) -> None:
    await client.set("callsheet:schema", "99")
    with pytest.raises(SchemaMismatch):
        await RedisStore.from_url(store.target.url).open()


async def test_migrate_tells_what_ran() -> None:
    store = RedisStore.from_url(stores.fresh_url("redis"))
    assert await store.migrate() == list(SCHEMA_NAMES.values())
    assert await store.migrate() == []
    await store.close()


async def test_queued_jobs_of_an_older_schema_are_counted(store: RedisStore, client: Any) -> None:
    driver = StoreDriver(store)
    await driver.running(requester_id="acme")
    await driver.add(requester_id="acme")
    await client.delete("jobs:queued", "jobs:queued:acme")
    await client.set("callsheet:schema", "3")
    assert await store.migrate() == ["0004_quotas_and_audit"]
    assert await store.queued_of(["acme", ""], most=9) == [1, 0]


async def test_a_lapsed_job_does_not_use_up_a_quota_for_ever(store: RedisStore, client: Any) -> None:
    driver = StoreDriver(store)
    lapsed_id = await driver.add(requester_id="acme")
    await client.delete(f"job:{lapsed_id}")
    await store.enqueue([new_job(requester_id="acme")], quotas={"acme": 1})
    assert await store.queued_of(["acme"], most=9) == [1]


async def test_dead_letters_of_an_older_schema_are_listed(store: RedisStore, client: Any) -> None:
    driver = StoreDriver(store)
    job = await driver.running(max_attempts=1)
    await driver.settle(commands.fail(job, JobError("x"), rand=0))
    await client.delete("jobs:dead")
    await client.set("callsheet:schema", "2")
    assert await store.migrate() == ["0003_dead_letters", "0004_quotas_and_audit"]
    (dead,) = (await store.find(JobQuery(statuses=(Status.DEAD_LETTER,)))).jobs
    assert dead.job_id == job.job_id


async def test_settings_that_may_lose_jobs_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer.start(settings={"appendonly": "no", "maxmemory-policy": "allkeys-lru"}) as server:
        with caplog.at_level(logging.WARNING):
            store = await RedisStore.from_url(server.fresh_url()).open()
        assert store.durability == "Redis, memory only (appendonly=no)"
        assert "noeviction" in caplog.text
        assert "append-only" in caplog.text
        await store.close()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    store = RedisStore.from_url("redis://127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable):
        await store.open()
    await store.close()


@pytest.mark.parametrize("url", ["redis://h/0?colour=red", "redis://h/0?foreign_idle_ms=soon"])
def test_unknown_options_are_refused(url: str) -> None:
    with pytest.raises(UnknownStore):
        RedisStore.from_url(url)


def test_no_two_requesters_share_an_idempotency_key() -> None:
    pairs = [("", "k"), ("", "a:k"), ("a", "k"), ("a:k", "x"), ("a", "k:x"), ("a%3Ak", "x")]
    assert len({idempotency_name(*pair) for pair in pairs}) == len(pairs)
    assert idempotency_name("", "k-1") == "idempotency:k-1"


async def test_valkey_serves_too() -> None:
    with RedisServer.start(kind="valkey", settings={"appendfsync": "everysec"}) as server:
        store = await RedisStore.from_url(server.fresh_url().replace("redis://", "valkey://")).open()
        await store.enqueue([new_job(ttl_s=60), new_job(priority=2, delay_ms=1), new_job(concurrency_key="c")])
        jobs = await store.claim(ClaimRequest("w", limit=5), now=await store.now() + 100)
        assert len(jobs) == 3
        await store.settle([commands.succeed(jobs[0]), commands.release(jobs[1]), commands.cancel(jobs[2])])
        assert await store.promote() == 0
        assert sum((await store.counts())["default"].values()) == 3
        await store.close()
