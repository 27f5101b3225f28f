"""Contract 001, `idempotency:{key}`: what another gateway, or anybody, has written under the key of a request.

The contract names the key and its TTL, not its type. A value that names a job of the same requester is honoured; other
keys are ignored.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from callsheet.kernel.job import Idempotency
from tests.http.live import Live, serving

from . import KINDS, foreign_job, fresh_url, gateway_job, plain_client

KEY = "idempotency:order-7"
BODY = {"task": "chat", "payload": {"prompt": "hi"}}


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    return fresh_url(request.param)


@pytest_asyncio.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with serving(url) as live:
        yield live


@pytest_asyncio.fixture
async def redis(url: str) -> AsyncIterator[Any]:
    async with plain_client(url) as client:
        yield client


async def post(client: httpx2.AsyncClient, key: str = "order-7", **body: Any) -> httpx2.Response:
    return await client.post("/v1/jobs", json={**BODY, **body}, headers={"Idempotency-Key": key})


async def is_a_new_job(live: Live, answer: httpx2.Response) -> None:
    """Assert that a new, readable job exists and the key now refers to it."""
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["job_id"]
    assert answer.headers["location"] == f"/v1/jobs/{job_id}"
    assert "idempotency-replayed" not in answer.headers
    assert (await live.client.get(f"/v1/jobs/{job_id}")).status_code == 200
    again = await post(live.client)
    assert (again.status_code, again.json()["job_id"]) == (202, job_id)
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("key", ["order-7", "shop:7", "100%:7"])
@pytest.mark.parametrize("as_hash", [False, True])
async def test_a_key_of_another_gateway_answers_with_its_job(
    live: Live, redis: Any, key: str, *, as_hash: bool
) -> None:
    job_id = await foreign_job(redis, changed={"ttl_s": "900"})
    if as_hash and key == "order-7":
        await redis.hset(f"idempotency:{key}", mapping={"job_id": job_id})
    else:
        await redis.set(f"idempotency:{key}", job_id, ex=900)
    answer = await post(live.client, key)
    assert (answer.status_code, answer.headers["idempotency-replayed"]) == (202, "true")
    assert answer.headers["location"] == f"/v1/jobs/{job_id}"
    body = answer.json()
    assert (body["job_id"], body["task"], body["ttl_s"]) == (job_id, "chat", 900)
    assert body["links"]["self"] == f"/v1/jobs/{job_id}"
    assert (await live.client.get(body["links"]["self"])).status_code == 200


async def test_a_key_of_another_gateway_with_another_task_is_a_conflict(live: Live, redis: Any) -> None:
    await redis.set(KEY, await foreign_job(redis, task="embed"))
    answer = await post(live.client)
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")


ODD = {
    "a job that is gone": str(uuid.UUID(int=7)),
    "nothing": "",
    "a word": "pending",
    "json": '{"job_id":"x"}',
    "NUL": "a\0b",
    "CRLF": "a\r\nSet-Cookie: a=b",
    "no UTF-8": b"\xff\xfe",
    "a long one": "x" * 100_000,
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
@pytest.mark.parametrize("there", [False, True], ids=["", "with a hash of that id"])
async def test_a_key_that_stands_for_no_job_is_free(live: Live, redis: Any, value: Any, *, there: bool) -> None:
    await redis.set(KEY, value)
    if there and value != ODD["a job that is gone"]:
        job_key = b"job:" + (value if isinstance(value, bytes) else value.encode())
        await redis.hset(job_key, mapping={"task": "chat", "status": "queued"})
    await is_a_new_job(live, await post(live.client))


async def test_a_key_whose_job_is_no_hash_is_free(live: Live, redis: Any) -> None:
    job_id = str(uuid.uuid4())
    await redis.set(f"job:{job_id}", "a string")
    await redis.set(KEY, job_id)
    await is_a_new_job(live, await post(live.client))


@pytest.mark.parametrize("kind", ["list", "set", "zset", "stream", "hash", "hash of nonsense"])
async def test_a_key_of_another_type_is_free(live: Live, redis: Any, kind: str) -> None:
    job_id = await foreign_job(redis)
    match kind:
        case "list":
            await redis.rpush(KEY, job_id)
        case "set":
            await redis.sadd(KEY, job_id)
        case "zset":
            await redis.zadd(KEY, {job_id: 1})
        case "stream":
            await redis.xadd(KEY, {"job_id": job_id})
        case "hash":
            await redis.hset(KEY, mapping={"id": job_id})
        case _:
            row = {"request_hash": "x", "job_id": "a\r\nb", "response": "\0", "expires_at": "soon"}
            await redis.hset(KEY, mapping=row)
    await is_a_new_job(live, await post(live.client))
    assert await live.engine.store.idempotency_record("", "order-7") is not None


async def test_a_key_does_not_answer_with_another_requesters_job(live: Live, redis: Any) -> None:
    theirs = await live.job(await live.key("other"))
    nobodys = await foreign_job(redis)
    mine = await live.key("mine")
    for job_id in (theirs, nobodys):
        for key in (KEY, "idempotency:mine:order-7"):
            await redis.delete(KEY, "idempotency:mine:order-7")
            await redis.set(key, job_id)
            answer = await post(mine)
            assert (answer.status_code, "idempotency-replayed" in answer.headers) == (202, False)
            assert answer.json()["job_id"] not in (theirs, nobodys)
    await redis.delete(KEY)
    await redis.set(KEY, theirs)
    await is_a_new_job(live, await post(live.client))


async def test_a_key_does_not_answer_with_another_contracts_job(live: Live, redis: Any) -> None:
    job_id = await foreign_job(redis)
    await redis.set(KEY, job_id)
    new = gateway_job(idempotency=Idempotency("order-7", "digest"))._replace(contract="callsheet")
    (answer,) = await live.engine.enqueue([new])
    assert (answer.job_id, answer.created) == (new.job_id, True)


async def test_what_others_wrote_under_a_key_is_nothing_that_is_remembered(live: Live, redis: Any) -> None:
    await redis.hset(KEY, mapping={"job_id": str(uuid.uuid4())})
    assert await live.engine.store.idempotency_record("", "order-7") is None
