from __future__ import annotations

import asyncio
import uuid

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import NewJob
from callsheet.store.postgres import PostgresStore
from callsheet.store.postgres.claim import DUE_EVERY_S, FULL_LOOK_SHARE, LAG_S, LOOK_EVERY_S, Floor, Look
from callsheet.store.postgres.enqueue import enqueue_within
from callsheet.store.protocol import ClaimRequest, Settled
from tests.store_driver import T0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def floor(clock: Clock) -> Floor:
    return Floor(clock)


def test_nothing_is_hidden_before_the_first_look(floor: Floor) -> None:
    assert floor.of("q") == 0


def test_a_look_comes_with_the_second_claim_and_then_now_and_then(floor: Floor, clock: Clock) -> None:
    assert not floor.wants_look("q")
    assert floor.wants_look("q")
    floor.look_from("q")
    assert not floor.wants_look("q")
    clock.now += LOOK_EVERY_S
    assert floor.wants_look("q")


def test_places_drawn_within_the_lag_are_never_hidden(floor: Floor, clock: Clock) -> None:
    floor.note_look("q", Look(500, 1_000), 0.0)
    assert floor.of("q") == 0
    clock.now += LAG_S / 2
    floor.note_look("q", Look(900, 2_000), 0.0)
    assert floor.of("q") == 0


def test_the_floor_rises_to_the_lowest_live_job(floor: Floor, clock: Clock) -> None:
    floor.note_look("q", Look(500, 1_000), 0.0)
    clock.now += LAG_S
    floor.note_look("q", Look(900, 2_000), 0.0)
    assert floor.of("q") == 900


def test_the_floor_stays_below_the_end_of_the_line_as_it_was(floor: Floor, clock: Clock) -> None:
    floor.note_look("q", Look(500, 1_000), 0.0)
    clock.now += LAG_S
    floor.note_look("q", Look(1_900, 2_000), 0.0)
    assert floor.of("q") == 1_000
    floor.note_look("q", Look(None, 2_000), 0.0)
    assert floor.of("q") == 1_000


def test_a_new_process_learns_the_end_of_the_line_from_a_job_that_ended_then(floor: Floor, clock: Clock) -> None:
    floor.note_look("q", Look(900, 2_000, 700), 0.0)
    assert floor.of("q") == 700
    floor.note_look("q", Look(600, 2_000, 700), 0.0)
    assert floor.of("q") == 600
    clock.now += LAG_S
    floor.note_look("q", Look(900, 3_000, 700), 0.0)
    assert floor.of("q") == 900


def test_the_floor_goes_back_for_a_late_commit(floor: Floor, clock: Clock) -> None:
    floor.note_look("q", Look(500, 1_000), 0.0)
    clock.now += LAG_S
    floor.note_look("q", Look(900, 2_000), 0.0)
    floor.note_look("q", Look(3, 2_000), 0.0)
    assert floor.of("q") == 3


def test_each_queue_has_its_own_floor(floor: Floor, clock: Clock) -> None:
    floor.note_look("q", Look(500, 1_000), 0.0)
    clock.now += LAG_S
    floor.note_look("q", Look(900, 2_000), 0.0)
    assert floor.of("other") == 0


def test_a_slow_look_from_zero_comes_seldom(floor: Floor, clock: Clock) -> None:
    floor.note_look("q", Look(500, 1_000), 0.5)
    clock.now += LAG_S
    floor.note_look("q", Look(900, 2_000), 0.0, full=False)
    assert (floor.of("q"), floor.look_from("q")) == (900, 900)
    clock.now += FULL_LOOK_SHARE * 0.5
    assert floor.look_from("q") == 0


def test_due_jobs_are_asked_for_now_and_then(floor: Floor, clock: Clock) -> None:
    assert [floor.wants_due("q"), floor.wants_due("q"), floor.wants_due("p")] == [True, False, True]
    clock.now += DUE_EVERY_S
    assert floor.wants_due("q")


async def test_claims_that_find_nothing_in_a_row_see_a_due_job_a_moment_later(store: PostgresStore) -> None:
    await store.enqueue([NewJob(str(uuid.uuid4()), "k", delay_ms=20)])
    async with asyncio.timeout(60):
        while not (jobs := await store.claim(ClaimRequest("w"))):
            await asyncio.sleep(0.01)
    assert len(jobs) == 1


async def test_a_look_sees_the_lowest_position_of_all_priorities(store: PostgresStore) -> None:
    clock = Clock()
    store._floor = Floor(clock)
    await store.enqueue([NewJob(str(uuid.uuid4()), "k", priority=p) for p in (0, 5, 5, -3, 5)])
    for _ in range(3):
        assert [job.priority for job in await store.claim(ClaimRequest("w"))] == [5]
        clock.now += LAG_S + 1
    assert store._floor.of("default") == 1
    assert [job.priority for job in await store.claim(ClaimRequest("w", limit=9))] == [0, -3]
    for _ in range(2):
        assert await store.claim(ClaimRequest("w", limit=9)) == []
        clock.now += LAG_S + 1
    await store.enqueue([NewJob(str(uuid.uuid4()), "k")])
    assert store._floor.of("default") == 5
    assert len(await store.claim(ClaimRequest("w", limit=9))) == 1


async def test_a_new_process_begins_behind_what_ended_and_misses_no_late_commit(store: PostgresStore) -> None:
    lag = int(LAG_S * 1000)
    late = NewJob(str(uuid.uuid4()), "late")

    async def run_another(session: object) -> None:
        await enqueue_within(session, [late], T0)
        await store.enqueue([NewJob(str(uuid.uuid4()), "k")], now=T0)
        (job,) = await store.claim(ClaimRequest("w"), now=T0)
        assert await store.settle([commands.succeed(job)], now=T0) == [Settled.APPLIED]
        store._floor = Floor()
        for _ in range(2):  # the second claim looks
            assert await store.claim(ClaimRequest("w"), now=T0 + lag - 1) == []

    await store._db.transact(run_another)
    assert store._floor.of("default") == 0
    assert [job.kind for job in await store.claim(ClaimRequest("w"), now=T0 + lag - 1)] == ["late"]
    store._floor = Floor()
    for _ in range(2):
        assert await store.claim(ClaimRequest("w"), now=T0 + lag) == []
    assert store._floor.of("default") == 2
