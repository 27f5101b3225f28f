"""Contract 001: what foreign programs write wakes us, with polling switched off, and we wait in line with them."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from callsheet import Callsheet
from callsheet.engine import Engine, Housekeeping
from callsheet.engine.watch import Watch
from callsheet.kernel import commands
from callsheet.store.protocol import ClaimRequest
from callsheet.store.redis import RedisStore, door, listener

from . import KINDS, add_event, fresh_url, gateway_job, our_worker, pending, plain_client, take, until

NEVER_S = 3_600.0
QUIET = {"poll": NEVER_S, "housekeeping": False, "concurrency": 1}


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    return fresh_url(request.param)


@pytest_asyncio.fixture
async def client(url: str) -> AsyncIterator[Any]:
    async with plain_client(url) as client:
        yield client


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[Callsheet]:
    app = Callsheet(url)
    app.ran = asyncio.Queue()  # type: ignore[attr-defined] # what has run, for the tests

    @app.task
    async def chat(n: int = 0) -> str:
        app.ran.put_nowait(n)  # type: ignore[attr-defined]
        return "ours"

    async with app:
        yield app


async def ran(app: Callsheet) -> int:
    async with asyncio.timeout(30):
        return await app.ran.get()  # type: ignore[attr-defined, no-any-return]


async def send(client: Any, n: int) -> str:
    """Add a job as a hand-made message, without any hint."""
    job_id = str(uuid.uuid4())
    await client.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": f'{{"n":{n}}}'})
    return job_id


# Workers.


async def test_a_message_made_by_hand_wakes_an_idle_worker(app: Callsheet, client: Any) -> None:
    async with our_worker(app, **QUIET):
        for n in range(5):
            await until(lambda: are_waiting(client, 1))
            await send(client, n)
            assert await ran(app) == n
    assert await pending(client) == 0


async def test_a_worker_takes_its_turn_among_foreign_ones_that_wait(
    app: Callsheet, client: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis hands each message to whoever has waited longest: of 30, three who wait get ten each."""
    for module in (door, listener):
        monkeypatch.setattr(module, "BLOCK_MS", 3_600_000)  # who asks anew goes to the end of the line
    takers: Counter[str] = Counter()
    async with our_worker(app, **QUIET), strangers(url, "a", "b") as taken:
        for n in range(30):
            await until(lambda: are_waiting(client, 3))
            await send(client, n)
            ours, theirs = asyncio.create_task(ran(app)), asyncio.create_task(taken.get())
            completed_tasks, waiting = await asyncio.wait(
                {ours, theirs}, return_when=asyncio.FIRST_COMPLETED, timeout=60
            )
            assert len(completed_tasks) == 1
            takers["ours" if ours in completed_tasks else theirs.result()] += 1
            for task in waiting:
                task.cancel()
    assert takers == {"ours": 10, "a": 10, "b": 10}


@contextlib.asynccontextmanager
async def strangers(url: str, *names: str) -> AsyncIterator[asyncio.Queue[str]]:
    """Foreign workers that wait for messages as the contract has it; yield the workers' names as messages arrive."""
    taken: asyncio.Queue[str] = asyncio.Queue()

    async def work(name: str) -> None:
        async with plain_client(url) as client:
            while True:
                result = await client.xreadgroup("workers", name, {"jobs:stream": ">"}, count=1, block=0)
                for message_id, message in result[0][1]:
                    await client.hset(f"job:{message['job_id']}", "status", "done")
                    await add_event(client, message["job_id"], "done")
                    await client.xack("jobs:stream", "workers", message_id)
                    taken.put_nowait(name)

    async with plain_client(url) as client:
        with contextlib.suppress(Exception):
            await client.xgroup_create("jobs:stream", "workers", id="0", mkstream=True)
    tasks = [asyncio.create_task(work(name)) for name in names]
    try:
        yield taken
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_worker_without_a_free_slot_waits_for_no_message(url: str, client: Any) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()
    async with Callsheet(url) as app:

        @app.task
        async def chat(n: int = 0) -> None:
            begun.set()
            await let_go.wait()

        async with our_worker(app, **QUIET):
            await until(lambda: are_waiting(client, 1))
            engine = await app.engine()
            await engine.enqueue([gateway_job(priority=5)])  # it comes another way, and the worker still waits
            await begun.wait()
            await until(lambda: nobody_is_listening(client))
            other = await send(client, 2)
            message_id, fields = await take(client)
            assert fields["job_id"] == other, "it is left to others"
            await client.xack("jobs:stream", "workers", message_id)
            let_go.set()
            await until(lambda: are_waiting(client, 1))


async def nobody_is_listening(client: Any) -> bool:
    return await are_waiting(client, 0)


async def are_waiting(client: Any, how_many: int) -> bool:
    """Return whether `count` workers block in a read of the group."""
    db = str(client.connection_pool.connection_kwargs.get("db", 0))
    clients: list[dict[str, str]] = await client.client_list()
    return sum(c["cmd"] == "xreadgroup" and c["db"] == db and "b" in c["flags"] for c in clients) == how_many


async def test_a_worker_that_stops_puts_back_what_it_was_handed(url: str, client: Any) -> None:
    async with Engine.from_url(url) as engine:
        await engine.claim(ClaimRequest("w1"))  # makes the group
        async with await engine.store.door("w1", ["default"]) as place:
            place.open()
            await until(lambda: are_waiting(client, 1))
            (answer,) = await engine.enqueue([gateway_job()])
            await until(lambda: is_handed(place))
            assert await pending(client) == 1
        assert await pending(client) == 0
        (job,) = await engine.claim(ClaimRequest("w2"))
        assert (job.job_id, job.attempt_count, job.lease_losses) == (answer.job_id, 1, 0)


async def is_handed(place: Any) -> bool:
    return bool(place.waiting)


async def test_a_paused_queue_hands_out_nothing_at_the_door(url: str, client: Any) -> None:
    async with Engine.from_url(url) as engine:
        await engine.claim(ClaimRequest("w1"))
        async with await engine.store.door("w1", ["default"]) as place:
            place.open()
            await until(lambda: are_waiting(client, 1))
            await engine.store.pause("default", paused=True)
            (answer,) = await engine.enqueue([gateway_job()])
            await until(lambda: is_handed(place))
            assert await engine.claim(ClaimRequest("w1")) == [], "it was handed over before the pause was known"
            assert (await pending(client), place.waiting) == (0, 0)
            place.open()
            await until(lambda: nobody_is_listening(client))
            await engine.store.pause("default", paused=False)
            (job,) = await engine.claim(ClaimRequest("w1"))
            assert (job.job_id, job.attempt_count) == (answer.job_id, 1)


async def test_what_a_killed_worker_was_handed_is_run_by_another(url: str, client: Any) -> None:
    async with Engine.from_url(url) as engine:
        await client.sadd("jobs:doors", "dead")
        (answer,) = await engine.enqueue([gateway_job()])
        message_id, _ = await take(client, "dead")
        await Housekeeping(engine).sweep()
        assert await engine.claim(ClaimRequest("w1")) == [], "it may be about to claim it"
        await client.xclaim("jobs:stream", "workers", "dead", 0, [message_id], idle=20_000)
        await Housekeeping(engine).sweep()
        (job,) = await engine.claim(ClaimRequest("w1"))
        assert (job.job_id, job.attempt_count, job.lease_losses) == (answer.job_id, 1, 0), "it had not begun"
        assert await pending(client) == 1


async def test_a_handed_message_that_another_has_taken_over_is_not_run(url: str, client: Any) -> None:
    async with Engine.from_url(url) as engine:
        await engine.claim(ClaimRequest("w1"))
        async with await engine.store.door("w1", ["default"]) as place:
            place.open()
            await until(lambda: are_waiting(client, 1))
            await engine.enqueue([gateway_job()])
            await until(lambda: is_handed(place))
            ((message_id, *_),) = await client.xrange("jobs:stream")
            await client.xclaim("jobs:stream", "workers", "stranger", 0, [message_id])
            assert await engine.claim(ClaimRequest("w1")) == []
            assert await pending(client) == 1


# Watchers.


async def test_a_foreign_event_reaches_a_watcher_without_polling(url: str, client: Any) -> None:
    async with Engine.from_url(url) as engine:
        watch = Watch(engine.store, poll_s=NEVER_S)
        job_ids = [(await engine.enqueue([gateway_job()]))[0].job_id for _ in range(3)]
        watchers = [watch.follow({job_id: 1}) for job_id in job_ids]
        try:
            for word in ("running", "token", "done"):
                for job_id, watcher in zip(job_ids, watchers, strict=True):
                    await add_event(client, job_id, word)
                    async with asyncio.timeout(30):
                        assert [event.type for event in await watcher.take()] == [word]
        finally:
            await watch.stop()


async def test_our_own_jobs_are_not_listened_for_twice(url: str) -> None:
    """The hint channel announces jobs of our own writers.

    A foreign producer's job, alone or among others, is found by the blocking read.
    """
    async with Engine.from_url(url) as engine:
        store = engine.store
        assert isinstance(store, RedisStore)
        watch = Watch(store, poll_s=NEVER_S)
        (answer,) = await engine.enqueue([gateway_job()])
        watcher = watch.follow({answer.job_id: 0})
        try:
            assert [event.type for event in await watcher.take()] == ["queued"]
            await until(lambda: is_listened_for(store, answer.job_id, yes=True))
            (job,) = await engine.claim(ClaimRequest("w1"))
            assert [event.type for event in await watcher.take()] == ["running"]
            await until(lambda: is_listened_for(store, answer.job_id, yes=False))
            await engine.settle([commands.release(job)])
            assert [event.type for event in await watcher.take()] == ["released"]
            await until(lambda: is_listened_for(store, answer.job_id, yes=True))
        finally:
            await watch.stop()


async def is_listened_for(store: RedisStore, job_id: str, *, yes: bool) -> bool:
    return (job_id in store._tail._job_ids) is yes


async def test_foreign_events_are_heard_again_after_the_connection_broke(url: str, client: Any) -> None:
    async with Engine.from_url(url) as engine:
        watch = Watch(engine.store, poll_s=NEVER_S)
        (answer,) = await engine.enqueue([gateway_job()])
        watcher = watch.follow({answer.job_id: 1})
        try:
            for word in ("running", "token", "done"):
                (reader,) = await until(lambda: readers(client))
                await client.client_kill_filter(_id=reader)
                await add_event(client, answer.job_id, word)
                async with asyncio.timeout(30):
                    assert [event.type for event in await watcher.take()] == [word]
        finally:
            await watch.stop()


async def readers(client: Any) -> list[str]:
    """Return the connections blocked in a read of events."""
    db = str(client.connection_pool.connection_kwargs.get("db", 0))
    clients: list[dict[str, str]] = await client.client_list()
    return [c["id"] for c in clients if c["cmd"] == "xread" and c["db"] == db and "b" in c["flags"]]
