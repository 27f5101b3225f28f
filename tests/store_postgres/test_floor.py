from __future__ import annotations

import uuid

import pytest

from callsheet.kernel.job import NewJob
from callsheet.store.postgres import PostgresStore
from callsheet.store.postgres.floor import FULL_LOOK_SHARE, LAG_S, LOOK_EVERY_S, Floor
from callsheet.store.protocol import ClaimRequest


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


def test_the_first_look_is_not_at_once(floor: Floor, clock: Clock) -> None:
    assert not floor.wants_look("q")
    clock.now += LOOK_EVERY_S
    assert floor.wants_look("q")


def test_places_drawn_within_the_lag_are_never_hidden(floor: Floor, clock: Clock) -> None:
    floor.looked("q", 500, 1_000, 0.0)
    assert floor.of("q") == 0
    clock.now += LAG_S / 2
    floor.looked("q", 900, 2_000, 0.0)
    assert floor.of("q") == 0


def test_the_floor_rises_to_the_lowest_live_job(floor: Floor, clock: Clock) -> None:
    floor.looked("q", 500, 1_000, 0.0)
    clock.now += LAG_S
    floor.looked("q", 900, 2_000, 0.0)
    assert floor.of("q") == 900


def test_the_floor_stays_below_the_end_of_the_line_as_it_was(floor: Floor, clock: Clock) -> None:
    floor.looked("q", 500, 1_000, 0.0)
    clock.now += LAG_S
    floor.looked("q", 1_900, 2_000, 0.0)
    assert floor.of("q") == 1_000
    floor.looked("q", None, 2_000, 0.0)
    assert floor.of("q") == 1_000


def test_the_floor_goes_back_for_a_late_commit(floor: Floor, clock: Clock) -> None:
    floor.looked("q", 500, 1_000, 0.0)
    clock.now += LAG_S
    floor.looked("q", 900, 2_000, 0.0)
    floor.looked("q", 3, 2_000, 0.0)
    assert floor.of("q") == 3


def test_each_queue_has_its_own_floor(floor: Floor, clock: Clock) -> None:
    floor.looked("q", 500, 1_000, 0.0)
    clock.now += LAG_S
    floor.looked("q", 900, 2_000, 0.0)
    assert floor.of("other") == 0


def test_a_slow_look_from_zero_comes_seldom(floor: Floor, clock: Clock) -> None:
    floor.looked("q", 500, 1_000, 0.5)
    clock.now += LAG_S
    floor.looked("q", 900, 2_000, 0.0, full=False)
    assert (floor.of("q"), floor.look_from("q")) == (900, 900)
    clock.now += FULL_LOOK_SHARE * 0.5
    assert floor.look_from("q") == 0


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
