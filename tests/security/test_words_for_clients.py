"""What clients read of an error names no path of the host, and has no word of SQL, Lua or a driver in it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callsheet.api import webhook_deliveries, webhook_endpoints
from callsheet.app.sealing import sealer_from
from callsheet.contracts.euterpe.tasks import outcome_of
from callsheet.http.problems import of_error
from callsheet.kernel import commands
from callsheet.kernel.errors import CallsheetError, DiskFull, DuplicateJob, StoreError, StoreRefused
from callsheet.kernel.retry import JobError
from callsheet.outbox import Endpoints
from callsheet.vault.errors import InvalidKeyring, KeyServiceUnavailable, NoKeyring
from callsheet.vault.keys import read_file
from callsheet.worker.execute import after_error
from callsheet.worker.outages import outage_of, refusal_of
from tests import stores
from tests.http.live import problem, serving
from tests.store_driver import StoreDriver, new_job

HOOK = {"url": "https://hooks.example.org/x"}
DRIVERS = (
    "unique",
    "constraint",
    "violate",
    "duplicate key",
    "detail",
    "insert",
    "callsheet_",
    "jobs.",
    "script",
    "lua",
)


@pytest.fixture(params=stores.THREE)
async def driver(request: pytest.FixtureRequest) -> AsyncIterator[StoreDriver]:
    store = await stores.open_store(stores.fresh_url(request.param))
    yield StoreDriver(store)
    await store.close()


def plain(error: CallsheetError) -> bool:
    """Assert that the answer for an error names no driver."""
    detail = of_error(error).detail.lower()
    return bool(detail) and not any(word in detail for word in DRIVERS)


async def test_a_taken_id_is_told_without_a_word_of_the_store(driver: StoreDriver) -> None:
    first, keyed_job = new_job(), new_job(unique_key="u")
    await driver.enqueue(first)
    with pytest.raises(DuplicateJob) as alone:
        await driver.enqueue(first)
    with pytest.raises(DuplicateJob) as together:
        await driver.enqueue(keyed_job, first)
    assert plain(alone.value)
    assert plain(together.value)


async def test_a_taken_key_is_told_without_a_word_of_the_store(driver: StoreDriver) -> None:
    job = await driver.running(unique_key="u")
    await driver.settle(commands.fail(job, JobError("fatal"), rand=0))
    await driver.add(unique_key="u")
    with pytest.raises(DuplicateJob) as excinfo:
        await driver.settle(commands.requeue(await driver.get(job.job_id)))
    assert plain(excinfo.value)


async def test_a_follow_up_with_a_taken_id_is_told_without_a_word_of_the_store(driver: StoreDriver) -> None:
    taken_job = new_job()
    await driver.enqueue(taken_job)
    job = await driver.claim_one()
    with pytest.raises(DuplicateJob) as excinfo:
        await driver.settle(commands.succeed(job, "null", follow_ups=(taken_job,)))
    assert plain(excinfo.value)


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "readable by others"])
async def test_no_answer_names_the_file_of_the_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_there: bool
) -> None:
    path = tmp_path / "keys"
    environ = {"CALLSHEET_KEYS_FILE": str(path)}
    async with serving(
        stores.fresh_url("sqlite"), routers=[webhook_deliveries.router, webhook_endpoints.router]
    ) as live:
        if is_there:
            path.write_text("k1 x\n")
            path.chmod(0o644)
            with pytest.raises(InvalidKeyring) as excinfo:
                read_file(path)
            assert (of_error(excinfo.value).code, str(path) in of_error(excinfo.value).detail) == ("error", False)
            assert str(path) in str(excinfo.value), "an operator reads which file it is"
            return
        live.state.endpoints = Endpoints(live.engine.store, sealer_from(environ))
        with caplog.at_level(logging.WARNING, "callsheet.http"):
            response = await live.client.post("/v1/webhooks/endpoints", json=HOOK)
        details = problem(response, 503, "no_keyring")
    assert str(path) not in response.text
    assert str(tmp_path) not in response.text
    assert "CALLSHEET_KEYS_FILE" in details["detail"]
    assert str(path) in caplog.text, "the log says which file it is"


SECRET = "/srv/secret/place"


@pytest.mark.parametrize("kind", [NoKeyring, InvalidKeyring, KeyServiceUnavailable, StoreError, StoreRefused])
async def test_neither_an_answer_nor_a_job_names_what_is_of_the_host(
    kind: type[CallsheetError], driver: StoreDriver
) -> None:
    error = kind(f"cannot open {SECRET}: SELECT 1 FROM jobs")
    assert SECRET not in of_error(error).detail
    outcome = outcome_of(error, 1)
    assert SECRET not in (after_error(await driver.running(), outcome).error or "")


async def test_an_error_that_nobody_has_looked_at_says_nothing() -> None:
    error = CallsheetError(SECRET)
    error.code = "of_tomorrow"
    assert SECRET not in of_error(error).detail


async def test_a_full_disk_names_no_file() -> None:
    result = outage_of(OSError(28, "No space left on device", f"{SECRET}/frame.png"))
    assert isinstance(result, DiskFull)
    assert "No space left on device" in str(result)
    assert SECRET not in str(result)


async def test_an_end_that_the_store_refuses_is_told_without_its_words() -> None:
    for error in (StoreError("PostgreSQL refused a statement: jobs.x"), sqlite3.IntegrityError("jobs.x")):
        assert "jobs.x" not in refusal_of(error).message
    assert refusal_of(StoreError("x")).retryable is False
