from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.outbox import Endpoints
from callsheet.outbox.breaker import Breaker, Destination, Health, State, read, stored_breakers
from tests import stores
from tests.outbox.kit import add_events, delivering, event, until
from tests.outbox.sink import Sink, answer
from tests.store_driver import T0

HERE = Destination("acme", "https://h.example")


def failing(count: int, breaker: Breaker = Breaker(), now: int = T0) -> Breaker:  # noqa: B008 - immutable
    for _ in range(count):
        breaker = breaker.after(ok=False, now=now)
    return breaker


def test_ten_failures_in_a_row_open_it() -> None:
    assert failing(9).state is State.CLOSED
    assert failing(9).after(ok=True, now=T0).failures == 0
    breaker = failing(10)
    assert (breaker.state, breaker.probe_at) == (State.OPEN, T0 + 30_000)
    assert not breaker.may_probe(T0 + 29_999)
    assert breaker.may_probe(T0 + 30_000)


def test_half_of_the_last_twenty_open_it() -> None:
    breaker = Breaker()
    for n in range(20):
        assert breaker.state is State.CLOSED
        breaker = breaker.after(ok=n % 2 == 0, now=T0)
    assert breaker.state is State.OPEN


def test_it_stays_open_twice_as_long_after_each_probe_that_fails_and_an_hour_at_most() -> None:
    breaker, spans = failing(10), []
    for _ in range(9):
        spans.append(breaker.open_ms // 1000)
        now = breaker.probe_at
        breaker = breaker.probing(now, 60_000).after(ok=False, now=now)
    assert spans == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert breaker.probing(T0, 1).after(ok=True, now=T0) == Breaker()


def test_a_probe_that_never_reports_is_made_again() -> None:
    probing = failing(10).probing(T0, 60_000)
    assert probing.state is State.HALF_OPEN
    assert [probing.may_probe(T0 + ms) for ms in (59_999, 60_000)] == [False, True]


def test_a_clock_that_was_ahead_does_not_keep_it_open() -> None:
    ahead = failing(10, now=T0 + 1_800_000)
    assert [ahead.may_probe(T0 + ms) for ms in (0, 1_794_999, 1_795_000, 1_829_999)] == [True, True, False, False]
    assert failing(10, now=T0 + 7_200_000).probing(T0 + 7_200_000, 60_000).may_probe(T0)


async def test_a_clock_that_steps_back_does_not_hide_what_others_note(engine: Engine) -> None:
    one, two = Health(engine.store), Health(engine.store)
    await two.refresh(T0 + 3_600_000)
    for _ in range(10):
        await one.record(HERE, ok=False, now=T0)
    await two.refresh(T0)
    assert list(two.shut()) == [HERE]


def test_attempts_that_had_begun_do_not_lengthen_it() -> None:
    breaker = failing(10)
    assert failing(3, breaker, T0 + 5).probe_at == breaker.probe_at


def test_five_days_of_nothing_but_failures_are_hopeless() -> None:
    breaker, day = failing(10), 86_400_000
    assert [breaker.is_hopeless(T0 + ms) for ms in (5 * day - 1, 5 * day)] == [False, True]
    assert not Breaker().is_hopeless(T0)


def test_it_survives_as_a_document() -> None:
    breaker = failing(12)
    assert read(breaker.json()) == breaker._replace(recent=())


@pytest.mark.parametrize("kind", stores.THREE)
async def test_processes_share_it_and_one_of_them_probes(kind: str) -> None:
    store = await stores.open_store(stores.fresh_url(kind))
    one, two = Health(store), Health(store)
    for _ in range(10):
        await one.record(HERE, ok=False, now=T0)
    await two.refresh(T0 + 1)
    assert (list(one.shut()), list(two.shut())) == ([HERE], [HERE])
    assert two.due(T0 + 29_000) == []
    later = T0 + 31_000
    assert (one.due(later), two.due(later)) == ([HERE], [HERE])
    winners = await asyncio.gather(one.begin_probe(HERE, later), two.begin_probe(HERE, later))
    assert sorted(winners) == [False, True]
    winner, other = (one, two) if winners[0] else (two, one)
    await other.refresh(later + 2_000)
    assert other.due(later + 2_000) == []
    assert (await stored_breakers(store, "acme"))[HERE].state is State.HALF_OPEN
    assert await stored_breakers(store, "mallory") == {}
    await winner.record(HERE, ok=True, now=later)
    await other.refresh(later + 4_000)
    assert (list(other.shut()), await stored_breakers(store)) == ([], {})
    await store.close()


async def test_an_open_breaker_spends_no_attempts_and_recovers_with_one_probe(
    engine: Engine, endpoints: Endpoints, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_looked, here, probes = asyncio.Event(), Destination("acme", sink.url[: -len("/hook")]), list[object]()

    async def down_until_it_is_looked_at(*args: Any) -> None:
        breaker = (await stored_breakers(engine.store)).get(here)
        if breaker is not None and breaker.state is State.HALF_OPEN:
            probes.append(args)
            await has_looked.wait()
        await answer("200 OK" if has_looked.is_set() else "503 Down")(*args)

    monkeypatch.setattr("callsheet.outbox.breaker.FIRST_OPEN_MS", 1_500)
    sink.turns = [down_until_it_is_looked_at]
    await endpoints.new_own_secret("acme")
    ids = await add_events(engine, *[sink.url] * 30)
    async with delivering(engine, endpoints):
        async with asyncio.timeout(60):
            while not probes:
                await asyncio.sleep(0.01)
        rows = [await event(engine, event_id) for event_id in ids]
        seen = len(sink.got) - 1
        assert sum(row.attempt_count for row in rows) <= seen <= 13
        untouched = [row.event_id for row in rows if row.attempt_count == 0]
        assert (await stored_breakers(engine.store))[here].state is State.HALF_OPEN
        assert (len(sink.got), len(probes)) == (seen + 1, 1)
        has_looked.set()
        await until(engine, untouched, "delivered")
    assert await stored_breakers(engine.store) == {}


async def test_an_endpoint_that_only_fails_for_five_days_is_disabled(
    engine: Engine, endpoints: Endpoints, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callsheet.outbox.breaker.DISABLE_AFTER_MS", 1)
    sink.turns = [answer("500 No")]
    endpoint, _ = await endpoints.create("acme", sink.url)
    await add_events(engine, *[endpoint.endpoint_id] * 3)
    async with delivering(engine, endpoints), asyncio.timeout(60):
        while (await endpoints.get(endpoint.endpoint_id, "acme")).disabled_reason != "failing":
            await asyncio.sleep(0.01)
