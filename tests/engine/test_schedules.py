"""Schedules: cron lines and intervals, slots that were missed, jobs that overlap, and schedules that code declares."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.engine.schedules import (
    Schedule,
    ScheduleState,
    declare_schedules,
    fire_due,
    pause_schedule,
    put_schedule,
    schedule_states,
)
from callsheet.kernel import commands
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.job import Job, Status
from callsheet.store.protocol import ClaimRequest, JobQuery
from tests import stores

MINUTE = 60_000
NOON = 1_800_000_000_000 - 1_800_000_000_000 % (60 * MINUTE)


@pytest.fixture(params=stores.THREE)
async def engine(request: pytest.FixtureRequest) -> Any:
    engine = Engine.from_url(stores.fresh_url(request.param))
    await engine.store.migrate()
    async with engine:
        yield engine


async def jobs(engine: Engine) -> list[Job]:
    return (await engine.find(JobQuery(limit=200))).jobs


async def state(engine: Engine, name: str = "s") -> ScheduleState:
    (found,) = await schedule_states(engine.store, name)
    return found


async def test_an_interval_fires_at_its_own_grid(engine: Engine) -> None:
    await put_schedule(engine.store, Schedule("s", "", "tick", every_ms=10 * MINUTE), now=NOON + 1)
    assert await fire_due(engine.store, now=NOON + 10 * MINUTE - 1) == 0
    assert await fire_due(engine.store, now=NOON + 10 * MINUTE) == 1
    assert (await state(engine)).next_slot == NOON + 20 * MINUTE


@pytest.mark.parametrize(("missed", "runs", "skipped"), [("skip", 1, 5), ("once", 1, 0), ("all", 6, 0)])
async def test_slots_of_a_downtime(engine: Engine, missed: str, runs: int, skipped: int) -> None:
    await put_schedule(engine.store, Schedule("s", "*/5 * * * *", "tick", missed=missed), now=NOON)
    assert await fire_due(engine.store, now=NOON + 30 * MINUTE) == runs
    after = await state(engine)
    assert (len(await jobs(engine)), after.runs, after.skipped) == (runs, runs, skipped)
    assert after.next_slot == NOON + 35 * MINUTE
    assert await fire_due(engine.store, now=NOON + 30 * MINUTE) == 0


async def test_a_slot_that_is_late_is_skipped(engine: Engine) -> None:
    await put_schedule(engine.store, Schedule("s", "0 * * * *", "tick", missed="skip"), now=NOON)
    assert await fire_due(engine.store, now=NOON + 90 * MINUTE) == 0
    assert (await state(engine)).skipped == 1


async def test_all_missed_slots_are_bounded(engine: Engine) -> None:
    await put_schedule(engine.store, Schedule("s", "* * * * *", "tick", missed="all", most=3), now=NOON)
    assert await fire_due(engine.store, now=NOON + 600 * MINUTE) == 3
    assert [slot for slot, _ in (await state(engine)).history] == [NOON + n * MINUTE for n in (598, 599, 600)]
    assert (await state(engine)).skipped == 597


@pytest.mark.parametrize(
    ("overlap", "statuses"),
    [("queue", ["queued", "queued"]), ("skip", ["queued"]), ("cancel", ["canceled", "queued"])],
)
async def test_a_slot_beside_a_job_that_has_not_ended(engine: Engine, overlap: str, statuses: list[str]) -> None:
    await put_schedule(engine.store, Schedule("s", "* * * * *", "tick", overlap=overlap), now=NOON)
    await fire_due(engine.store, now=NOON + MINUTE)
    await fire_due(engine.store, now=NOON + 2 * MINUTE)
    assert sorted(job.status for job in await jobs(engine)) == statuses


async def test_a_running_job_is_asked_to_stop(engine: Engine) -> None:
    await put_schedule(engine.store, Schedule("s", "* * * * *", "tick", overlap="cancel"), now=NOON)
    await fire_due(engine.store, now=NOON + MINUTE)
    (first,) = await engine.claim(ClaimRequest("w", lease_ms=10 * MINUTE), now=NOON + MINUTE)
    await fire_due(engine.store, now=NOON + 2 * MINUTE)
    stopped = await engine.get(first.job_id)
    assert (stopped.status, stopped.cancel_requested_at is not None) == (Status.RUNNING, True)


async def test_a_slot_runs_again_when_the_job_before_has_ended(engine: Engine) -> None:
    await put_schedule(engine.store, Schedule("s", "* * * * *", "tick", overlap="skip"), now=NOON)
    await fire_due(engine.store, now=NOON + MINUTE)
    (first,) = await engine.claim(ClaimRequest("w"), now=NOON + MINUTE)
    await engine.settle([commands.succeed(first, "null")], now=NOON + MINUTE)
    assert await fire_due(engine.store, now=NOON + 2 * MINUTE) == 1


async def test_a_paused_schedule_waits_and_goes_on_with_the_next_slot(engine: Engine) -> None:
    await put_schedule(engine.store, Schedule("s", "* * * * *", "tick", missed="all"), now=NOON)
    await pause_schedule(engine.store, "s", paused=True, now=NOON)
    assert await fire_due(engine.store, now=NOON + 5 * MINUTE) == 0
    await pause_schedule(engine.store, "s", paused=False, now=NOON + 5 * MINUTE + 1)
    assert await fire_due(engine.store, now=NOON + 5 * MINUTE + 2) == 0
    assert await fire_due(engine.store, now=NOON + 6 * MINUTE) == 1
    assert await pause_schedule(engine.store, "no such", paused=True) is None


async def test_declared_schedules_follow_the_code_and_others_stay(engine: Engine) -> None:
    store = engine.store
    one, other = Schedule("one", "* * * * *", "tick"), Schedule("other", "* * * * *", "tick")
    await put_schedule(store, Schedule("of-somebody", "* * * * *", "tick"), now=NOON)
    await declare_schedules(store, {"another-app": [Schedule("theirs", "* * * * *", "tick")]}, now=NOON)
    assert await declare_schedules(store, {"shop": [one, other]}, now=NOON) == ["one", "other"]
    assert await declare_schedules(store, {"shop": [one, other]}, now=NOON) == []
    await pause_schedule(store, "one", paused=True, now=NOON)
    changed = one._replace(cron="0 * * * *")
    assert sorted(await declare_schedules(store, {"shop": [changed]}, now=NOON)) == ["one", "other"]
    left = {found.schedule.name: found.schedule for found in await schedule_states(store)}
    assert sorted(left) == ["of-somebody", "one", "theirs"]
    assert (left["one"].cron, left["one"].paused) == ("0 * * * *", True)


def berlin(month: int, day: int) -> list[str]:
    """The first three slots of 02:30 in Berlin from a day on, in UTC."""
    start = round(datetime(2026, month, day, tzinfo=UTC).timestamp() * 1000)
    slots = Schedule("s", "30 2 * * *", "tick", timezone="Europe/Berlin").slots(start)
    return [datetime.fromtimestamp(next(slots) / 1000, UTC).isoformat()[5:16] for _ in range(3)]


def test_an_hour_that_does_not_exist_runs_once() -> None:
    assert berlin(3, 28) == ["03-28T01:30", "03-29T01:00", "03-30T00:30"]


def test_an_hour_that_comes_twice_runs_once() -> None:
    assert berlin(10, 24) == ["10-24T00:30", "10-25T00:30", "10-26T01:30"]


@pytest.mark.parametrize(
    "bad",
    [
        Schedule("s", "", "tick"),
        Schedule("s", "* * * * *", "tick", every_ms=MINUTE),
        Schedule("s", "", "tick", every_ms=1),
        Schedule("s", "0 0 30 2 *", "tick"),
        Schedule("s", "61 * * * *", "tick"),
        Schedule("s", "* * * * *", "tick", timezone="Mars/Olympus"),
        Schedule("s", "", "tick", every_ms=MINUTE, timezone="Mars/Olympus"),
        Schedule("s", "* * * * *", "tick", missed="sometimes"),
        Schedule("s", "* * * * *", "tick", overlap="maybe"),
        Schedule("s", "* * * * *", "tick", missed="all", most=0),
        Schedule("", "* * * * *", "tick"),
    ],
)
async def test_a_schedule_that_cannot_fire_is_refused(bad: Schedule) -> None:
    engine = Engine.from_url(stores.fresh_url("sqlite"))
    await engine.store.migrate()
    async with engine:
        with pytest.raises(InvalidInput):
            await put_schedule(engine.store, bad, now=NOON)
        assert await schedule_states(engine.store) == []
