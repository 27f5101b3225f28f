"""The contract from end to end: a foreign gateway writes to Redis, our worker answers, a client tails the events."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio

from callsheet import Callsheet
from tests import stores

from .conftest import gateway
from .server import Server


@pytest.fixture
async def redis_app() -> AsyncIterator[Callsheet]:
    async with gateway(stores.fresh_url("redis")) as app:
        yield app


@pytest.fixture
async def client(redis_app: Callsheet) -> AsyncIterator[Any]:
    client = redis.asyncio.Redis.from_url(redis_app.database_url, decode_responses=True)
    yield client
    await client.aclose()


async def sent(client: Any, task: str, payload: str) -> str:
    """Enqueue a job as the contract's gateway would."""
    job_id = str(uuid.uuid4())
    ms = str((await client.time())[0] * 1000)
    fields = {"job_id": job_id, "task": task, "payload": payload, "status": "queued", "created_ts": ms}
    fields |= {"updated_ts": ms, "ttl_s": "3600", "result": "", "error": ""}
    await client.hset(f"job:{job_id}", mapping=fields)
    await client.xadd(f"job:{job_id}:events", {"type": "queued", "ts": ms, "step": "gateway.enqueue", "data": "{}"})
    await client.xadd("jobs:stream", {"job_id": job_id, "task": task, "payload": payload})
    return job_id


async def test_a_foreign_job_streams_its_tokens_and_ends_as_the_contract_says(
    redis_app: Callsheet, client: Any, server: Server
) -> None:
    job_id = await sent(client, "chat", '{"prompt": "What did the cat do?"}')
    await redis_app.worker().run(burst=True)
    result = await client.hgetall(f"job:{job_id}")
    assert result["status"] == "done"
    assert json.loads(result["result"])["text"] == "The cat sat down."
    events = [fields for _, fields in await client.xrange(f"job:{job_id}:events")]
    assert [event["type"] for event in events][:3] == ["queued", "running", "token"]
    assert events[-1]["type"] == "done"
    tokens = [json.loads(event["data"]) for event in events if event["type"] == "token"]
    assert "".join(token["text"] for token in tokens) == "The cat sat down."


@pytest.mark.parametrize("task", ["chat", "plan", "code", "tool", "rag", "embed"])
async def test_a_foreign_payload_that_is_not_json_ends_as_a_clear_error(
    redis_app: Callsheet, client: Any, task: str
) -> None:
    job_id = await sent(client, task, "prompt=hello")
    await redis_app.worker().run(burst=True)
    result = await client.hgetall(f"job:{job_id}")
    assert result["status"] == "error"
    assert "the payload was not JSON; send a JSON object" in json.loads(result["error"])["message"]
