"""Three retries after about 1, 5 and 15 minutes, then `failed` until somebody asks. Tests set the clock."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from callsheet.contracts.cortana.jobs import start_job
from callsheet.contracts.cortana.models import pipeline_job
from callsheet.contracts.cortana.outcomes import outcome_of
from callsheet.engine import Engine
from callsheet.kernel.errors import InvalidInput, StoreUnavailable
from callsheet.kernel.job import Job, Status
from callsheet.objects import ObjectNotFound
from callsheet.objects.errors import ObjectsForbidden, ObjectsUnavailable
from callsheet.store.protocol import ClaimRequest
from callsheet.worker.execute import after_error
from callsheet.worker.signals import Fatal, Retry
from tests import stores
from tests.store_driver import T0

VIDEO = str(uuid.uuid4())
MINUTE_MS = 60_000


async def claimed(engine: Engine, now: int) -> Job | None:
    jobs = await engine.claim(ClaimRequest("w", lease_ms=MINUTE_MS), now=now)
    return jobs[0] if jobs else None


async def failed_once(engine: Engine, now: int, error: Exception) -> dict[str, Any]:
    """Return the job in contract words after one failed attempt."""
    job = await claimed(engine, now)
    assert job is not None
    await engine.settle([after_error(job, error)], now=now)
    return pipeline_job(await engine.get(job.job_id))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_job_is_tried_again_after_one_five_and_fifteen_minutes_and_then_stays_failed(kind: str) -> None:
    again = Retry("the storage is away", code="unavailable")
    async with Engine.from_url(stores.ready_url(kind)) as engine:
        new = start_job(VIDEO, "acme")
        await engine.enqueue([new], now=T0)
        now = T0
        for retries, minutes in enumerate((1, 5, 15), start=1):
            payload = await failed_once(engine, now, again)
            assert (payload["status"], payload["retry_count"]) == ("queued", retries)
            due = (await engine.get(new.job_id)).run_at
            assert 0.8 * minutes * MINUTE_MS - 1 <= due - now <= 1.2 * minutes * MINUTE_MS + 1
            assert await claimed(engine, due - 1) is None, "it is not due"
            now = due
        payload = await failed_once(engine, now, again)
        assert (payload["status"], payload["retry_count"], payload["payload"]["error"]["retry_count"]) == (
            "failed",
            3,
            3,
        )
        assert (await engine.get(new.job_id)).status is Status.DEAD_LETTER
        assert await claimed(engine, now + 10**9) is None, "nobody takes it by itself"
        assert pipeline_job(await engine.requeue(new.job_id, now=now))["status"] == "queued"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ObjectNotFound("videos/original/x/master.mp4"), "S3ObjectNotFound"),
        (ObjectsForbidden("the storage said no"), "ObjectsForbidden"),
        (InvalidInput("no such range"), "InvalidPayload"),
        (Fatal("not a frame of this video", code="invalid_payload"), "InvalidPayload"),
        (Fatal("not ours", code="forbidden"), "Forbidden"),
    ],
)
async def test_what_cannot_get_better_is_not_tried_again(error: Exception, message: str) -> None:
    async with Engine.from_url(stores.ready_url("sqlite")) as engine:
        await engine.enqueue([start_job(VIDEO, "acme")], now=T0)
        ends = error if isinstance(error, Fatal) else outcome_of(error, 1)
        payload = await failed_once(engine, T0, ends)
        assert (payload["status"], payload["retry_count"], payload["payload"]["error"]["type"]) == (
            "failed",
            0,
            message,
        )
        assert await claimed(engine, T0 + 10**9) is None


@pytest.mark.parametrize("error", [TimeoutError(), RuntimeError("a bug")])
def test_what_may_get_better_is_tried_again(error: Exception) -> None:
    assert isinstance(outcome_of(error, 1), Retry)


@pytest.mark.parametrize("error", [ObjectsUnavailable("no answer"), StoreUnavailable("no answer")])
def test_what_is_away_is_waited_for(error: Exception) -> None:
    assert outcome_of(error, 1) is error
