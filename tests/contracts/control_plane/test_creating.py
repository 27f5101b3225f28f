"""HTTP requests create jobs for workers of contract 003 in any queue, with their own attempt budget."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callsheet.contracts.control_plane import routes
from callsheet.contracts.redis_gateway import routes as gateway
from tests import stores
from tests.http.live import Live, serving

from .remote import Answer, Remote


@pytest.fixture(params=("sqlite", "postgres", "redis"))
async def live(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    routers = [routes.router, gateway.direct, gateway.router]
    async with serving(stores.ready_url(str(request.param)), routers=routers) as live:
        yield live


async def create(live: Live, **fields: object) -> Answer:
    answer = await live.client.post("/v1/jobs", json={"contract": "control_plane", **fields})
    body: Answer = {"status": answer.status_code, **answer.json()}
    return body


async def test_a_job_is_created_in_its_queue_with_its_budget(live: Live) -> None:
    job = await create(live, task="resize", payload=[1], queue="media", max_attempts=1)
    worker = Remote(live)
    claim = await worker.claim("media")
    assert (claim["job_id"], claim["task"], claim["payload"], claim["max_attempts"]) == (
        job["job_id"],
        "resize",
        [1],
        1,
    )
    assert (await worker.say("fail", claim, error={"code": "a", "retryable": True})).json()["dlq"]


@pytest.mark.parametrize("contract", ["nope", "", 3, "aura", "euterpe"])
async def test_another_contract_is_refused_by_its_field(live: Live, contract: object) -> None:
    answer = await live.client.post("/v1/jobs", json={"contract": contract, "task": "resize", "payload": {}})
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")
    assert answer.json()["errors"][0]["where"] == "contract"


async def test_a_job_of_the_gateway_may_name_its_budget(live: Live) -> None:
    body = {"task": "chat", "payload": {"prompt": "a"}, "max_attempts": 7, "queue": "slow"}
    reply = (await live.client.post("/v1/jobs", json=body)).json()
    job = await live.engine.get(reply["job_id"])
    assert (job.max_attempts, job.queue, job.contract) == (7, "slow", "redis_gateway")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"task": "chat"}, 403),
        ({"task": "resize", "max_attempts": 0}, 422),
        ({"task": "resize", "queue": ""}, 422),
        ({"task": "resize", "queue": "media@somebody"}, 422),
        ({"task": "resize", "priority": 40_000}, 422),
        ({}, 422),
    ],
)
async def test_what_is_not_its_own_is_refused(live: Live, body: Answer, status: int) -> None:
    answer = await create(live, **body)
    assert answer["status"] == status, answer
    assert not (await Remote(live).claim("default", "media"))["claimed"]
