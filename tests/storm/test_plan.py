"""A plan follows from its seed alone, and every fault in it has something to happen to."""

from __future__ import annotations

from collections import Counter

import pytest

from callsheet.engine.schedules import Schedule
from tests.storm.orders import http_orders, python_orders
from tests.storm.plan import STORES, Plan, long_plan, short_plan
from tests.storm.producers import HOUR_MS, yearly

KINDS = {"kill", "freeze", "zombie", "heir", "cut", "lost", "hole", "slow", "restart", "disk", "deaf", "clock"}


def targets(plan: Plan) -> set[str]:
    """Return every possible target of a fault in this plan."""
    names = {name for some in plan.crew.parts.values() for name in some}
    lines = {name for some in plan.crew.lines(plan.store).values() for name in some}
    return names | lines | {"all>store", "store", "s3", "workers", "receiver"}


@pytest.mark.parametrize("store", STORES)
def test_a_seed_makes_the_same_plan_again(store: str) -> None:
    assert long_plan(7, store, 10, clock=True) == long_plan(7, store, 10, clock=True)
    assert long_plan(7, store, 10).faults != long_plan(8, store, 10).faults
    assert short_plan(7, store, 30) == short_plan(7, store, 30)


@pytest.mark.parametrize("store", STORES)
def test_a_long_plan_has_all_kinds_of_faults_in_order_of_time_and_ends_in_calm(store: str) -> None:
    plan = long_plan(7, store, 60, clock=True)
    assert {fault.kind for fault in plan.faults} == KINDS
    assert {fault.target for fault in plan.faults} <= targets(plan)
    moments = [fault.at for fault in plan.faults]
    assert moments == sorted(moments)
    assert moments[-1] < plan.seconds


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", range(5))
def test_in_three_minutes_each_kind_comes_several_times_and_zombies_most_of_all(store: str, seed: int) -> None:
    counts = Counter(fault.kind for fault in long_plan(seed, store, 3, clock=True).faults)
    assert {kind for kind, count in counts.items() if count > 1} == KINDS
    assert min(counts["zombie"], counts["kill"]) > 10


def test_the_last_to_happen_is_that_the_heir_of_a_zombie_is_killed() -> None:
    plan = long_plan(7, "sqlite", 3)
    assert [fault.kind for fault in plan.last_act][-2:] == ["heir", "heir"]
    assert {(fault.kind, fault.target) for fault in plan.last_act} == {("heir", "any"), ("zombie", "any")}
    assert all(fault.at < plan.seconds for fault in plan.faults)


@pytest.mark.parametrize("store", STORES)
def test_a_short_plan_is_measured_in_work(store: str) -> None:
    plan = short_plan(7, store, 30)
    assert plan.unit == "jobs"
    assert {fault.target for fault in plan.faults} <= targets(plan)
    assert max(fault.at for fault in plan.faults) < 2 * 30


def test_sqlite_has_no_server_that_could_be_cut_off_or_restarted() -> None:
    plans = [long_plan(seed, "sqlite", 60) for seed in range(3)]
    assert not [fault for plan in plans for fault in plan.faults if "store" in fault.target]
    assert not [fault for plan in plans for fault in plan.faults if fault.kind == "clock"]


def test_a_plan_can_be_read() -> None:
    text = str(long_plan(7, "redis", 10))
    assert text.startswith("seed 7 on redis")
    assert len(text.splitlines()) > 50


def test_an_order_can_be_asked_for_again() -> None:
    for n in range(50):
        assert http_orders(7, n) == http_orders(7, n)
        assert python_orders(7, n, "http://hook") == python_orders(7, n, "http://hook")
    everything = [order for n in range(300) for order in python_orders(7, n, "http://hook")]
    assert {order.expects for order in everything} == {("succeeded",), ("failed",), ("canceled",)}
    assert len({order.key for order in everything}) == len(everything)


def test_a_schedule_fires_once_in_a_storm_also_when_it_sees_a_full_hour() -> None:
    slot_ms = 1_795_024_800_000
    line = Schedule("each year", yearly(slot_ms), "tick")
    assert line.next_slot(slot_ms - 1) == slot_ms
    assert line.next_slot(slot_ms) > slot_ms + 300 * 24 * HOUR_MS
