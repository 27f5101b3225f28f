"""Programs that start while their store, or their server, is away.

Commands wait for the store, and a signal ends the wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from callsheet.cli.open_store import Patience
from callsheet.engine import Engine
from callsheet.kernel.errors import StoreRefused, StoreUnavailable
from callsheet.store.sqlite import connection
from tests import stores
from tests.cli.conftest import Shop, Start
from tests.cli.programs import eventually
from tests.server_process import free_port
from tests.servers import PostgresServer, RedisServer

KEY = "0123456789abcdef-of-the-tests"
NOWHERE = "redis://127.0.0.1:1/0"
WAITING = "waiting for the store"
SERVICES = ("worker", "serve", "up")
LONG = {"CALLSHEET_WAIT": "10m"}  # no test waits for its end
SHORT = {"CALLSHEET_WAIT": "3s"}


class Server(NamedTuple):
    """A private server that tests can stop and restart."""

    url: str
    kill: Callable[[], None]
    start_again: Callable[[], None]


@contextlib.contextmanager
def server_of(kind: str) -> Iterator[Server]:
    if kind == "postgres":
        with PostgresServer.start(settings={"shared_buffers": "32MB"}) as postgres:
            yield Server(postgres.create_database(), postgres.kill, postgres.start_again)
    else:
        with RedisServer.start(settings={"appendfsync": "always"}) as redis:
            yield Server(redis.fresh_url(), redis.kill9, redis.start_again)


def service(shop: Shop, name: str, url: str) -> tuple[str, ...]:
    if name == "worker":
        return name, shop.app, "--database-url", url
    return name, "--port", str(free_port()), "--auth", "off", "--database-url", url


@pytest.mark.parametrize(("kind", "names"), [("postgres", ("worker", "up")), ("redis", ("worker", "serve"))])
def test_services_wait_for_a_store_that_is_away(shop: Shop, start: Start, kind: str, names: tuple[str, str]) -> None:
    with server_of(kind) as server:
        assert shop.cli("migrate", "--database-url", server.url).exit_code == 0
        server.kill()
        programs = [start(*service(shop, name, server.url), **LONG) for name in names]
        for program in programs:
            program.hear(WAITING, times=2)
        server.start_again()
        for program in programs:
            program.hear("the store is there")
            program.hear(f"store {urlsplit(server.url).scheme}://")  # it is ready
            program.signal()
        assert [program.end() for program in programs] == [0, 0]


def test_a_signal_ends_the_wait(shop: Shop, start: Start) -> None:
    programs = [start(*service(shop, name, NOWHERE), **LONG) for name in SERVICES]
    for program in programs:
        program.hear(WAITING)
        program.signal()
    assert [program.end() for program in programs] == [0, 0, 0]


def test_who_is_not_to_wait_fails_at_once(shop: Shop) -> None:
    for name in SERVICES:
        result = shop.cli(*service(shop, name, NOWHERE), "--wait", "0")
        assert (result.exit_code, WAITING in result.output) == (1, False), result.output
        assert "Redis cannot serve now" in result.output


def test_a_wait_has_an_end(shop: Shop) -> None:
    result = shop.cli(*service(shop, "worker", NOWHERE), "--wait", "10ms")
    assert (result.exit_code, WAITING in result.output) == (1, True), result.output
    assert "Redis cannot serve now" in result.output.splitlines()[-1]


def refusals(tmp_path: Path) -> dict[str, str]:
    """Return URLs of unusable stores, by their error message."""
    newer = tmp_path / "newer.db"
    with contextlib.closing(sqlite3.connect(newer)) as db:
        db.execute("PRAGMA user_version = 9999")
    postgres = urlsplit(stores.fresh_url("postgres"))
    redis = urlsplit(stores.fresh_url("redis"))
    return {
        'role "stranger" does not exist': postgres._replace(netloc=f"stranger@127.0.0.1:{postgres.port}").geturl(),
        "Redis does not let this user in": redis._replace(netloc=f"stranger:no@127.0.0.1:{redis.port}").geturl(),
        "upgrade callsheet": f"sqlite:///{newer}",
        "make sure that the folder exists": f"sqlite:///{tmp_path}/nowhere/jobs.db",
        "no store for scheme": "mysql://127.0.0.1/jobs",
    }


def test_what_no_waiting_mends_fails_at_once(shop: Shop, tmp_path: Path) -> None:
    for message, url in refusals(tmp_path).items():
        result = shop.cli(*service(shop, "serve", url), env=SHORT)
        assert result.exit_code != 0, url
        assert message in result.output
        assert WAITING not in result.output, result.output


def test_migrate_and_doctor_wait_for_nothing(shop: Shop) -> None:
    for command in "migrate", "doctor":
        result = shop.cli(command, "--database-url", NOWHERE, env=SHORT)
        assert result.exit_code == 1, result.output
        assert WAITING not in result.output


def test_a_worker_waits_for_a_server_that_is_away(shop: Shop, start: Start) -> None:
    port = free_port()
    words = ("worker", shop.app, "--url", f"http://127.0.0.1:{port}")
    refusal = start(*words, "--wait", "0", CALLSHEET_TOKEN=KEY)
    stopped, worker = (start(*words, CALLSHEET_TOKEN=KEY, **LONG) for _ in range(2))
    assert refusal.end() == 1
    for program in stopped, worker:
        program.hear("waiting for the server")
    stopped.signal()
    assert stopped.end() == 0
    server = start("serve", "--port", str(port), "--database-url", shop.url, CALLSHEET_API_KEY=KEY)
    worker.hear("the server is there")
    job_id = shop.add("add", {"a": 1})
    eventually(lambda: shop.ended(job_id))
    for program in worker, server:
        program.signal()
        assert program.end() == 0


async def test_a_sqlite_file_that_somebody_locks_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "BUSY_S", 0)
    path = tmp_path / "jobs.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE held (a)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match="locked") as away:
            await Patience(0).open(Engine.from_url(f"sqlite:///{path}").__aenter__)
        assert not isinstance(away.value, StoreRefused)
        with caplog.at_level(logging.WARNING, "callsheet.cli"):
            opening = asyncio.create_task(
                Patience("10m").open(lambda: Engine.from_url(f"sqlite:///{path}").__aenter__())
            )
            async with asyncio.timeout(60):
                while WAITING not in caplog.text:
                    await asyncio.sleep(0.01)
        other.execute("ROLLBACK")
        engine = await asyncio.wait_for(opening, 60)
        await engine.__aexit__(None, None, None)
