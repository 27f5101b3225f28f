"""Contract 001 seen from foreign producers: jobs of gateways that know nothing of us, run by our workers.

The producer is `examples/redis_producer.py`; where a test writes the keys itself, something in them is amiss.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from callsheet import Callsheet, Fatal
from callsheet.engine import Housekeeping
from callsheet.kernel import commands
from callsheet.kernel.errors import UnknownStore
from callsheet.kernel.job import Idempotency
from callsheet.store.protocol import ClaimRequest
from callsheet.store.redis.client import Target

from . import (
    EXAMPLES,
    HASH_FIELDS,
    KINDS,
    TERMINAL,
    events_of,
    foreign_job,
    fresh_url,
    gateway_job,
    our_worker,
    pending,
    plain_client,
    status_of,
    take,
    ttls_of,
    types_of,
    until,
)


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    return fresh_url(request.param)


@pytest_asyncio.fixture
async def client(url: str) -> AsyncIterator[Any]:
    async with plain_client(url) as client:
        yield client


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[Callsheet]:
    app = Callsheet(f"{url}?foreign_idle_ms=300")

    @app.task
    async def chat(prompt: str = "", n: int = 0) -> dict[str, Any]:
        if prompt == "fail":
            raise Fatal("no such model")
        return {"answer": prompt, "n": n}

    @app.task
    async def tool(_raw: str = "") -> str:
        return _raw

    async with app, our_worker(app, task_patience=0):
        yield app


async def ended(client: Any, job_id: str) -> dict[str, str]:
    """The job's hash once it has ended."""

    async def has_ended() -> bool:
        return await status_of(client, job_id) in TERMINAL

    await until(has_ended)
    return await client.hgetall(f"job:{job_id}")  # type: ignore[no-any-return]


async def told_by_the_producer(url: str, *arguments: str) -> list[dict[str, Any]]:
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / "redis_producer.py"), url, *arguments, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        output, _ = await program.communicate()
    assert program.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


async def test_a_foreign_producer_sees_its_job_done(app: Callsheet, client: Any, url: str) -> None:
    first, *events, last = await told_by_the_producer(url, "chat", '{"prompt": "ü"}', "900")
    assert [(event["type"], event["step"], event["data"]) for event in events] == [
        ("queued", "gateway.enqueue", {}),
        ("running", "", {}),
        ("done", "", {}),
    ]
    assert last == {"status": "done", "result": {"answer": "ü", "n": 0}}
    assert all(890 < ttl <= 900 for ttl in await ttls_of(client, first["job_id"]))
    assert await pending(client) == 0


async def test_a_foreign_producer_sees_its_job_fail(app: Callsheet, url: str) -> None:
    *_, event, last = await told_by_the_producer(url, "chat", '{"prompt": "fail"}')
    assert (event["type"], event["data"]["message"]) == ("error", "no such model")
    assert last["status"] == "error"
    assert last["error"] == event["data"]
    assert "result" not in last


async def test_what_the_producer_wrote_stays_as_it_wrote_it(app: Callsheet, client: Any) -> None:
    job_id = await foreign_job(client, '{ "prompt":  "hi" }')
    before = await client.hgetall(f"job:{job_id}")
    after = await ended(client, job_id)
    changes = {name for name in HASH_FIELDS if after[name] != before.get(name, "")}
    assert changes <= {"status", "updated_ts", "result"}
    assert (after["status"], json.loads(after["result"]), after["error"]) == ("done", {"answer": "hi", "n": 0}, "")
    assert int(after["updated_ts"]) >= int(after["created_ts"])
    assert set(after) >= set(HASH_FIELDS)


async def test_our_events_go_on_after_the_producers(app: Callsheet, client: Any) -> None:
    job_id = await foreign_job(client)
    await ended(client, job_id)
    assert await types_of(client, job_id) == ["queued", "running", "done"]
    assert all({"type", "ts", "step", "data"} <= event.keys() for event in await events_of(client, job_id))
    times = [int(event["ts"]) for event in await events_of(client, job_id)]
    assert times == sorted(times)


async def test_a_task_that_our_worker_lacks_goes_on_to_a_foreign_one(url: str, client: Any) -> None:
    job_id = await foreign_job(client, task="plan")
    async with Callsheet(url) as app:
        app.task(name="chat")(nothing)
        await app.worker().run(burst=True)
        assert (await types_of(client, job_id))[:3] == ["queued", "running", "waiting"]
        store = (await app.engine()).store
        await store.promote(now=await store.now() + 60_000)  # its rest is over
    assert await status_of(client, job_id) == "queued"
    _, message = await take(client)
    assert message["job_id"] == job_id, "a foreign worker reads it as any other"


async def nothing() -> None:
    """A plain producer without special behaviour."""


async def test_our_worker_takes_the_ttl_from_the_hash(app: Callsheet, client: Any) -> None:
    job_id = await foreign_job(client, changed={"ttl_s": "7200"})
    await ended(client, job_id)
    assert all(7_190 < ttl <= 7_200 for ttl in await ttls_of(client, job_id))


async def test_an_unknown_task_is_an_error_with_its_reason(app: Callsheet, client: Any) -> None:
    job_id = await foreign_job(client, task="plan")
    job = await ended(client, job_id)
    assert job["status"] == "error"
    error = json.loads(job["error"])
    assert error["code"] == "unknown_task"
    assert "'plan'" in error["message"]
    *_, last = await events_of(client, job_id)
    assert (last["type"], json.loads(last["data"])) == ("error", error)
    assert await pending(client) == 0


UNPARSABLE = ("", "not json", '{"open":', "'single'", "NaN", "0x10", '{"a":1} {"b":2}', "\x00\x1f")


@pytest.mark.parametrize("text", UNPARSABLE)
async def test_an_unparsable_payload_is_stored_raw(app: Callsheet, client: Any, text: str) -> None:
    job = await ended(client, await foreign_job(client, text, task="tool"))
    assert (job["status"], json.loads(job["result"] or '""')) == ("done", text)
    assert json.loads(job["payload"]) == {"_raw": text}


async def test_a_payload_that_does_not_fit_the_task_is_an_error_with_its_reason(app: Callsheet, client: Any) -> None:
    job = await ended(client, await foreign_job(client, '{"n":"seven"}'))
    error = json.loads(job["error"])
    assert (job["status"], error["code"]) == ("error", "invalid_payload")
    assert "n: " in error["message"]


@pytest.mark.parametrize("name", HASH_FIELDS)
async def test_a_missing_field_does_not_stop_the_job(app: Callsheet, client: Any, name: str) -> None:
    job_id = await foreign_job(client, '{"prompt":"hi"}', changed={name: None})
    job = await ended(client, job_id)
    assert (job["status"], json.loads(job["result"])) == ("done", {"answer": "hi", "n": 0})
    assert set(job) >= set(HASH_FIELDS), "and it is there afterwards"
    assert all(job[time].isdigit() for time in ("created_ts", "updated_ts"))


AMISS = [
    *(("created_ts", text) for text in ("", "soon", "-5", "nan", "inf", "1e30", "1700000000000.7")),
    *(("updated_ts", text) for text in ("", "soon", "-5", "nan", "1e30")),
    *(("ttl_s", text) for text in ("", "x", "0", "-1", "nan", "inf", "1e30", "600.9")),
    *(("status", text) for text in ("", "QUEUED", "pending")),
    *(("task", text) for text in ("", "plan")),
]


@pytest.mark.parametrize(("name", "text"), AMISS)
async def test_nonsense_in_a_field_stops_neither_the_job_nor_the_others(
    app: Callsheet, client: Any, name: str, text: str
) -> None:
    odd = await foreign_job(client, '{"prompt":"hi"}', changed={name: text})
    even = await foreign_job(client, '{"prompt":"ho"}')
    assert (await ended(client, even))["status"] == "done"
    job = await ended(client, odd)
    assert job["status"] == ("error" if (name, text) == ("task", "plan") else "done")
    assert max(await ttls_of(client, odd)) <= 600, "it has the producer's, or the right one"
    assert await pending(client) == 0


@pytest.mark.parametrize(("name", "text"), AMISS)
async def test_nonsense_in_a_lost_delivery_stops_neither_the_job_nor_the_reaper(
    url: str, client: Any, name: str, text: str
) -> None:
    odd = await foreign_job(client, '{"prompt":"hi"}', changed={name: text})
    await take(client)
    even = await foreign_job(client, '{"prompt":"ho"}')
    await take(client)
    async with Callsheet(f"{url}?foreign_idle_ms=0") as app:

        @app.task(name="chat")
        async def chat(prompt: str) -> str:
            return prompt

        async with our_worker(app, task_patience=0):
            assert (await ended(client, even))["status"] == "done"
            assert (await ended(client, odd))["status"] in ("done", "error")


async def test_a_message_without_a_hash_is_a_job(app: Callsheet, client: Any) -> None:
    job_id = str(uuid.uuid4())
    await client.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": '{"prompt":"hi"}'})
    job = await ended(client, job_id)
    assert [job[name] for name in ("job_id", "task", "payload", "status")] == [
        job_id,
        "chat",
        '{"prompt":"hi"}',
        "done",
    ]
    assert json.loads(job["result"]) == {"answer": "hi", "n": 0}
    assert await types_of(client, job_id) == ["queued", "running", "done"]
    assert (await (await app.engine()).get(job_id)).contract == "redis_gateway"


@pytest.mark.parametrize("fields", [None, {"task": "chat", "status": "queued"}, {"ttl_s": "soon"}], ids=str)
async def test_a_job_that_names_no_ttl_gets_that_of_the_setting(
    url: str, client: Any, fields: dict[str, str] | None
) -> None:
    job_id = str(uuid.uuid4())
    if fields is not None:
        await client.hset(f"job:{job_id}", mapping=fields)
    await client.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": "{}"})
    async with Callsheet(f"{url}?job_ttl_s=777") as app:
        engine = await app.engine()
        (job,) = await engine.claim(ClaimRequest("w1"))
        assert (job.job_id, job.ttl_s) == (job_id, 777)
        assert all(700 < ttl <= 777 for ttl in await ttls_of(client, job_id)), "while it runs"
        await engine.settle([commands.succeed(job)])
    assert all(700 < ttl <= 777 for ttl in await ttls_of(client, job_id)), "and when it has ended"


async def test_a_lost_delivery_without_a_hash_gets_the_ttl_of_the_setting(url: str, client: Any) -> None:
    job_id = str(uuid.uuid4())
    await client.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": "{}"})
    await take(client)
    async with Callsheet(f"{url}?job_ttl_s=777&foreign_idle_ms=0") as app:
        await Housekeeping(await app.engine()).sweep()
    assert all(700 < ttl <= 777 for ttl in await ttls_of(client, job_id))


@pytest.mark.parametrize("name", ["JOB_TTL_S", "CALLSHEET_JOB_TTL"])
def test_the_ttl_of_the_setting_is_the_gateways(name: str) -> None:
    assert Target.from_url("redis://h", {}).job_ttl_s == 86_400
    assert Target.from_url("redis://h", {name: "3600"}).job_ttl_s == 3_600
    assert Target.from_url("redis://h?job_ttl_s=60", {name: "3600"}).job_ttl_s == 60
    with pytest.raises(UnknownStore, match=f"{name}: "):
        Target.from_url("redis://h", {name: "soon"})


@pytest.mark.parametrize("message", [{"hello": "world"}, {"job_id": "", "task": "chat", "payload": "{}"}])
async def test_a_message_of_nothing_is_acknowledged_away(app: Callsheet, client: Any, message: dict[str, str]) -> None:
    await client.xadd("jobs:stream", message)
    await ended(client, await foreign_job(client))
    assert await pending(client) == 0
    assert await client.exists("job:") == 0


async def test_an_idempotency_key_of_a_foreign_gateway_finds_its_job(app: Callsheet, client: Any) -> None:
    """The contract names the key and its TTL, not its type: a plain gateway keeps the job's id there as a string."""
    job_id = await foreign_job(client)
    await client.set("idempotency:order-7", job_id, ex=900)
    (answer,) = await (await app.engine()).enqueue([gateway_job(idempotency=Idempotency("order-7", "digest"))])
    assert (answer.job_id, answer.created) == (job_id, False)
    assert 890 < await client.ttl("idempotency:order-7") <= 900
