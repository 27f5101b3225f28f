from __future__ import annotations

import asyncio

import pytest

from callsheet.engine import Engine
from callsheet.outbox.health import Destination
from callsheet.outbox.shares import Shares
from callsheet.store.protocol import Room, Sharing
from tests import stores
from tests.outbox.kit import add_events, delivering, until
from tests.outbox.kit import endpoints as endpoints_of
from tests.outbox.sink import QUICK, Got, Sink, answer

A, B, C = (Destination("t", name) for name in "abc")
OTHER = Destination("u", "a")


@pytest.mark.parametrize("kind", stores.THREE)
async def test_healthy_endpoints_do_not_wait_for_a_slow_one(kind: str) -> None:
    """The slow one answers nothing until all of the others have what is theirs, whatever lies before it in the line."""
    gate = asyncio.Event()

    async def slow(sink: Sink, got: Got, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await answer()(sink, got, writer)

    engine = Engine.from_url(stores.fresh_url(kind))
    await engine.store.migrate()
    async with engine, Sink(slow) as stuck, Sink() as quick, Sink() as second:
        found = endpoints_of(engine.store)
        for name in ("acme", "other"):
            await found.new_own_secret(name)
        await add_events(engine, *[stuck.url] * 100)
        async with delivering(engine, found, limits=QUICK._replace(deadline_s=60)):
            await stuck.until(1)
            mine = await add_events(engine, *[quick.url] * 40)
            theirs = await add_events(engine, *[second.url] * 20, requester_id="other")
            await until(engine, [*mine, *theirs], "delivered")
            assert (stuck.most_open, len(stuck.got)) == (1, 1)
            gate.set()
            await stuck.until(20)
    assert quick.most_open <= 4


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
    assert shares.sharing([], [], 10).rooms == (Room("t", "a", 0),)
    shares.end(A, ok=True, took_ms=1_500)
    assert (shares._windows[A], shares.may_start(A)) == (1, False)


def test_slow_destinations_share_half_of_the_slots() -> None:
    shares = Shares(5, 4, per_requester=5)
    for where in (A, B, C):
        shares.wait(where)
        shares.start(where)
        shares.end(where, ok=False, took_ms=15_000)
        shares.wait(where)
    for where in (A, B):
        assert shares.may_start(where)
        shares.start(where)
    assert not shares.may_start(C)
    assert Room("t", "c", 0) in shares.sharing([], [], 10).rooms


def test_one_requester_never_holds_all_slots_nor_all_that_is_held() -> None:
    shares = Shares(3, 4)
    for where in (A, B, C):
        shares.wait(where)
    shares.start(A)
    shares.start(B)
    assert not shares.may_start(C)
    shares.wait(OTHER)
    assert shares.may_start(OTHER)
    assert shares.claim_limit(10) == 10 - 3 - 3
    for _ in range(4):
        shares.wait(A)
    assert shares.sharing([], [], 10).without == ("t",)
    assert shares.claim_limit(10) == 2


def test_what_is_shut_gets_nothing_and_a_probe_gets_one() -> None:
    shares = Shares(5, 4)
    assert shares.sharing([A, B], [B], 10) == Sharing(1, (Room("t", "a", 0),), ())


def test_those_that_were_quiet_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callsheet.outbox.shares.MOST_KNOWN", 2)
    shares = Shares(5, 4)
    for where in (A, B, C):
        shares.wait(where)
        shares.start(where)
        shares.end(where, ok=False, took_ms=15_000)
    assert set(shares._windows) == {B, C}
    assert shares._slow == {B, C}
