from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from callsheet.engine import Engine
from callsheet.outbox.breaker import Destination
from callsheet.outbox.shares import Shares
from callsheet.store.outbox import ClaimShares, DestinationLimit
from tests import stores
from tests.outbox.kit import add_events, delivering, event, until
from tests.outbox.kit import endpoints as endpoints_of
from tests.outbox.sink import QUICK, Behave, Got, Sink, answer, silent
from tests.time_limits import within

A, B, C = (Destination("t", name) for name in "abc")
OTHER = Destination("u", "a")


async def test_many_that_hang_do_not_keep_out_those_that_answer(engine: Engine) -> None:
    """Eight strangers that never answer, each with a backlog, of two requesters; two are known as fast."""
    endpoint_registry = endpoints_of(engine.store)
    for name in ("acme", "other"):
        await endpoint_registry.new_own_secret(name)
    async with AsyncExitStack() as stack:
        hanging = [await stack.enter_async_context(Sink(silent)) for _ in range(8)]
        well = [await stack.enter_async_context(Sink()) for _ in range(2)]
        async with delivering(
            engine, endpoint_registry, limits=QUICK._replace(deadline_s=3600), drain_s=0.1
        ) as deliveries:
            for sink, name in zip(well, ("acme", "other"), strict=True):
                await until(engine, await add_events(engine, sink.url, requester_id=name), "delivered")
            for sink, name in zip(hanging, ("acme", "other") * 4, strict=True):
                await add_events(engine, *[sink.url] * 10, requester_id=name)
            async with asyncio.timeout(60):
                while sum(sink.open for sink in hanging) < 4:
                    await asyncio.sleep(0.01)
            for _ in range(5):
                first = await add_events(engine, *[well[0].url] * 4)
                second = await add_events(engine, *[well[1].url] * 4, requester_id="other")
                await until(engine, [*first, *second], "delivered", within(5))
            assert deliveries._shares.running == 4


@pytest.mark.parametrize("kind", stores.THREE)
async def test_healthy_endpoints_do_not_wait_for_a_slow_one(kind: str) -> None:
    """The slow receiver answers nothing until every other event has arrived, whatever its queue position."""
    gate = asyncio.Event()

    async def slow(sink: Sink, request: Got, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await answer()(sink, request, writer)

    engine = Engine.from_url(stores.fresh_url(kind))
    await engine.store.migrate()
    async with engine, Sink(slow) as stuck, Sink() as quick, Sink() as second:
        endpoint_registry = endpoints_of(engine.store)
        for name in ("acme", "other"):
            await endpoint_registry.new_own_secret(name)
        await add_events(engine, *[stuck.url] * 100)
        async with delivering(engine, endpoint_registry, limits=QUICK._replace(deadline_s=3600)):
            await stuck.until(1)
            mine = await add_events(engine, *[quick.url] * 40)
            theirs = await add_events(engine, *[second.url] * 20, requester_id="other")
            await until(engine, [*mine, *theirs], "delivered")
            assert stuck.got
            gate.set()
            await stuck.until(20)
    assert quick.most_open <= 4


def together(count: int) -> tuple[Behave, asyncio.Event]:
    """Return a receiver that waits until `count` requests are open; then it answers all requests."""
    they_met = asyncio.Event()

    async def behave(sink: Sink, request: Got, writer: asyncio.StreamWriter) -> None:
        if sink.open >= count:
            they_met.set()
        await they_met.wait()
        await answer()(sink, request, writer)

    return behave, they_met


@pytest.mark.parametrize("kind", stores.THREE)
async def test_one_requester_has_all_five_slots_when_nobody_else_waits(kind: str) -> None:
    behave, _ = together(5)
    engine = Engine.from_url(stores.fresh_url(kind))
    await engine.store.migrate()
    async with engine, Sink(behave) as sink:
        endpoint_registry = endpoints_of(engine.store)
        await endpoint_registry.new_own_secret("acme")
        ids = await add_events(engine, *[sink.url] * 12)
        async with delivering(engine, endpoint_registry, limits=QUICK._replace(deadline_s=3600)):
            await until(engine, ids, "delivered")
    assert sink.most_open == 5, "and no more than the five"
    assert sorted(sink.ids()) == sorted(ids), "each came once"


@pytest.mark.parametrize("whose", ["acme", "other"])
async def test_what_is_borrowed_goes_back_as_soon_as_others_wait(engine: Engine, whose: str) -> None:
    """The first receiver never answers, and holds all slots; what is broken off spends no attempt."""
    endpoint_registry = endpoints_of(engine.store)
    for name in ("acme", "other"):
        await endpoint_registry.new_own_secret(name)
    async with Sink(silent) as stuck, Sink() as well:
        held = await add_events(engine, *[stuck.url] * 20)
        async with delivering(engine, endpoint_registry, limits=QUICK._replace(deadline_s=3600), drain_s=0.1):
            await stuck.until(5)
            theirs = await add_events(engine, *[well.url] * 8, requester_id=whose)
            await until(engine, theirs, "delivered")
            assert sorted(well.ids()) == sorted(theirs)
        events = [await event(engine, event_id) for event_id in held]
        assert [(e.status.value, e.attempt_count) for e in events] == [("pending", 0)] * 20


def test_a_lone_destination_borrows_and_its_surplus_makes_way() -> None:
    shares = Shares(5, 4)
    for _ in range(5):
        shares.wait(A)
    shares.start(A)
    for _ in range(3):
        assert (shares.may_start(A), shares.may_borrow(A)) == (False, True)
        shares.start(A, is_borrowed=True)
    assert (shares.is_jammed, shares.surplus(A)) == (False, 0)
    assert shares.claim_shares([], [], 10).limits == (DestinationLimit("t", "a", 0),)
    shares.wait(OTHER)
    assert (shares.may_borrow(A), shares.surplus(A), shares.may_start(OTHER)) == (False, 1, True)
    shares.drop(OTHER)
    shares.end(A, ok=True, took_ms=None, is_borrowed=True)
    assert (shares._windows[A], A in shares._quick, shares.may_borrow(A)) == (1, False, True)


def test_a_destination_earns_its_slots_by_quick_answers() -> None:
    shares = Shares(5, 4, per_requester=5)
    for expected in (2, 3, 4, 4):
        shares.wait(A)
        shares.start(A)
        shares.end(A, ok=True, took_ms=10)
        assert shares._windows[A] == expected
    for _ in range(8):
        shares.wait(A)
    for _ in range(4):
        assert shares.may_start(A)
        shares.start(A)
    assert not shares.may_start(A)
    assert shares.claim_shares([], [], 10).limits == (DestinationLimit("t", "a", 0),)
    shares.end(A, ok=True, took_ms=1_500)
    assert (shares._windows[A], shares.may_start(A)) == (1, False)


def quick(shares: Shares, where: Destination) -> None:
    shares.wait(where)
    shares.start(where)
    shares.end(where, ok=True, took_ms=5)


def test_strangers_leave_slots_to_those_that_are_known_to_be_quick() -> None:
    shares = Shares(5, 4, per_requester=5)
    quick(shares, OTHER)
    strangers = [Destination("t", str(n)) for n in range(5)]
    for where in strangers:
        shares.wait(where)
    for where in strangers[:4]:
        assert shares.may_start(where)
        shares.start(where)
    assert shares.is_jammed
    assert [shares.may_start(where) for where in strangers] == [False] * 5
    assert [shares.is_held_up(where) for where in (strangers[4], OTHER)] == [True, False]
    assert (
        shares.claim_shares([], [], 10).each,
        DestinationLimit(*OTHER, 4) in shares.claim_shares([], [], 10).limits,
    ) == (0, True)
    shares.wait(OTHER)
    assert shares.may_start(OTHER)
    quick_one = strangers[0]
    shares.end(quick_one, ok=True, took_ms=5)
    assert not shares.is_jammed
    assert shares.may_start(strangers[4])


def hang(shares: Shares, where: Destination) -> None:
    shares.wait(where)
    shares.start(where)
    shares.mark_slow(where)


def test_slow_destinations_wait_for_one_another_and_take_turns() -> None:
    shares = Shares(5, 4, per_requester=5)
    for where in (A, B, C):
        hang(shares, where)
        shares.end(where, ok=False, took_ms=15_000)
    assert [room.destination for room in shares.claim_shares([], [], 10).limits] == [
        "c"
    ]  # the others may have one each
    hang(shares, A)
    hang(shares, B)
    assert {room.destination: room.limit for room in shares.claim_shares([], [], 10).limits} == {"a": 0, "b": 0, "c": 0}
    assert shares.is_held_up(C)
    shares.end(A, ok=False, took_ms=15_000)
    assert [room.destination for room in shares.claim_shares([], [], 10).limits] == ["b", "a"]


def test_one_that_takes_long_is_slow_before_it_ends_and_one_that_was_quick_gets_another_chance() -> None:
    shares = Shares(5, 4, per_requester=5)
    quick(shares, A)
    hang(shares, A)
    assert (A in shares._quick, A in shares._slow, shares._windows[A]) == (False, False, 1)
    shares.end(A, ok=True, took_ms=1_200)
    hang(shares, A)
    assert A in shares._slow
    shares.end(A, ok=True, took_ms=5)
    assert (A in shares._quick, A in shares._slow) == (True, False)


def test_one_requester_has_all_slots_only_while_nobody_else_waits_and_never_all_that_is_held() -> None:
    shares = Shares(3, 4)
    for where in (A, B, C, OTHER):
        quick(shares, where)
    for where in (A, B, C):
        shares.wait(where)
    shares.start(A)
    shares.start(B)
    assert (shares.may_start(C), shares.may_borrow(C)) == (False, True)
    assert not Shares(3, 4, per_requester=2).may_borrow(C), "what the operator has set holds"
    shares.wait(OTHER)
    assert (shares.may_start(C), shares.may_borrow(C)) == (False, False)
    assert shares.may_start(OTHER)
    assert shares.claim_limit(10) == 10 - 3 - 3
    for _ in range(4):
        shares.wait(A)
    assert shares.claim_shares([], [], 10).without == ("t",)
    assert shares.claim_limit(10) == 2


def test_what_is_shut_gets_nothing_and_a_probe_gets_one() -> None:
    shares = Shares(5, 4)
    assert shares.claim_shares([A, B], [B], 10) == ClaimShares(1, (DestinationLimit("t", "a", 0),), ())


def test_those_that_were_quiet_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callsheet.outbox.shares.MOST_KNOWN", 2)
    shares = Shares(5, 4)
    for where in (A, B, C):
        hang(shares, where)
        shares.end(where, ok=False, took_ms=15_000)
    assert set(shares._windows) == {B, C}
    assert shares._slow == {B, C}
