"""Reports of a tenant's worker about its own jobs: no number breaks the server, no id or quota is got around."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet.engine.schedules import Schedule, put_schedule
from callsheet.kernel.job import Status
from tests import stores
from tests.security.estate import STRANGER, Town, town
from tests.store_driver import new_job

HUGE = (10**30, 2**63, 2**62)


@pytest.fixture(params=stores.THREE)
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Town]:
    async with town(request.param, tmp_path) as here:
        yield here


async def held(here: Town, worker: httpx2.AsyncClient) -> dict[str, Any]:
    """Claim a job of the stranger; return its proof for moves."""
    await here.live.engine.enqueue([new_job(requester_id=STRANGER, contract="control_plane", queue="odd")])
    body = {"worker_id": "w9", "streams": ["odd"]}
    claim = (await worker.post("/internal/worker/claim", json=body)).json()
    assert claim["claimed"], claim
    return {name: claim[name] for name in ("job_id", "attempt_id", "lease_token")}


@pytest.mark.parametrize(
    "move",
    [
        *({"do": "complete", "follow_ups": [{"task": "x", name: n}]} for n in HUGE for name in ("delay_ms", "run_at")),
        *({"do": "complete", "follow_ups": [{"task": "x", "max_attempts": n}]} for n in HUGE),
    ],
    ids=str,
)
async def test_a_number_that_no_store_can_keep_is_refused(here: Town, move: dict[str, Any]) -> None:
    async with await here.live.key(STRANGER, scopes=["worker"]) as worker:
        proof = await held(here, worker)
        answer = await worker.post("/internal/worker/moves", json={"worker_id": "w9", "moves": [{**proof, **move}]})
        assert answer.status_code == 422, answer.text
        assert answer.json()["code"] == "validation_failed"


@pytest.mark.parametrize("count", [10**400, -(10**400), 1e308, 2**63])
@pytest.mark.parametrize("end", ["fail", "release"])
async def test_no_number_keeps_an_end_from_being_told(here: Town, end: str, count: float) -> None:
    """The report of an end is never refused: else the lease runs out, and a job that has ended runs again."""
    async with await here.live.key(STRANGER, scopes=["worker"]) as worker:
        proof = await held(here, worker)
        move_fields = {"retry_in_ms": count, "delay_ms": count, "error": {"code": count, "details": {"a": count}}}
        body = {"worker_id": "w9", "moves": [{**proof, "do": end, **move_fields}]}
        answer = await worker.post("/internal/worker/moves", json=body)
        assert (answer.status_code, answer.json()["ok"]) == (200, True), answer.text
        job = await here.live.engine.get(proof["job_id"])
        assert (job.status, job.run_at >= job.created_at) == (Status.QUEUED, True)


async def test_a_worker_cannot_make_its_job_wait_for_ever(here: Town) -> None:
    """The waited time of a job is server state: error details never override it."""
    async with await here.live.key(STRANGER, scopes=["worker"]) as worker:
        proof = await held(here, worker)
        details = {"waits_for": "storage", "waits": -1, "waited_ms": -(10**15)}
        fail = {**proof, "do": "fail", "retry_in_ms": 0, "error": {"code": "x", "retryable": True, "details": details}}
        await worker.post("/internal/worker/moves", json={"worker_id": "w9", "moves": [fail]})
        body = {"worker_id": "w9", "streams": ["odd"]}
        claim = (await worker.post("/internal/worker/claim", json=body)).json()
        again = {name: claim[name] for name in ("job_id", "attempt_id", "lease_token")}
        wait = {**again, "do": "release", "waits_for": "storage", "error": {"code": "x"}}
        answer = await worker.post("/internal/worker/moves", json={"worker_id": "w9", "moves": [wait]})
        assert answer.json()["ok"], answer.text
        record = json.loads((await here.live.engine.get(proof["job_id"])).error or "")["details"]
        assert (record["waits_for"], record["waits"]) == ("storage", 1)
        assert 0 < record["waited_ms"] <= 60_000


async def test_a_worker_cannot_take_the_id_of_a_schedules_next_job(here: Town) -> None:
    store = here.live.engine.store
    await put_schedule(store, Schedule("nightly", "0 3 * * *", "report"))
    async with await here.live.key(STRANGER, scopes=["worker"]) as worker:
        for job_id in (str(uuid.uuid5(uuid.NAMESPACE_URL, "nightly")), "x", here.estate.queued_id.upper() + "0"):
            move = {"do": "complete", "follow_ups": [{"task": "x", "job_id": job_id}]}
            proof = await held(here, worker)
            answer = await worker.post("/internal/worker/moves", json={"worker_id": "w9", "moves": [{**proof, **move}]})
            (body,) = answer.json()["answers"]
            assert (body["ok"], body["code"]) == (False, "validation_failed"), body


async def test_follow_ups_wait_for_the_slots_of_their_tenant(here: Town) -> None:
    await here.live.state.quotas.set(STRANGER, {"running": 1})
    async with await here.live.key(STRANGER, scopes=["worker"]) as worker:
        proof = await held(here, worker)
        move = {"do": "complete", "follow_ups": [{"task": "x", "queue": "odd"}] * 5}
        answer = await worker.post("/internal/worker/moves", json={"worker_id": "w9", "moves": [{**proof, **move}]})
        assert answer.json()["ok"], answer.text
        body = {"worker_id": "w9", "streams": ["odd"], "max_jobs": 5}
        claim = (await worker.post("/internal/worker/claim", json=body)).json()
        assert len(claim["jobs"]) == 1
