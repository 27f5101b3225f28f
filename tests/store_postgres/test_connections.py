from __future__ import annotations

import asyncio
import uuid

import pytest

from callsheet.kernel import commands
from callsheet.kernel.errors import StoreUnavailable, UnknownStore
from callsheet.kernel.job import NewJob, Status
from callsheet.store.postgres import PostgresStore
from callsheet.store.postgres.target import Target
from callsheet.store.protocol import ClaimRequest, Hint, Settled
from tests import stores
from tests.servers import PgBouncer, PostgresServer, ServerMissing


def new_id() -> str:
    return str(uuid.uuid4())


def test_our_options_are_taken_off_the_url() -> None:
    target = Target.from_url("postgresql://u@h:1/d?sslmode=require&pgbouncer=true&pool_size=9")
    assert target == Target("postgresql://u@h:1/d?sslmode=require", None, pooled=True, pool_size=9)
    assert Target.from_url("postgres://u@h/d").direct_dsn == "postgres://u@h/d"


def test_a_pool_needs_a_size() -> None:
    with pytest.raises(UnknownStore, match="pool_size"):
        Target.from_url("postgresql://h/d?pool_size=none")


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    store = PostgresStore.from_url("postgresql://postgres@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailable):
        await store.open()
    with pytest.raises(StoreUnavailable):
        await store.migrate()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.claim(ClaimRequest("w"))


async def test_the_store_works_again_after_the_server_crashed() -> None:
    with PostgresServer.start(settings={"fsync": "on"}) as server:
        store = PostgresStore.from_url(server.create_database())
        await store.migrate()
        await store.open()
        await store.enqueue([NewJob(new_id(), "k") for _ in range(3)])
        (first,) = await store.claim(ClaimRequest("w"))
        server.restart_immediate()
        assert await store.settle([commands.succeed(first)]) == [Settled.APPLIED]
        assert len(await store.claim(ClaimRequest("w", limit=9))) == 2
        server.kill()
        with pytest.raises(StoreUnavailable):
            await store.counts()
        server.start_again()
        assert (await store.counts())["default"][Status.SUCCEEDED] == 1
        await store.close()


async def test_a_listener_comes_back_after_the_server_crashed() -> None:
    with PostgresServer.start(settings={"fsync": "on"}) as server:
        url = server.create_database()
        store = PostgresStore.from_url(url)
        await store.migrate()
        await store.open()
        hints = store.hints()
        async with asyncio.timeout(20):
            assert await anext(hints) == Hint()  # it listens
            server.restart_immediate()
            assert await anext(hints) == Hint()  # it listens again, and does not know what it has missed
            other = await PostgresStore.from_url(url).open()
            await other.enqueue([NewJob(new_id(), "k", queue="far")])
            while (hint := await anext(hints)) != Hint() and "far" not in hint.queues:
                pass
        await other.close()
        await store.close()


async def test_another_process_is_woken(store: PostgresStore, url: str) -> None:
    other = await PostgresStore.from_url(url).open()
    hints = other.hints()
    async with asyncio.timeout(10):
        assert await anext(hints) == Hint()  # it has begun to listen
        await store.enqueue([NewJob(new_id(), "k", queue="far")])
        while "far" not in (await anext(hints)).queues:
            pass
    await other.close()


async def test_through_pgbouncer_in_transaction_mode() -> None:
    server = stores.postgres_server()
    try:
        pooler = PgBouncer.start(server, pool_size=2)
    except ServerMissing as missing:
        pytest.skip(str(missing))
    with pooler:
        store = PostgresStore.from_url(f"{pooler.create_database()}?pgbouncer=true&pool_size=8")
        await store.migrate()
        await store.open()
        parent = new_id()
        await store.enqueue([NewJob(parent, "k"), NewJob(new_id(), "k", depends_on=(parent,), unique_key="u")])
        await asyncio.gather(*(store.enqueue([NewJob(new_id(), "k") for _ in range(5)]) for _ in range(20)))

        async def work() -> int:
            done = 0
            while jobs := await store.claim(ClaimRequest("w", limit=3)):
                done += len(await store.settle([commands.succeed(job) for job in jobs]))
            return done

        assert sum(await asyncio.gather(*(work() for _ in range(8)))) + await work() == 102
        hints = store.hints()
        async with asyncio.timeout(30):
            assert await anext(hints) == Hint()  # by the clock: a transaction pooler does not pass on LISTEN
        await store.close()
