"""The contract's view `jobs` over the engine's jobs, on both databases."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any, NamedTuple

import pytest

from callsheet.catalog import migrate_catalog, open_catalog
from callsheet.catalog.postgres.store import PostgresCatalog
from callsheet.catalog.protocol import Catalog
from callsheet.contracts.cortana.models import pipeline_job
from callsheet.kernel import commands
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import Store
from tests import stores
from tests.catalog.sql import run
from tests.store_driver import T0, StoreDriver

VIDEO = "a1b2c3d4-e5f6-7890-abcd-ef1234567890"
ASKED = "video_id, job_type, status, payload, retry_count, created_at, updated_at"
LEASE = "locked_by, locked_until, priority, depends_on"
COLUMNS = ["id", *ASKED.split(", "), *LEASE.split(", ")]


class Both(NamedTuple):
    store: Store
    catalog: Catalog


@pytest.fixture
async def both(fresh_url: str) -> AsyncIterator[Both]:
    store = await stores.open_store(fresh_url)
    await migrate_catalog(fresh_url)
    catalog = open_catalog(fresh_url)
    await catalog.open()
    yield Both(store, catalog)
    await catalog.close()
    await store.close()


async def jobs(both: Both) -> dict[str, dict[str, Any]]:
    rows = await run(both.catalog, f"SELECT {', '.join(COLUMNS)} FROM jobs")
    return {str(row[0]): dict(zip(COLUMNS, row, strict=True)) for row in rows}


def of_video(job_type: str, **fields: Any) -> dict[str, Any]:
    payload = json.dumps({"video_id": VIDEO, "languages": ["eng"]})
    key = None if job_type == "clip_generate" else f"video:{VIDEO}:{job_type}"
    return {"kind": f"video.{job_type}", "contract": "cortana", "payload": payload, "unique_key": key, **fields}


async def test_jobs_of_videos_are_told_in_the_contracts_words(both: Both) -> None:
    driver = StoreDriver(both.store)
    waits = await driver.add(**of_video("sample", queue="later", priority=3))
    done_job = await driver.running(**of_video("transcode"))
    await driver.done(done_job)
    runs = await driver.running(**of_video("ocr"))
    await driver.add(kind="resize")
    await driver.add(kind="video.blur", contract="cortana")
    views = await jobs(both)
    assert {(j["job_type"], j["status"]) for j in views.values()} == {
        ("sample", "queued"),
        ("transcode", "done"),
        ("ocr", "processing"),
    }
    assert {str(j["video_id"]) for j in views.values()} == {VIDEO}
    assert json.loads(views[waits]["payload"]) == {"video_id": VIDEO, "languages": ["eng"]}
    assert (views[waits]["priority"], views[waits]["retry_count"], views[waits]["depends_on"]) == (3, 0, None)
    assert views[waits]["locked_by"] is views[waits]["locked_until"] is None
    assert views[runs.job_id]["locked_by"] == "w1"
    assert str(views[runs.job_id]["locked_until"]).startswith("2027-01-15")
    assert all(str(j["created_at"]).startswith("2027-01-15") for j in views.values())  # T0
    assert T0 == 1_800_000_000_000


async def test_a_failed_job_tells_its_error_and_what_it_was_asked(both: Both) -> None:
    driver = StoreDriver(both.store)
    await driver.add(**of_video("ocr", max_attempts=2))
    error = JobError("s3_object_not_found", "Original video not found", retryable=True)
    first = await driver.claim_one()
    await driver.settle(commands.fail(first, error, rand=0)._replace(delay_ms=0))
    waits = (await jobs(both))[first.job_id]
    assert (waits["status"], waits["retry_count"]) == ("queued", 1)
    assert "error" not in json.loads(waits["payload"])
    second = await driver.claim_one()
    await driver.settle(commands.fail(second, error, rand=0))
    failed_job = (await jobs(both))[first.job_id]
    assert (failed_job["status"], failed_job["retry_count"]) == ("failed", 1)
    assert json.loads(failed_job["payload"]) == {
        "error": {
            "type": "S3ObjectNotFound",
            "message": "Original video not found",
            "timestamp": "2027-01-15T08:00:00Z",
            "retry_count": 1,
        },
        "original_payload": {"video_id": VIDEO, "languages": ["eng"]},
    }


async def test_the_view_and_the_api_tell_the_same(both: Both) -> None:
    driver = StoreDriver(both.store)
    for error in ("s3_object_not_found", "RuntimeError", 'odd "code\\_', "x"):
        await driver.settle(
            commands.fail(await driver.running(**of_video("ocr")), JobError(error, retryable=False), rand=0)
        )
    await driver.settle(commands.cancel(await driver.running(**of_video("ocr")), "not needed"))
    again = await driver.running(**of_video("sample"))
    await driver.settle(commands.fail(again, JobError("x"), rand=0))
    for job_id, row in (await jobs(both)).items():
        job_view = pipeline_job(await driver.get(job_id))
        record = json.loads(row["payload"])
        assert (row["status"], row["retry_count"]) == (job_view["status"], job_view["retry_count"])
        assert record.get("error", {}).get("type") == job_view["payload"].get("error", {}).get("type")
        assert record.get("error", {}).get("message") == job_view["payload"].get("error", {}).get("message")


async def test_a_canceled_job_is_a_failed_one(both: Both) -> None:
    driver = StoreDriver(both.store)
    await driver.settle(commands.cancel(await driver.running(**of_video("ocr")), "not needed"))
    (entry,) = (await jobs(both)).values()
    assert entry["status"] == "failed"
    error = json.loads(entry["payload"])["error"]
    assert (error["type"], error["message"]) == ("Canceled", "not needed")


async def test_one_job_of_a_type_is_active_for_a_video(both: Both) -> None:
    driver = StoreDriver(both.store)
    first = await driver.add(**of_video("ocr"))
    assert await driver.add(**of_video("ocr")) == first
    assert await driver.add(**of_video("sample")) != first
    clips = {await driver.add(**of_video("clip_generate")) for _ in range(3)}
    assert len(clips) == 3
    assert len(await jobs(both)) == 5
    await driver.done((await driver.claim(limit=1))[0])
    assert await driver.add(**of_video("ocr")) != first


async def test_a_payload_of_any_kind_can_be_told(both: Both) -> None:
    driver = StoreDriver(both.store)
    for odd in ("null", "[]", '"x"', '{"video_id": 5}', '{"video_id": "no uuid"}', '{"a": "\\u0000"}'):
        await driver.add(**of_video("clip_generate", payload=odd))
    assert len(await jobs(both)) == 6


async def test_a_waiting_job_tells_what_it_waits_for(both: Both) -> None:
    driver = StoreDriver(both.store)
    first = await driver.add(**of_video("transcode"))
    second = await driver.add(**of_video("sample", depends_on=(first,)))
    assert str((await jobs(both))[second]["depends_on"]) == first


async def test_the_contracts_poll_uses_the_contracts_index(both: Both) -> None:
    if not isinstance(both.catalog, PostgresCatalog):
        return  # the contract's index is for PostgreSQL
    driver = StoreDriver(both.store)
    for n in range(3):
        await driver.add(**of_video("transcode", unique_key=str(uuid.uuid4()), priority=n))
    poll = "SELECT id FROM jobs WHERE status = 'queued' AND job_type = 'transcode' ORDER BY created_at ASC LIMIT 1"
    db = both.catalog._db
    async with db._session() as session:
        await session.execute(files("callsheet.catalog.postgres").joinpath("index_jobs.sql").read_text("utf-8"))

    async def explain(session: Any) -> str:
        await session.execute("SET LOCAL enable_seqscan = off")
        return "\n".join(line for (line,) in await session.fetch(f"EXPLAIN {poll} FOR UPDATE SKIP LOCKED"))

    plan = await db.transact(explain)
    assert "idx_jobs_status_type_created" in plan
    assert "Sort" not in plan
    assert len(await db.fetch(f"{poll} FOR UPDATE SKIP LOCKED")) == 1
