from __future__ import annotations

import asyncio
import time
import uuid

import asyncpg
import pytest

from callsheet.kernel import commands
from callsheet.kernel.errors import StoreUnavailable, UnknownStore
from callsheet.kernel.job import NewJob, Status
from callsheet.store.postgres import PostgresStore, connection
from callsheet.store.postgres.connection import Target
from callsheet.store.protocol import ClaimRequest, Hint, Settled
from tests import stores
from tests.servers import PgBouncer, PostgresServer, ServerMissing


def new_id() -> str:
    return str(uuid.uuid4())


def test_our_options_are_taken_off_the_url() -> None:
    target = Target.from_url("postgresql://u@h:1/d?sslmode=require&pgbouncer=true&pool_size=9")
    assert target == Target("postgresql://u@h:1/d?sslmode=require", None, is_pooled=True, pool_size=9)
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


async def test_the_driver_need_not_ask_what_an_array_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_: asyncpg.Connection, typeoids: set[int], *_more: object) -> object:
        raise AssertionError(f"the driver asks for {typeoids}")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", ask)
    store = await stores.open_store(stores.ready_url("postgres"))
    try:
        await store.enqueue([NewJob(new_id(), "k", payload=f"{n}") for n in range(9)])
        jobs = await store.claim(ClaimRequest("w", limit=9))
        await store.heartbeat([job.claim for job in jobs], lease_ms=9_000)
        assert await store.settle([commands.succeed(job, job.payload) for job in jobs]) == [Settled.APPLIED] * 9
    finally:
        await store.close()


async def test_what_the_driver_is_told_of_arrays_is_what_it_would_find() -> None:
    session = await connection.connect(Target.from_url(stores.ready_url("postgres")))
    try:
        rows, _ = await asyncpg.Connection._introspect_types(session, set(connection._ARRAYS), 9)  # type: ignore[attr-defined]
    finally:
        await session.close()
    results = {row["oid"]: dict(row) for row in rows}
    for oid in connection._ARRAYS:
        array_type = connection._array(oid)
        assert array_type == {name: results[oid][name] for name in array_type}


async def test_the_store_works_again_after_the_server_crashed() -> None:
    with PostgresServer.start(settings={"fsync": "on"}) as server:
        store = PostgresStore.from_url(server.create_database())
        await store.migrate()
        await store.open()
        await store.enqueue([NewJob(new_id(), "k") for _ in range(3)])
        (first,) = await store.claim(ClaimRequest("w"))
        server.restart_immediate()
        time.sleep(connection.IDLE_S)  # noqa: ASYNC251 - the loop is not to see before the store that the connection is gone
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
        async with asyncio.timeout(60):
            assert await anext(hints) == Hint()  # it listens
            server.restart_immediate()
            assert await anext(hints) == Hint()  # it listens again, and does not know what it has missed
            other = await PostgresStore.from_url(url).open()
            await other.enqueue([NewJob(new_id(), "k", queue="far")])
            while (hint := await anext(hints)) != Hint() and "far" not in hint.queues:
                pass
        await other.close()
        await store.close()


async def test_many_share_one_connection(url: str) -> None:
    store = PostgresStore.from_url(f"{url}?pool_size=1")
    await store.migrate()
    await store.open()
    async with asyncio.timeout(60):
        jobs = [[NewJob(new_id(), "k")] for _ in range(50)]
        await asyncio.gather(*(store.enqueue(batch) for batch in jobs), *(store.now() for _ in range(50)))
        assert (await store.counts())["default"][Status.QUEUED] == 50
    await store.close()


async def test_a_connection_that_was_cut_while_it_was_at_hand_is_not_used(store: PostgresStore, url: str) -> None:
    await asyncio.gather(*(store.now() for _ in range(4)))
    at_hand = [session._con for _, session in store._db._at_hand]
    other = await asyncpg.connect(url)
    await other.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(60):
        while not all(session.is_closed() for session in at_hand):
            await asyncio.sleep(0.01)
    await asyncio.gather(*(store.now() for _ in range(8)))
    await other.close()


async def test_a_call_that_was_given_up_leaves_no_connection_in_the_middle_of_it(store: PostgresStore) -> None:
    await store.now()
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await store._db.fetch("SELECT pg_sleep(10)")
        assert await store._db.fetch("SELECT 7") == [(7,)]


async def test_connections_go_back_to_the_pool_when_nobody_needs_them(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callsheet.store.postgres.connection.AT_HAND_S", 0.05)
    await asyncio.gather(*(store.now() for _ in range(4)))
    pool = store._db._pool
    assert pool is not None
    async with asyncio.timeout(60):
        while pool.get_idle_size() < pool.get_size():
            await asyncio.sleep(0.01)
    await store.now()


async def test_another_process_is_woken(store: PostgresStore, url: str) -> None:
    other = await PostgresStore.from_url(url).open()
    hints = other.hints()
    async with asyncio.timeout(60):
        assert await anext(hints) == Hint()  # it has begun to listen
        await store.enqueue([NewJob(new_id(), "k", queue="far")])
        while "far" not in (await anext(hints)).queues:
            pass
    await other.close()


async def test_another_process_is_woken_for_what_has_become_due(store: PostgresStore, url: str) -> None:
    await store.enqueue([NewJob(new_id(), "k", queue="far", delay_ms=60_000)])
    later = await store.now() + 61_000
    other = await PostgresStore.from_url(url).open()
    hints = other.hints()
    async with asyncio.timeout(60):
        assert await anext(hints) == Hint()  # it has begun to listen
        assert await store.promote(now=later) == 1
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
            count = 0
            while jobs := await store.claim(ClaimRequest("w", limit=3)):
                count += len(await store.settle([commands.succeed(job) for job in jobs]))
            return count

        assert sum(await asyncio.gather(*(work() for _ in range(8)))) + await work() == 102
        hints = store.hints()
        async with asyncio.timeout(60):
            assert await anext(hints) == Hint()  # by the clock: a transaction pooler does not pass on LISTEN
        await store.close()
