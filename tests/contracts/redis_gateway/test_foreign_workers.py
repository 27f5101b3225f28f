"""Contract 001, "Worker Contract Requirements": jobs of ours run by workers that know nothing of us, and beside ours.

The foreign workers are `examples/redis_worker.py` and `examples/redis-worker-node`. A test that plays a foreign worker
with raw commands plays a rude one: such a worker writes without checking its ownership first.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from callsheet import Callsheet
from callsheet.engine import Engine, Housekeeping
from callsheet.engine.housekeeping import Chores
from callsheet.kernel import commands
from callsheet.kernel.job import Job, Outcome, Status
from callsheet.store.protocol import ClaimRequest, JobQuery, Settled

from . import (
    EXAMPLES,
    KINDS,
    LANGUAGES,
    TERMINAL,
    Language,
    add_event,
    events_of,
    foreign_job,
    foreign_worker,
    fresh_url,
    gateway_job,
    listening,
    our_worker,
    pending,
    plain_client,
    status_of,
    take,
    ttls_of,
    types_of,
    until,
)

ONE = ClaimRequest("w1")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    return fresh_url(request.param)


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> Language:
    return request.param  # type: ignore[no-any-return]


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    async with Engine.from_url(f"{url}?foreign_idle_ms=300") as engine:
        yield engine


@pytest_asyncio.fixture
async def client(url: str) -> AsyncIterator[Any]:
    async with plain_client(url) as client:
        yield client


async def enqueued(engine: Engine, payload: str = "{}", task: str = "chat") -> str:
    (answer,) = await engine.enqueue([gateway_job(payload, task)])
    return answer.job_id


async def watched(engine: Engine, job_id: str, after: int = 0) -> list[str]:
    """What a watcher sees until its stream ends."""
    async with asyncio.timeout(60):
        return [event.type async for event in engine.watch(job_id, after)]


async def nothing_is_left_to_do(engine: Engine, client: Any) -> None:
    """No delivery is open, nobody gets a job, and a housekeeper finds nothing to take back."""
    assert await pending(client) == 0
    swept = await Housekeeping(engine).sweep()
    assert (swept.promoted, swept.reaped) == (0, 0)
    assert await engine.claim(ONE) == []


# The way of a job.


async def test_a_foreign_worker_runs_our_job(engine: Engine, client: Any, url: str, language: Language) -> None:
    job_id = await enqueued(engine, '{"prompt":"ü"}')
    watching = asyncio.create_task(watched(engine, job_id))
    with foreign_worker(language, url):
        assert await watching == ["queued", "running", "done"]
    job = await engine.get(job_id)
    assert (job.status, job.error) == (Status.SUCCEEDED, None)
    assert json.loads(job.result or "") == {"task": "chat", "echo": {"prompt": "ü"}, "worker": "stranger"}
    assert job.ended_at == job.updated_at >= job.created_at
    assert all(590 < ttl <= 600 for ttl in await ttls_of(client, job_id))
    await nothing_is_left_to_do(engine, client)
    assert await watched(engine, job_id) == ["queued", "running", "done"]


async def test_a_foreign_workers_error_is_the_jobs(engine: Engine, client: Any, url: str, language: Language) -> None:
    job_id = await enqueued(engine, '{"fail":"no such model"}', "embed")
    with foreign_worker(language, url):
        assert await watched(engine, job_id) == ["queued", "running", "error"]
    job = await engine.get(job_id)
    assert (job.status, job.result) == (Status.FAILED, None)
    assert json.loads(job.error or "")["message"] == "no such model"
    assert (await events_of(client, job_id))[-1]["data"] == job.error
    await nothing_is_left_to_do(engine, client)


async def test_a_foreign_worker_keeps_an_unparsable_payload_raw(
    engine: Engine, client: Any, url: str, language: Language
) -> None:
    job_id = await foreign_job(client, 'not "json')
    with foreign_worker(language, url):
        assert (await watched(engine, job_id))[-1] == "done"
    job = await engine.get(job_id)
    assert json.loads(job.payload) == {"_raw": 'not "json'}
    assert json.loads(job.result or "")["echo"] == {"_raw": 'not "json'}


async def test_a_foreign_worker_refreshes_both_ttls(engine: Engine, client: Any, url: str, language: Language) -> None:
    job_id = await enqueued(engine, '{"seconds":0.5}')
    with foreign_worker(language, url):
        await until(lambda: is_status(client, job_id, "running"))
        assert all(590 < ttl <= 600 for ttl in await ttls_of(client, job_id))
        for key in (f"job:{job_id}", f"job:{job_id}:events"):
            await client.expire(key, 60)
        await watched(engine, job_id)
    assert all(590 < ttl <= 600 for ttl in await ttls_of(client, job_id))


async def test_a_foreign_worker_finishes_its_job_on_sigterm(
    engine: Engine, client: Any, url: str, language: Language
) -> None:
    first, second = await enqueued(engine, '{"seconds":0.5}'), await enqueued(engine)
    with foreign_worker(language, url) as worker:
        await until(lambda: is_status(client, first, "running"))
        assert await worker.stop() == 0
    assert [await status_of(client, first), await status_of(client, second)] == ["done", "queued"]
    assert [job.job_id for job in await engine.claim(ONE)] == [second]


async def test_a_foreign_worker_does_not_run_a_cancelled_job(
    engine: Engine, client: Any, url: str, language: Language
) -> None:
    ours, theirs, last = await enqueued(engine), await foreign_job(client), await enqueued(engine)
    await engine.cancel(ours, "no")
    await client.hset(f"job:{theirs}", "status", "canceled")
    await add_event(client, theirs, "canceled", step="gateway.cancel")
    with foreign_worker(language, url):
        await watched(engine, last)
    assert await types_of(client, ours) == await types_of(client, theirs) == ["queued", "canceled"]
    await nothing_is_left_to_do(engine, client)


async def is_status(client: Any, job_id: str, word: str) -> bool:
    return await status_of(client, job_id) == word


# What our side knows of a job that another has run.


async def play(client: Any, job_id: str, *words: str) -> None:
    """Write states and events as a foreign worker does, and acknowledge after a terminal one."""
    message_id, message = await take(client)
    assert message["job_id"] == job_id
    for word in words:
        await client.hset(f"job:{job_id}", mapping={"status": word, "updated_ts": str((await client.time())[0] * 1000)})
        await add_event(client, job_id, word)
    if words and words[-1] in TERMINAL:
        await client.xack("jobs:stream", "workers", message_id)


@pytest.mark.parametrize("after", range(4))
async def test_a_watcher_resumes_among_a_foreign_workers_events(engine: Engine, client: Any, after: int) -> None:
    job_id = await enqueued(engine)
    await play(client, job_id, "running", "done")
    assert await watched(engine, job_id, after) == ["queued", "running", "done"][after:]


async def test_a_watcher_resumes_while_a_foreign_worker_runs(engine: Engine, client: Any) -> None:
    job_id = await enqueued(engine)
    await play(client, job_id, "running")
    watching = asyncio.create_task(watched(engine, job_id, 2))
    await add_event(client, job_id, "done")
    assert await watching == ["done"]


@pytest.mark.parametrize("word", ["done", "error", "canceled"])
async def test_jobs_that_foreign_workers_ended_take_no_place_in_the_queue(
    engine: Engine, client: Any, word: str
) -> None:
    for _ in range(4):
        (answer,) = await engine.enqueue([gateway_job()], depth_limit=2)
        await play(client, answer.job_id, "running", word)
        await Housekeeping(engine).sweep()
    assert await engine.backlog() == {}
    final_status = {"done": Status.SUCCEEDED, "error": Status.FAILED, "canceled": Status.CANCELED}[word]
    assert await engine.store.counts() == {"default": {final_status: 4}}
    assert await client.xlen("jobs:stream") == 0


async def test_a_job_that_a_foreign_worker_ended_expires(engine: Engine, client: Any) -> None:
    job_id = await enqueued(engine)
    await play(client, job_id, "running", "done")
    for key in (f"job:{job_id}", f"job:{job_id}:events"):
        await client.expire(key, 5)
    await engine.store.promote(now=await engine.store.now() + 301_000)
    assert max(await ttls_of(client, job_id)) <= 5, "nothing has happened to it since its end"


async def test_a_job_that_a_foreign_worker_ended_is_forgotten_with_its_keys(engine: Engine, client: Any) -> None:
    job_id = await enqueued(engine)
    await play(client, job_id, "running", "done")
    await client.delete(f"job:{job_id}", f"job:{job_id}:events")
    for later_s in (301, 601, 1_201):
        await Housekeeping(engine).sweep(now=await engine.store.now() + later_s * 1_000)
    assert await engine.store.counts() == {}
    assert {key async for key in client.scan_iter()} <= {"jobs:stream", "jobs:seq", "callsheet:schema"}


# Many at once.


async def test_ours_and_foreign_workers_share_200_jobs(engine: Engine, client: Any, url: str) -> None:
    async def chat(seconds: float) -> dict[str, str]:
        await asyncio.sleep(seconds)
        return {"worker": "ours"}

    ids, ends, workers = list[str](), list[list[str]](), set[str]()
    async with Callsheet(f"{url}?foreign_idle_ms=120000") as app:
        app.task(chat)
        with foreign_worker("python", url, "python"), foreign_worker("node", url, "node"):
            await listening(client, 2)
            async with our_worker(app), asyncio.timeout(100):
                while len(ids) < 200 or len(workers) < 3:  # more than 200 where one of them was kept from its share
                    more = [await enqueued(engine, '{"seconds":0.01}') for _ in range(100)]
                    ends += await asyncio.gather(*(watched(engine, job_id) for job_id in more))
                    workers |= {json.loads((await engine.get(job_id)).result or "")["worker"] for job_id in more}
                    ids += more
    assert Counter(map(tuple, ends)) == {("queued", "running", "done"): len(ids)}
    assert [await types_of(client, job_id) for job_id in ids] == ends, "nothing came after the end"
    jobs = [await engine.get(job_id) for job_id in ids]
    assert {job.status for job in jobs} == {Status.SUCCEEDED}
    assert workers == {"ours", "python", "node"}
    await nothing_is_left_to_do(engine, client)


# Foreign workers that die or sleep.


async def recovered(engine: Engine, job_id: str) -> Job:
    """Our claim on a job that a foreign worker left lying."""
    async with Housekeeping(engine, Chores(sweep_s=0.05)):
        (job,) = await until(lambda: engine.claim(ONE))
    assert job.job_id == job_id
    return job  # type: ignore[no-any-return]


async def test_a_killed_foreign_workers_job_is_run_by_ours(
    engine: Engine, client: Any, url: str, language: Language
) -> None:
    job_id = await enqueued(engine, '{"seconds":60}')
    with foreign_worker(language, url) as worker:
        await until(lambda: is_status(client, job_id, "running"))
        worker.kill()
    job = await recovered(engine, job_id)
    assert (job.lease_losses, job.attempt_count) == (1, 2)
    await engine.settle([commands.succeed(job, '"ours"')])
    assert await watched(engine, job_id) == ["queued", "running", "lease_lost", "running", "done"]
    lost_job, winners = await engine.store.attempts(job_id)
    assert (lost_job.worker_id, lost_job.outcome, winners.outcome) == (
        "stranger",
        Outcome.LEASE_LOST,
        Outcome.SUCCEEDED,
    )
    await nothing_is_left_to_do(engine, client)


async def test_a_frozen_foreign_worker_that_wakes_up_leaves_the_outcome_alone(
    engine: Engine, client: Any, url: str, language: Language
) -> None:
    job_id = await enqueued(engine, '{"seconds":0.3}')
    with foreign_worker(language, url) as zombie:
        await until(lambda: is_status(client, job_id, "running"))
        zombie.freeze()
        job = await recovered(engine, job_id)
        await engine.settle([commands.succeed(job, '"ours"')])
        before = await everything(engine, client, job_id)
        zombie.thaw()
        assert await zombie.stop() == 0, "it has come to the end of its job"
    assert await everything(engine, client, job_id) == before
    await nothing_is_left_to_do(engine, client)


async def everything(engine: Engine, client: Any, job_id: str) -> tuple[Any, ...]:
    return (
        await client.hgetall(f"job:{job_id}"),
        await events_of(client, job_id),
        await engine.store.attempts(job_id),
        await engine.store.counts(),
        await pending(client),
    )


# What holds of a rude one.


async def lost_by_a_rude_worker(engine: Engine, client: Any) -> tuple[Job, str]:
    """A job taken over from a foreign worker; the message which that worker still remembers."""
    job_id = await enqueued(engine)
    message_id, _ = await take(client)
    await client.hset(f"job:{job_id}", "status", "running")
    await add_event(client, job_id, "running")
    return await recovered(engine, job_id), message_id


async def write_late(client: Any, job_id: str, message_id: str) -> None:
    await client.hset(f"job:{job_id}", mapping={"status": "done", "result": '"late"'})
    await add_event(client, job_id, "done")
    await client.xack("jobs:stream", "workers", message_id)


async def test_a_late_outcome_while_ours_runs_is_the_only_one(engine: Engine, client: Any) -> None:
    job, message_id = await lost_by_a_rude_worker(engine, client)
    await write_late(client, job.job_id, message_id)
    (beat,) = await engine.heartbeat([job.claim], lease_ms=30_000)
    assert not beat.held, "our worker is told to stop"
    assert await engine.settle([commands.succeed(job, '"ours"')]) == [Settled.STALE]
    found = await engine.get(job.job_id)
    assert (found.status, found.result) == (Status.SUCCEEDED, '"late"')
    assert await watched(engine, job.job_id) == ["queued", "running", "lease_lost", "running", "done"]
    later = await engine.store.now() + 3_600_000
    assert await engine.store.with_expired_lease(10, now=later) == []
    assert await client.exists("jobs:leases") == 0
    assert await pending(client) == 0


async def test_a_late_outcome_after_ours_is_no_second_end_to_a_watcher(engine: Engine, client: Any) -> None:
    job, message_id = await lost_by_a_rude_worker(engine, client)
    await engine.settle([commands.succeed(job, '"ours"')])
    await write_late(client, job.job_id, message_id)
    assert await watched(engine, job.job_id) == ["queued", "running", "lease_lost", "running", "done"]
    assert [a.outcome for a in await engine.store.attempts(job.job_id)] == [Outcome.LEASE_LOST, Outcome.SUCCEEDED]
    assert await engine.store.counts() == {"default": {Status.SUCCEEDED: 1}}
    await nothing_is_left_to_do(engine, client)
    # Not promised: the hash is the last writer's. Who asked before and after sees two results.
    assert await client.hget(f"job:{job.job_id}", "result") == '"late"'


async def test_a_rude_worker_that_dies_after_a_late_start_does_not_take_the_job_with_it(
    engine: Engine, client: Any
) -> None:
    job_id = await enqueued(engine)
    await take(client)
    async with Housekeeping(engine, Chores(sweep_s=0.05)):
        await until(lambda: has_type(client, job_id, "lease_lost"))
    await client.hset(f"job:{job_id}", "status", "running")  # it wakes up, and then it dies
    await add_event(client, job_id, "running")
    job = await recovered(engine, job_id)
    await engine.settle([commands.succeed(job, '"ours"')])
    assert (await engine.get(job_id)).result == '"ours"'
    await nothing_is_left_to_do(engine, client)


async def has_type(client: Any, job_id: str, kind: str) -> bool:
    return kind in await types_of(client, job_id)


async def test_a_worker_that_died_before_its_acknowledgement_has_ended_its_job(engine: Engine, client: Any) -> None:
    job_id = await enqueued(engine)
    await play(client, job_id, "running")
    await client.hset(f"job:{job_id}", mapping={"status": "done", "result": "1"})
    await add_event(client, job_id, "done")
    async with Housekeeping(engine, Chores(sweep_s=0.05)):
        await until(lambda: nothing_pending(client))
    assert await engine.claim(ONE) == []
    assert (await engine.get(job_id)).result == "1"
    assert await watched(engine, job_id) == ["queued", "running", "done"]


@pytest.mark.parametrize("word", TERMINAL)
async def test_a_worker_that_died_before_its_terminal_event_does_not_keep_watchers_waiting(
    engine: Engine, client: Any, word: str
) -> None:
    job_id = await enqueued(engine)
    await play(client, job_id, "running")
    await client.hset(f"job:{job_id}", mapping={"status": word, "error": '{"code":"x"}' if word == "error" else ""})
    watching = asyncio.create_task(watched(engine, job_id, 2))
    async with Housekeeping(engine, Chores(sweep_s=0.05)):
        assert await watching == [word]
    assert await types_of(client, job_id) == ["queued", "running", word]
    assert (await events_of(client, job_id))[-1]["data"] == ('{"code":"x"}' if word == "error" else "{}")
    assert all(0 < ttl <= 600 for ttl in await ttls_of(client, job_id))
    await nothing_is_left_to_do(engine, client)


async def nothing_pending(client: Any) -> bool:
    return await pending(client) == 0


AMISS = [
    *(("updated_ts", text) for text in ("1763263200000.7", "soon", "", "-1", "inf")),
    *(("status", text) for text in ("failed", "", "RUNNING")),
    *(("ttl_s", text) for text in ("x", "", "-1")),
    *(("created_ts", text) for text in ("soon", "")),
]


@pytest.mark.parametrize("word", ["running", "done"])
@pytest.mark.parametrize(("name", "text"), AMISS)
async def test_nonsense_that_a_foreign_worker_wrote_stops_neither_readers_nor_the_reaper(
    engine: Engine, client: Any, name: str, text: str, word: str
) -> None:
    job_id = await enqueued(engine)
    await play(client, job_id, "running", *([word] if word != "running" else []))
    await client.hset(f"job:{job_id}", name, text)
    sound = await enqueued(engine)
    assert (await engine.get(job_id)).job_id == job_id
    assert {job.job_id for job in (await engine.find(JobQuery())).jobs} >= {sound}
    await Housekeeping(engine).sweep()
    lost = {job_id} if word == "running" else set()  # by its worker, where that was silent for the idle time
    assert {sound} <= {job.job_id for job in await engine.claim(ClaimRequest("w1", limit=9))} <= {sound} | lost


# The examples themselves.


def test_the_examples_know_nothing_of_us() -> None:
    for name in ("redis_worker.py", "redis_producer.py"):
        tree = ast.parse((EXAMPLES / name).read_text("utf-8"))
        imports = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imports |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not [name for name in imports if name.startswith("callsheet")]
    manifest = json.loads((EXAMPLES / "redis-worker-node" / "package.json").read_text("utf-8"))
    assert list(manifest["dependencies"]) == ["ioredis"]


def test_the_lock_names_no_registry() -> None:
    lock = json.loads((EXAMPLES / "redis-worker-node" / "package-lock.json").read_text("utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert all(package["integrity"] for package in packages.values())
