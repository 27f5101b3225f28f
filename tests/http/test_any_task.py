"""`POST /v1/jobs` and `/v1/jobs/batch`: jobs of any task with every option, on each store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callsheet.api import task_directory
from callsheet.engine.task_register import TaskRecord, register
from callsheet.http.middleware import BATCH_BYTES
from callsheet.kernel.contracts import read_policy
from callsheet.kernel.job import HoldReason, Job, Status
from callsheet.store.protocol import ClaimRequest
from tests.http.live import ADMIN, Live, problem
from tests.http.raw import exchange

RESIZE = TaskRecord(
    "shop.resize",
    queue="pictures",
    priority=5,
    max_attempts=7,
    description="Make a picture smaller.",
    arguments={
        "type": "object",
        "properties": {"url": {"type": "string"}, "width": {"type": "integer"}},
        "required": ["url"],
        "additionalProperties": False,
    },
)
CAT = {"url": "https://example.org/cat.png"}


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the register anew for each request: tests register tasks while the server runs."""
    monkeypatch.setattr(task_directory, "MISSING_S", 0.0)
    monkeypatch.setattr(task_directory, "FRESH_S", 0.0)


async def created(live: Live, client: Any = None, **fields: Any) -> Job:
    answer = await (client or live.client).post("/v1/jobs", json=fields)
    assert answer.status_code == 202, answer.text
    return await live.engine.get(answer.json()["job_id"])


async def test_a_registered_task_brings_its_queue_and_limits(live: Live) -> None:
    await register(live.engine.store, [RESIZE])
    job = await created(live, task="shop.resize", payload=CAT)
    assert (job.queue, job.priority, job.max_attempts, job.contract) == ("pictures", 5, 7, "callsheet")
    assert json.loads(job.payload) == CAT


async def test_every_option_reaches_the_job(live: Live) -> None:
    await register(live.engine.store, [RESIZE])
    first = await created(live, task="shop.resize", payload=CAT)
    job = await created(
        live,
        task="shop.resize",
        payload=CAT,
        queue="slow",
        priority=-3,
        run_at="2126-11-20T09:00:00Z",
        max_attempts=2,
        retry={"delays": ["1m", 300], "never": ["broken_file"]},
        unique_key="cat",
        concurrency={"key": "example.org", "limit": 3},
        depends_on=[first.job_id],
        on_dependency_failure="run",
        ttl="3d",
        correlation_id="order-7",
    )
    assert (job.queue, job.priority, job.max_attempts, job.correlation_id) == ("slow", -3, 2, "order-7")
    assert (job.ttl_s, job.blocked_by, job.on_dependency_failure) == (3 * 86_400, 1, "run")
    assert job.run_at == 4_950_838_800_000
    policy = read_policy(job.retry)
    assert (policy.backoff.table_ms, "broken_file" in policy.fatal) == ((60_000, 300_000), True)
    assert str(job.unique_key).endswith("cat")
    assert str(job.concurrency_key).endswith("example.org")


async def test_a_delayed_job_waits(live: Live) -> None:
    job = await created(live, task="later", delay="10m", unchecked=True)
    assert (job.status, job.held) == (Status.QUEUED, HoldReason.DELAY)
    assert job.run_at - job.created_at == 600_000
    assert await live.engine.claim(ClaimRequest("w")) == []


async def test_a_unique_key_answers_with_the_first_job(live: Live) -> None:
    first = await live.client.post("/v1/jobs", json={"task": "a", "unique_key": "k", "unchecked": True})
    again = await live.client.post("/v1/jobs", json={"task": "a", "unique_key": "k", "unchecked": True})
    assert again.status_code == 202
    assert again.json()["job_id"] == first.json()["job_id"]
    assert again.json()["created"] is False
    assert "created" not in first.json()


async def test_keys_of_tenants_do_not_meet(live: Live) -> None:
    """A tenant that could hold another one's unique key would stop its jobs and learn their ids."""
    ids = set()
    for tenant in ("acme", "acme/a", "@acme", ""):
        async with await live.key(tenant) as client:
            for key in ("k", "a/k"):
                job = await created(live, client, task="a", unique_key=key, concurrency={"key": key}, unchecked=True)
                ids.add((job.unique_key, job.concurrency_key))
    assert len(ids) == 8


async def test_a_plain_key_cannot_spell_a_tenants(live: Live) -> None:
    async with await live.key("") as client:
        answer = await client.post("/v1/jobs", json={"task": "a", "unique_key": "@acme/k", "unchecked": True})
    problem(answer, 422, "validation_failed")


async def test_another_tenants_job_is_no_dependency(live: Live) -> None:
    theirs = await created(live, await live.key("acme"), task="a", unchecked=True)
    async with await live.key("rival") as client:
        answer = await client.post("/v1/jobs", json={"task": "b", "depends_on": [theirs.job_id], "unchecked": True})
    problem(answer, 422, "dependency_not_found")


async def test_a_tenant_cannot_pass_all_others(live: Live) -> None:
    async with await live.key("acme") as client:
        answer = await client.post("/v1/jobs", json={"task": "a", "priority": 101, "unchecked": True})
        assert "priority" in problem(answer, 422, "validation_failed")["detail"]
    assert (await created(live, task="a", priority=30_000, unchecked=True)).priority == 30_000


async def test_a_key_of_its_own_passes_no_limit_of_running_jobs(live: Live) -> None:
    await live.state.quotas.set("acme", {"running": 1})
    async with await live.key("acme") as client:
        answer = await client.post("/v1/jobs", json={"task": "a", "concurrency": {"key": "k"}, "unchecked": True})
        problem(answer, 403, "forbidden")
        job = await created(live, client, task="a", unchecked=True)
    assert job.concurrency_key is not None


async def test_an_unknown_task_is_told_with_near_names(live: Live) -> None:
    await register(live.engine.store, [RESIZE])
    answer = await live.client.post("/v1/jobs", json={"task": "shop.rezise", "payload": CAT})
    body = problem(answer, 422, "unknown_task")
    assert (body["near"], "shop.resize" in body["detail"]) == (["shop.resize"], True)
    assert (await live.engine.backlog()) == {}


async def test_arguments_are_checked_by_the_schema_and_never_quoted(live: Live) -> None:
    await register(live.engine.store, [RESIZE])
    answer = await live.client.post("/v1/jobs", json={"task": "shop.resize", "payload": {**CAT, "width": "s3cret"}})
    body = problem(answer, 422, "invalid_payload")
    assert body["errors"][0]["where"] == "payload.width"
    assert "s3cret" not in answer.text
    missing = await live.client.post("/v1/jobs", json={"task": "shop.resize"})
    assert "url" in problem(missing, 422, "invalid_payload")["detail"]


async def test_a_schema_that_reaches_out_or_stalls_checks_nothing(live: Live) -> None:
    """A worker may be anybody's: its schema neither fetches a URL nor holds the server with a pattern."""
    outside = {"$ref": "http://127.0.0.1:9/schema.json"}
    stalling = {"properties": {"url": {"pattern": "^((?=a)a+)+$"}}}  # a pattern that only a backtracking engine reads
    await register(live.engine.store, [TaskRecord("a", arguments=outside), TaskRecord("b", arguments=stalling)])
    await created(live, task="a", payload=CAT)
    await created(live, task="b", payload={"url": "a" * 50_000 + "!"})


async def test_tasks_of_a_tenants_worker_are_its_own(live: Live) -> None:
    await register(live.engine.store, [RESIZE, TaskRecord("everybodys")], tenants={"acme"})
    await register(live.engine.store, [TaskRecord("everybodys", description="shared")])
    async with await live.key("acme") as acme, await live.key("rival") as rival:
        names = {task["name"] for task in (await acme.get("/v1/tasks")).json()["tasks"]}
        assert names == {"shop.resize", "everybodys"}
        (shared,) = (await rival.get("/v1/tasks")).json()["tasks"]
        assert (shared["name"], shared["tenant"]) == ("everybodys", "")
        problem(await rival.get("/v1/tasks/shop.resize"), 404, "not_found")
        assert (await acme.get("/v1/tasks/shop.resize")).json()["queue"] == "pictures"
        body = problem(await rival.post("/v1/jobs", json={"task": "shop.resize", "payload": CAT}), 422, "unknown_task")
        assert "shop.resize" not in body["near"]


async def test_tasks_of_a_contract_are_made_by_its_route_alone(live: Live) -> None:
    await register(live.engine.store, [TaskRecord("mine", contract="aura")])
    for task in ("transcode", "video.ocr", "compose", "mine"):
        for extra in ({}, {"unchecked": True}, {"contract": "control_plane"}):
            answer = await live.client.post("/v1/jobs", json={"task": task, "payload": CAT, **extra})
            if task == "mine" and extra:
                continue  # a name that is not looked up: the worker refuses the job
            assert answer.json()["code"] in ("task_reserved", "unknown_task"), (task, extra, answer.text)
    assert not [job for job in (await live.client.get("/v1/jobs")).json()["jobs"] if job["task"] != "mine"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"delay": "soon"}, "delay"),
    ({"delay": -1}, "delay"),
    ({"delay": "5 fortnights"}, "delay"),
    ({"delay": "99999w"}, "delay"),
    ({"delay": 1, "run_at": 1}, "run_at"),
    ({"run_at": "tomorrow"}, "run_at"),
    ({"run_at": "2026-11-20T09:00:00"}, "run_at"),
    ({"run_at": "1800-01-01T00:00:00Z"}, "run_at"),
    ({"ttl": "0s"}, "ttl"),
    ({"ttl": "1h", "ttl_s": 5}, "ttl_s"),
    ({"priority": 40_000}, "priority"),
    ({"priority": 1.5}, "priority"),
    ({"max_attempts": 0}, "max_attempts"),
    ({"retry": "no-such-policy"}, "retry"),
    ({"retry": {"delays": []}}, "retry"),
    ({"retry": {"delays": ["soon"]}}, "retry"),
    ({"retry": {"factor": 1e9}}, "retry"),
    ({"unique_key": ""}, "unique_key"),
    ({"unique_key": "a\x00b"}, "unique_key"),
    ({"concurrency": {"key": "a", "limit": 0}}, "concurrency"),
    ({"concurrency": "a"}, "concurrency"),
    ({"depends_on": ["no-id"]}, "depends_on"),
    ({"depends_on": "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"}, "depends_on"),
    ({"on_dependency_failure": "explode"}, "on_dependency_failure"),
    ({"queue": "a@b"}, "queue"),
    ({"correlation_id": "a\nb"}, "correlation_id"),
    ({"resumed_from": "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"}, "resumed_from"),
    ({"requester_id": "victim"}, "requester_id"),
    ({"job_id": "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"}, "job_id"),
]


@pytest.mark.parametrize(("fields", "name"), WRONG, ids=[json.dumps(fields) for fields, _ in WRONG])
async def test_a_wrong_option_is_named_and_nothing_is_made(small: Live, fields: dict[str, Any], name: str) -> None:
    job = {"task": "a", "unchecked": True, **fields}
    answer = await small.client.post("/v1/jobs", json=job)
    assert answer.status_code == 422, answer.text
    assert name in answer.json()["detail"]
    body = (await small.client.post("/v1/jobs/batch", json={"jobs": [{"task": "b", "unchecked": True}, job]})).json()
    assert (body["status"], name in body["detail"], "jobs.1" in body["detail"]) == (422, True, True), body
    assert (await small.client.get("/v1/jobs")).json()["jobs"] == []


async def test_a_batch_is_made_whole_in_its_order(live: Live) -> None:
    jobs = [{"task": f"t{number % 3}", "payload": {"n": number}, "unchecked": True} for number in range(500)]
    answer = await live.client.post("/v1/jobs/batch", json={"jobs": jobs})
    body = answer.json()
    assert (answer.status_code, body["created"], body["existing"], body["refused"]) == (202, 500, 0, 0)
    stored = await live.engine.store.get([job["job_id"] for job in body["jobs"]])
    assert [json.loads(job.payload)["n"] for job in stored if job] == list(range(500))


async def test_each_line_of_a_batch_has_its_own_answer(live: Live) -> None:
    await register(live.engine.store, [RESIZE])
    lines = [
        {"task": "shop.resize", "payload": CAT, "unique_key": "one"},
        {"task": "shop.resize", "payload": {}},
        {"task": "nobody's"},
        {"task": "shop.resize", "payload": CAT, "unique_key": "one"},
        {"task": "video.ocr", "unchecked": True},
        7,
        {"task": "shop.resize", "payload": CAT},
    ]
    answer = await live.client.post("/v1/jobs/batch?mode=each", json={"jobs": lines})
    body = answer.json()
    codes = [entry.get("error", {}).get("code") for entry in body["jobs"]]
    expected = [None, "invalid_payload", "unknown_task", None, "task_reserved", "validation_failed", None]
    assert (answer.status_code, codes) == (202, expected)
    assert (body["created"], body["existing"], body["refused"]) == (2, 1, 4)
    assert body["jobs"][3]["job_id"] == body["jobs"][0]["job_id"]


async def test_lines_of_ndjson_are_answered_with_lines(live: Live) -> None:
    text = '{"task":"a","unchecked":true}\n\n{"task":"b"}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    answer = await live.client.post("/v1/jobs/batch?mode=each", content=text, headers=headers)
    one, other = [json.loads(line) for line in answer.text.splitlines()]
    assert (answer.status_code, one["created"], other["error"]["code"]) == (202, True, "unknown_task")
    problem(await live.client.post("/v1/jobs/batch", content=text, headers=headers), 422, "unknown_task")


async def test_a_batch_that_is_repeated_with_its_key_makes_nothing_new(live: Live) -> None:
    jobs = {"jobs": [{"task": "a", "payload": {"n": n}, "unchecked": True} for n in range(3)]}
    key = {"Idempotency-Key": "batch-1"}
    first = (await live.client.post("/v1/jobs/batch", json=jobs, headers=key)).json()
    again = (await live.client.post("/v1/jobs/batch", json=jobs, headers=key)).json()
    assert (again["created"], again["existing"]) == (0, 3)
    assert [job["job_id"] for job in again["jobs"]] == [job["job_id"] for job in first["jobs"]]
    jobs["jobs"][1]["payload"] = {"n": 9}
    problem(await live.client.post("/v1/jobs/batch", json=jobs, headers=key), 409, "idempotency_conflict")


async def test_a_batch_has_bounds(small: Live) -> None:
    one = {"task": "a", "unchecked": True}
    for jobs in ([], [one] * 10_001):
        problem(await small.client.post("/v1/jobs/batch", json={"jobs": jobs}), 422, "validation_failed")
    lines = (
        "POST /v1/jobs/batch HTTP/1.1",
        "Host: x",
        f"X-API-Key: {ADMIN}",
        f"Content-Length: {BATCH_BYTES + 1}",
        "",
        "",
    )
    assert b"body_too_large" in await exchange(small, "\r\n".join(lines).encode())
    problem(await small.client.post("/v1/jobs/batch", content="[]"), 415, "unsupported_media_type")
