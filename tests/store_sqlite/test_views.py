"""The views that both SQL stores have: leases, attempts and jobs by the names of contract 003."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import Job
from callsheet.kernel.retry import JobError
from callsheet.store.postgres import PostgresStore
from callsheet.store.protocol import Store
from callsheet.store.sqlite import SqliteStore
from tests import stores
from tests.store_driver import T0, StoreDriver


async def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    result: Sequence[Sequence[Any]]
    if isinstance(store, PostgresStore):
        result = await store._db.fetch(sql)
    else:
        assert isinstance(store, SqliteStore)
        result = await store._reader.run(lambda db: db.execute(sql).fetchall())
    return [tuple(str(value) if value is not None else None for value in row) for row in result]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_leases_and_attempts_have_views(kind: str) -> None:
    store = await stores.open_store(stores.fresh_url(kind))
    try:
        driver = StoreDriver(store)
        await driver.add(max_attempts=3)
        failed_job = await driver.claim_one(worker="w1~5ec2e7")
        await driver.settle(commands.fail(failed_job, JobError("x"), rand=0)._replace(delay_ms=0))
        running = await driver.claim_one(worker="w2~5ec2e7")
        (lease,) = await rows(store, "SELECT job_id, attempt_id, worker_id FROM job_leases")
        assert lease == (running.job_id, "2", "w2")
        (times,) = await rows(store, "SELECT lease_expires_at, heartbeat_at FROM job_leases")
        assert all(time.startswith("2027-01-15") for time in times)  # T0
        assert T0 == 1_800_000_000_000
        attempts = (
            "SELECT attempt_id, attempt, worker_id, outcome, ended_at IS NULL FROM job_attempts_all ORDER BY attempt_id"
        )
        before = await rows(store, attempts)
        assert [row[:4] for row in before] == [("1", "1", "w1", "retried"), ("2", "2", "w2", None)]
        await driver.done(running)
        after = await rows(store, attempts)
        assert [row[:4] for row in after] == [("1", "1", "w1", "retried"), ("2", "2", "w2", "succeeded")]
        assert await rows(store, "SELECT 1 FROM job_leases") == []
        (job,) = await rows(store, "SELECT id, status, job_type, attempts FROM jobs")
        assert job == (running.job_id, "succeeded", "resize", "2")
    finally:
        await store.close()


async def moved(driver: StoreDriver, job: Job, stage: str) -> Job:
    await driver.settle(commands.advance(job, stage))
    return await driver.get(job.job_id)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_transcoding_jobs_have_a_view_in_the_words_of_contract_000(kind: str) -> None:
    store = await stores.open_store(stores.fresh_url(kind))
    status = "SELECT status FROM euterpe_jobs"
    try:
        driver = StoreDriver(store)
        await driver.add(kind="transcode", contract="euterpe", max_attempts=2, requester_id="acme")
        await driver.add(kind="other", queue="elsewhere")
        assert await rows(store, status) == [("queued",)]
        words = []
        job = await driver.claim_one(worker="w1~5ec2e7")
        words += await rows(store, status)
        for stage in ("fetching", "processing", "uploading"):
            job = await moved(driver, job, stage)
            words += await rows(store, status)
        assert [word for (word,) in words] == ["claimed", "fetching", "processing", "uploading"]
        names = "job_id, requester_id, worker_id, claim_version, attempt_count, max_attempts, credential_version"
        (row,) = await rows(store, f"SELECT {names} FROM euterpe_jobs")
        assert row == (job.job_id, "acme", "w1", "1", "1", "2", "0")
        lease = f"SELECT 1 FROM euterpe_jobs WHERE lease_expires_at < {job.lease_expires_at} + 1"
        assert await rows(store, lease) == [("1",)]
        fence = f"SELECT status FROM euterpe_jobs WHERE job_id = '{job.job_id}' AND claim_version = 1"
        await driver.settle(commands.retry(job, JobError("503"), delay_ms=0))
        assert await rows(store, fence) == [("queued",)]
        job = await driver.claim_one(worker="w2")
        assert await rows(store, status) == [("claimed",)], "the stage of the attempt before is over"
        await driver.settle(commands.retry(job, JobError("503"), delay_ms=0))
        assert await rows(store, status) == [("dead_letter",)]
    finally:
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("ends", ["succeeded", "failed"])
async def test_a_transcoding_job_that_has_ended_is_so_in_the_view(kind: str, ends: str) -> None:
    store = await stores.open_store(stores.fresh_url(kind))
    try:
        driver = StoreDriver(store)
        await driver.add(kind="transcode", contract="euterpe", max_attempts=2)
        job = await driver.claim_one()
        for stage in ("fetching", "processing", "uploading"):
            job = await moved(driver, job, stage)
        fatal = commands.fail(job, JobError("not_media", retryable=False), rand=0)
        await driver.settle(commands.succeed(job, "null") if ends == "succeeded" else fatal)
        result = await rows(store, "SELECT status, ended_at IS NOT NULL AND lease_expires_at IS NULL FROM euterpe_jobs")
        assert result in ([(ends, "1")], [(ends, "True")])
    finally:
        await store.close()
