"""`@app.cron` and `@app.every`: schedules in the code, which workers write to the store."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from callsheet import Callsheet
from callsheet.engine.schedules import Source, schedule_states
from callsheet.kernel.errors import InvalidInput, InvalidPayload, InvalidTask
from callsheet.testing import harness
from tests import stores
from tests.running_worker import until, working


def program(*, with_report: bool = True) -> Callsheet:
    app = Callsheet(stores.ready_url("sqlite"))

    @app.every("10m", arguments={"where": "inbox"}, overlap="skip")
    @app.task(queue="mail", max_attempts=7)
    async def fetch(where: str) -> str:
        return where

    if with_report:

        @app.cron("30 2 * * *", timezone="Europe/Berlin", name="nightly", missed="skip")
        @app.task
        async def report() -> None: ...

    return app


async def test_a_worker_writes_what_its_program_declares() -> None:
    app = program()
    async with app, working(app):
        store = (await app.engine()).store

        async def has_both() -> bool:
            return len(await schedule_states(store)) == 2

        await until(has_both)
        fetch, nightly = (state.schedule for state in await schedule_states(store))
    assert (fetch.name, fetch.queue, fetch.max_attempts, fetch.every_ms) == ("fetch", "mail", 7, 600_000)
    assert (fetch.payload, fetch.overlap, fetch.source) == ('{"where":"inbox"}', "skip", Source.CODE)
    assert (nightly.name, nightly.kind, nightly.cron, nightly.timezone) == (
        "nightly",
        "report",
        "30 2 * * *",
        "Europe/Berlin",
    )


async def test_what_the_code_does_not_declare_any_more_goes() -> None:
    app, later = program(), program(with_report=False)
    async with app:
        engine = await app.engine()
        await app.register()
        await later.register(engine)
        assert [state.schedule.name for state in await schedule_states(engine.store)] == ["fetch"]


async def test_declared_schedules_fire_in_a_users_test() -> None:
    app = program()
    async with harness(app, at=datetime(2026, 11, 20, 0, 5, tzinfo=UTC)) as jobs:
        (job,) = await jobs.advance("5m")
        assert (job.kind, job.result) == ("fetch", '"inbox"')
        kinds = [job.kind for job in await jobs.advance("2h")]
    assert (kinds.count("fetch"), kinds.count("report")) == (12, 1)


def test_a_schedule_that_cannot_fire_is_told_where_it_is_declared() -> None:
    app = program()

    @app.task
    async def needs(what: str) -> None: ...

    with pytest.raises(InvalidInput, match="cron"):
        app.cron("61 * * * *", arguments={"what": "a"})(needs)
    with pytest.raises(InvalidInput, match="every"):
        app.every("1ms", arguments={"what": "a"})(needs)
    with pytest.raises(InvalidPayload, match="what"):
        app.every("1m")(needs)
    with pytest.raises(InvalidTask, match="nightly"):
        app.every("1m", arguments={"what": "a"}, name="nightly")(needs)
