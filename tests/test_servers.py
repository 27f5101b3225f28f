"""The private servers: they come up, survive what fault tests do to them, and never outlive the tests."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
import redis.asyncio

from tests import binaries
from tests.servers import NotOurServer, PgBouncer, PostgresServer, RedisServer, ServerFailed, ServerMissing

ROOT = Path(__file__).parent.parent
ORPHAN = """
import sys
from tests.servers import PostgresServer, RedisServer
servers = [PostgresServer.start(), RedisServer.start()]
for server in servers:
    print(server.pid, server._own.directory)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALLSHEET_TEST_POSTGRES_URL", raising=False)
    monkeypatch.delenv("CALLSHEET_TEST_REDIS_URL", raising=False)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CALLSHEET_TEST_POSTGRES_URL", raising=False)
        with PostgresServer.start() as server:
            yield server


async def ask(url: str, *statements: str) -> object:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetchval(statements[-1])
    finally:
        await connection.close()


async def test_postgres_databases_are_fresh_and_durable_by_default(postgres: PostgresServer) -> None:
    one, two = postgres.create_database(), postgres.create_database()
    assert one != two
    await ask(one, "CREATE TABLE t (n int)", "SELECT count(*) FROM t")
    assert await ask(two, "SELECT to_regclass('t')") is None
    assert await ask(one, "SELECT current_setting('fsync')") == "on"
    assert await ask(one, "SELECT current_setting('synchronous_commit')") == "on"


@pytest.mark.parametrize("crash", ["restart_immediate", "kill"])
async def test_postgres_keeps_what_was_committed_when_it_crashes(postgres: PostgresServer, crash: str) -> None:
    url = postgres.create_database()
    await ask(url, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (7)", "SELECT 1")
    before = postgres.pid
    getattr(postgres, crash)()
    if crash == "kill":
        postgres.start_again()
    assert postgres.pid != before
    assert await ask(url, "SELECT n FROM t") == 7


async def test_postgres_takes_settings() -> None:
    with PostgresServer.start(settings={"synchronous_commit": "off"}) as server:
        assert await ask(server.url(), "SHOW synchronous_commit") == "off"


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerFailed, match="max_connections"):
        PostgresServer.start(settings={"max_connections": "none"})


async def test_redis_replays_its_file_after_kill_9() -> None:
    with RedisServer.start(settings={"appendfsync": "always"}) as server:
        url = server.fresh_url()
        async with redis.asyncio.from_url(url) as client:
            await client.set("key", "kept")
            server.kill9()
            with pytest.raises(redis.ConnectionError):
                await client.get("key")
            server.start_again()
            assert await client.get("key") == b"kept"


async def test_redis_hands_out_empty_databases_and_empties_them_when_it_runs_out() -> None:
    with RedisServer.start(settings={"databases": "1024"}) as server:
        first = server.fresh_url()
        async with redis.asyncio.from_url(first) as client:
            await client.set("key", "old")
            others = {server.fresh_url() for _ in range(1023)}
            assert first not in others
            assert len(others) == 1023
            assert await client.get("key") == b"old"
            assert server.fresh_url() == first
            assert await client.get("key") is None


async def test_pgbouncer_shares_a_server_connection_between_clients(postgres: PostgresServer) -> None:
    try:
        pooler = PgBouncer.start(postgres, pool_size=1)
    except ServerMissing as missing:
        pytest.skip(str(missing))
    with pooler:
        url = pooler.create_database()
        clients = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(2)]
        try:
            backends = {await client.fetchval("SELECT pg_backend_pid()") for client in clients}
        finally:
            for client in clients:
                await client.close()
    assert len(backends) == 1


async def test_a_given_postgres_is_used_and_never_ended(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHEET_TEST_POSTGRES_URL", postgres.url())
    with PostgresServer.start() as arguments:
        url = arguments.create_database()
        assert await ask(url, "SELECT 1") == 1
        for forbidden in (arguments.kill, arguments.restart_immediate, arguments.start_again):
            with pytest.raises(NotOurServer):
                forbidden()
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await ask(url, "SELECT 1")


async def test_a_given_redis_lends_only_its_empty_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisServer.start(settings={"databases": "16"}) as ours:
        async with redis.asyncio.from_url(ours.url(2)) as client:
            await client.set("key", "not for tests")
            monkeypatch.setenv("CALLSHEET_TEST_REDIS_URL", ours.url())
            with RedisServer.start() as arguments:
                assert ours.url(2) not in {arguments.fresh_url() for _ in range(40)}
                with pytest.raises(NotOurServer):
                    arguments.kill9()
            assert await client.get("key") == b"not for tests"


def test_servers_and_their_files_do_not_outlive_a_killed_test_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        texts = [line.split() for line in itertools.takewhile(lambda line: line != "ready\n", tests.stdout)]
        servers = [(int(pid), Path(directory)) for pid, directory in texts]
        assert len(servers) == 2
        assert all(psutil.pid_exists(pid) and directory.exists() for pid, directory in servers)
        tests.kill()
    until(lambda: not any(psutil.pid_exists(pid) or directory.exists() for pid, directory in servers))


def until(holds: Callable[[], bool], *, timeout_s: float = 15) -> None:
    """Polling is the only way to wait: the process with the answer has been killed."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    "message", ["echo 'Redis server v=5.0.14 sha=00000000:0'", "exit 127"], ids=["too old", "broken"]
)
def test_a_redis_of_the_machine_that_cannot_be_used_is_passed_over(
    message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\n{message}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv(binaries.REDIS_VARIABLE, raising=False)
    assert binaries.older_redis.__wrapped__() is None
    assert binaries.redis_program.__wrapped__("valkey").exists()
