"""A reachable Redis that refuses service: full, a replica, without its replicas, busy, or closed to this user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import redis

from callsheet.kernel.errors import Outage, StoreError, StoreRefused, StoreUnavailable
from callsheet.store.redis import RedisStore
from callsheet.store.redis.client import translated
from tests.running_worker import until
from tests.servers import RedisServer
from tests.store_driver import new_job


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """Start a private server: its changed state would break other tests."""
    with RedisServer.start(settings={"enable-protected-configs": "yes", "save": ""}) as server:
        yield server


@pytest.fixture
def admin(server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url()) as admin:
        yield admin


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore.from_url(server.url())
    await store.open()
    yield store
    await store.close()


class State(NamedTuple):
    """A server state, with functions to enter and leave it."""

    begin: Callable[[Any], object]
    end: Callable[[Any], object]


def fail_to_save(admin: Any) -> None:
    """Let a snapshot fail, as on a full disk: from then on every write is refused."""
    admin.config_set("dir", "/proc")
    admin.config_set("save", "3600 1")
    admin.config_set("stop-writes-on-bgsave-error", "yes")
    admin.bgsave()
    while admin.info("persistence")["rdb_last_bgsave_status"] == "ok":
        continue


STATES = {
    "full": State(lambda a: a.config_set("maxmemory", 1), lambda a: a.config_set("maxmemory", 0)),
    "a replica": State(lambda a: a.replicaof("127.0.0.1", 1), lambda a: a.replicaof("NO", "ONE")),
    "without replicas": State(
        lambda a: a.config_set("min-replicas-to-write", 1), lambda a: a.config_set("min-replicas-to-write", 0)
    ),
    "unable to save": State(fail_to_save, lambda a: a.config_set("stop-writes-on-bgsave-error", "no")),
}


@pytest.mark.parametrize("name", STATES)
async def test_a_server_that_cannot_serve_is_away(store: RedisStore, admin: Any, name: str) -> None:
    STATES[name].begin(admin)
    try:
        with pytest.raises(StoreUnavailable) as excinfo:
            await store.enqueue([new_job()])
    finally:
        STATES[name].end(admin)
    assert isinstance(excinfo.value, Outage)
    await store.enqueue([new_job()])


async def test_a_server_whose_master_is_away_is_away(store: RedisStore, admin: Any) -> None:
    admin.config_set("replica-serve-stale-data", "no")
    admin.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(StoreUnavailable):
            await store.get([new_job().job_id])
    finally:
        admin.replicaof("NO", "ONE")
        admin.config_set("replica-serve-stale-data", "yes")
    await store.enqueue([new_job()])


async def test_a_server_that_is_busy_with_a_script_is_away(store: RedisStore, admin: Any, server: RedisServer) -> None:
    admin.config_set("busy-reply-threshold", 1)
    with redis.Redis.from_url(server.url()) as other:
        forever = asyncio.create_task(asyncio.to_thread(lambda: other.eval("while true do end", 0)))
        refusals = list[StoreError]()

        async def is_refused() -> bool:
            try:
                await store.get([new_job().job_id])
            except StoreError as error:
                refusals.append(error)
            return bool(refusals)

        await until(is_refused)
        admin.script_kill()
        with pytest.raises(redis.ResponseError):
            await forever
    assert isinstance(refusals[0], StoreUnavailable)


async def test_a_user_who_may_not_is_refused_and_not_failed(store: RedisStore, admin: Any, server: RedisServer) -> None:
    admin.acl_setuser("w", enabled=True, nopass=True, keys="*", commands=["+@all"])
    there = urlsplit(server.url())
    own = RedisStore.from_url(there._replace(netloc=f"w:x@{there.netloc}").geturl())
    await own.open()
    admin.acl_setuser("w", enabled=True, nopass=True, keys="*", commands=["+@all", "-evalsha"])
    with pytest.raises(StoreRefused):
        await own.enqueue([new_job()])
    await own.close()


@pytest.mark.parametrize("words", ["value is not an integer or out of range", "unknown command 'NONE'"])
def test_a_mistake_in_a_command_is_no_outage(words: str) -> None:
    with pytest.raises(StoreError) as excinfo, translated():
        raise redis.ResponseError(f"ERR {words}")
    assert not isinstance(excinfo.value, Outage)


@pytest.mark.parametrize(
    "words",
    [
        "ERR Error running script (call to f_1): @user_script:12: @user_script: 12: -MISCONF Redis is configured",
        "ERR user_script:183: READONLY You can't write against a read only replica. script: f_1",
        "UNKNOWNSTATE of a server of tomorrow",
    ],
)
def test_what_a_command_in_a_script_met_is_known_in_the_words_of_older_servers(words: str) -> None:
    with pytest.raises(StoreUnavailable), translated():
        raise redis.ResponseError(words)
