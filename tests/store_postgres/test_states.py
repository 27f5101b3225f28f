"""A PostgreSQL error about the server's state is an outage; an error about a statement or value is none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callsheet.kernel.errors import Outage, StoreError, StoreUnavailable
from callsheet.store.postgres import PostgresStore
from callsheet.store.postgres.connection import Database
from tests import stores

OF_THE_SERVER = {
    "too many connections": "53300",
    "a full disk": "53100",
    "no memory": "53200",
    "a limit of its configuration": "53400",
    "its shutdown": "57P01",
    "its crash": "57P02",
    "its start": "57P03",
    "a database that was dropped": "57P04",
    "a session that was idle": "57P05",
    "a transaction that took too long": "25P04",
    "a standby": "25006",
    "a disk that fails": "58030",
    "a file that is gone": "58P01",
    "a damaged page": "XX001",
    "a damaged index": "XX002",
    "an inner error": "XX000",
    "a lock that was not had": "55P03",
    "a pooler that lost its server": "08P01",
}
OF_THE_STATEMENT = {"a value": "22P05", "a name": "42P01", "a right": "42501", "a limit": "54000", "a check": "23514"}


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    store = PostgresStore.from_url(stores.ready_url("postgres"))
    await store.open()
    yield store._db
    await store.close()


def raising(code: str) -> str:
    return f"DO $$ BEGIN RAISE EXCEPTION 'so it is' USING ERRCODE = '{code}'; END $$"


@pytest.mark.parametrize("name", OF_THE_SERVER)
async def test_what_a_server_says_of_its_state_is_an_outage(database: Database, name: str) -> None:
    with pytest.raises(StoreUnavailable):
        await database.fetch(raising(OF_THE_SERVER[name]))
    assert await database.fetch("SELECT 1") == [(1,)]


@pytest.mark.parametrize("name", OF_THE_STATEMENT)
async def test_what_a_server_says_of_a_statement_is_no_outage(database: Database, name: str) -> None:
    with pytest.raises(StoreError) as excinfo:
        await database.fetch(raising(OF_THE_STATEMENT[name]))
    assert not isinstance(excinfo.value, Outage)
