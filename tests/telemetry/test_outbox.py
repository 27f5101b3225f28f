"""A deliverer's numbers: attempts by outcome, durations, backlog, lag, and paused destinations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from callsheet import Callsheet
from callsheet.kernel.job import OutboxEvent
from callsheet.outbox.breaker import Health as Destinations
from callsheet.outbox.gauges import OutboxGauges
from callsheet.outbox.shares import Shares
from callsheet.worker.health import Health
from tests.outbox.kit import add_events, delivering, endpoints, until
from tests.outbox.sink import Sink, answer, silent
from tests.telemetry.conftest import Samples, scrape, value, working

DELIVERIES, SECONDS = "callsheet_outbox_deliveries_total", "callsheet_outbox_duration_seconds_count"


async def scrape_until(health: Health, fact: Callable[[Samples], object]) -> Samples:
    async with asyncio.timeout(60):
        while not fact(samples := await scrape(health)):
            await asyncio.sleep(0.05)
    return samples


def ends(samples: Samples, metric: str = DELIVERIES) -> dict[str, float]:
    words = ("delivered", "retried", "dead_letter", "postponed")
    return {word: samples.get((metric, frozenset({("outcome", word)})), 0.0) for word in words}


async def test_a_deliverer_tells_what_became_of_its_attempts(app: Callsheet) -> None:
    engine = await app.engine()
    endpoint_registry = endpoints(engine.store)
    await endpoint_registry.new_own_secret("acme")
    async with working(app, queues=("default",)) as (_, health), Sink() as good, Sink(answer("410 Gone")) as gone:
        before = await scrape(health)
        delivered = await add_events(engine, good.url, good.url)
        dead = await add_events(engine, gone.url)
        unknown = await add_events(engine, "whe_unknown")
        async with delivering(engine, endpoint_registry):
            await until(engine, delivered, "delivered", 60)
            await until(engine, [*dead, *unknown], "dead_letter", 60)
            after = await scrape_until(health, lambda s: sum(ends(s).values()) - sum(ends(before).values()) >= 4)
        moved_row = {word: count - ends(before)[word] for word, count in ends(after).items()}
        assert moved_row == {"delivered": 2, "retried": 0, "dead_letter": 2, "postponed": 0}
        timed = {word: count - ends(before, SECONDS)[word] for word, count in ends(after, SECONDS).items()}
        assert (timed["delivered"], timed["dead_letter"]) == (2, 1)  # what was not sent took no time


async def test_what_is_held_late_and_left_alone_is_seen_while_the_deliverer_runs(app: Callsheet) -> None:
    engine = await app.engine()
    endpoint_registry = endpoints(engine.store)
    await endpoint_registry.new_own_secret("acme")
    async with (
        working(app, queues=("default",)) as (_, health),
        Sink(silent) as stuck,
        Sink(answer("503 Down")) as down,
    ):
        await add_events(engine, *[down.url] * 12)
        async with delivering(engine, endpoint_registry):
            samples = await scrape_until(health, lambda s: value(s, "callsheet_outbox_breakers", state="open") == 1)
            assert ends(samples)["retried"] >= 10
            assert value(samples, "callsheet_outbox_breakers", state="half_open") == 0
            await add_events(engine, stuck.url)
            samples = await scrape_until(health, lambda s: value(s, "callsheet_outbox_held", state="under_way") == 1)
            assert value(samples, "callsheet_outbox_held", state="waiting") == 0
            assert value(samples, "callsheet_outbox_oldest_age_seconds") >= 0
        samples = await scrape(health)
        assert not any(name.startswith("callsheet_outbox_held") for name, _ in samples)


async def test_an_event_that_comes_late_is_seen_for_a_minute(app: Callsheet) -> None:
    engine = await app.engine()
    endpoint_registry = endpoints(engine.store)
    await endpoint_registry.new_own_secret("acme")
    async with working(app, queues=("default",)) as (_, health), Sink(silent) as stuck:
        (event_id,) = await add_events(engine, stuck.url)
        (event,) = await engine.store.outbox_find(limit=1)
        assert event.event_id == event_id
        async with asyncio.timeout(60):
            while await engine.store.now() - event.run_at < 1_200:  # it waits for a deliverer
                await asyncio.sleep(0.05)
        async with delivering(engine, endpoint_registry):
            late = "callsheet_outbox_oldest_age_seconds"
            samples = await scrape_until(health, lambda s: (late, frozenset()) in s and value(s, late) > 0)
            assert value(samples, late) >= 1.2  # it stands for a minute, though the next claims find nothing


def test_lateness_is_forgotten_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    gauges = OutboxGauges(Shares(5, 4), Destinations(None))  # type: ignore[arg-type]
    late = OutboxEvent(*[None] * len(OutboxEvent._fields))._replace(run_at=1_000)  # type: ignore[arg-type]
    seen = []
    for at, events in ((0, [late]), (1, []), (59, []), (61, []), (62, [late])):
        clock = 100.0 + at
        gauges.on_claim(events, 9_000)
        seen.append(next(iter(gauges._oldest())).value)
    assert seen == [8, 8, 8, 0, 8]
