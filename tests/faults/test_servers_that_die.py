"""The store's own server crashes under load and comes back: acknowledged jobs survive, and work continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from callsheet.engine import Engine, Housekeeping
from callsheet.engine.housekeeping import Chores
from callsheet.kernel.errors import DuplicateJob, StoreUnavailable
from callsheet.kernel.job import NewJob
from tests.faults.conftest import Worker
from tests.faults.test_processes import PATIENT, every_job_ended_once, until_ended
from tests.servers import PostgresServer, RedisServer
from tests.store_driver import new_job

Crash = Callable[[], None]


@pytest.fixture(params=["postgres", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Crash]]:
    """A private server that tests can crash and restart."""
    if request.param == "postgres":
        with PostgresServer.start(settings={"shared_buffers": "32MB"}) as postgres:
            yield postgres.create_database(), postgres.restart_immediate
    else:
        # `everysec` acknowledges what it has not written while an fsync is under way, which is long on a busy disk
        with RedisServer.start(settings={"appendfsync": "always"}) as redis:

            def crash() -> None:
                redis.kill9()
                redis.start_again()

            yield redis.fresh_url(), crash


async def test_a_crash_of_the_server_loses_no_acknowledged_job(server: tuple[str, Crash]) -> None:
    url, crash = server
    engine = Engine.from_url(url)
    await engine.store.migrate()
    async with engine, Housekeeping(engine, Chores(sweep_s=0.1)):
        workers = [Worker(url, "drain", f"w{n}", 1_000) for n in range(2)]
        acknowledged_ids: list[str] = []
        producing = asyncio.create_task(produce(engine, acknowledged_ids, 600))
        for _ in range(3):
            await asyncio.sleep(0.4)
            await asyncio.to_thread(crash)
        sent_ids = await producing
        assert None not in await engine.store.get(sent_ids), "an acknowledged job is gone: nobody need wait for its end"
        await until_ended(engine, len(sent_ids), within_s=90)
        for worker in workers:
            worker.kill()
        assert set(acknowledged_ids) <= set(sent_ids)
        await every_job_ended_once(engine, sent_ids)


async def produce(engine: Engine, acknowledged_ids: list[str], count: int) -> list[str]:
    """Enqueue jobs one by one; after a lost answer, look the job up and send it again if missing."""
    sent_ids: list[str] = []
    while len(sent_ids) < count:
        new = new_job(max_attempts=50, retry=PATIENT)
        if await enqueue_surely(engine, new):
            acknowledged_ids.append(new.job_id)
        sent_ids.append(new.job_id)
        await asyncio.sleep(0.002)
    return sent_ids


async def enqueue_surely(engine: Engine, new: NewJob) -> bool:
    """True when the first answer came."""
    first = True
    while True:
        try:
            await engine.enqueue([new])
        except StoreUnavailable:
            first = False
            await asyncio.sleep(0.05)
        except DuplicateJob:
            return False  # it was there already: the lost answer was a yes
        else:
            return first
