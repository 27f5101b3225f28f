from __future__ import annotations

import asyncio

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import Claim, Delivery, NewOutboxEvent, OutboxEvent
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.store.protocol import Beat, Settled
from tests.kit import T0, Kit


async def add_events(kit: Kit, count: int) -> list[str]:
    """Outbox rows the way they come to be: with a job's move."""
    names = []
    for n in range(count):
        job = await kit.running(requester_id="acme")
        name = f"ev-{job.job_id}"
        await kit.settle(commands.succeed(job, outbox=(NewOutboxEvent(name, f"https://h/{n}", f"body {n}"),)))
        names.append(name)
    return names


async def claim(kit: Kit, limit: int = 10, worker: str = "d1") -> list[OutboxEvent]:
    return await kit.store.outbox_claim(worker, limit=limit, lease_ms=10_000, now=kit.now)


def key(row: OutboxEvent) -> Claim:
    return Claim(row.event_id, row.claim_version)


def delivered(row: OutboxEvent) -> OutboxSettlement:
    return OutboxSettlement(row.event_id, row.claim_version, Delivery.DELIVERED)


@pytest.mark.guarantee("S22")
async def test_a_claim_takes_due_events_in_order(kit: Kit) -> None:
    names = await add_events(kit, 4)
    rows = await claim(kit, 3)
    assert [r.event_id for r in rows] == names[:3]
    first = rows[0]
    assert (first.status, first.claim_version, first.worker_id) == (Delivery.DELIVERING, 1, "d1")
    assert (first.lease_expires_at, first.body, first.endpoint) == (T0 + 10_000, "body 0", "https://h/0")
    assert [r.event_id for r in await claim(kit)] == names[3:]
    assert await claim(kit) == []


@pytest.mark.guarantee("S22")
async def test_an_event_is_claimed_once(kit: Kit) -> None:
    names = await add_events(kit, 10)
    got = await asyncio.gather(*(claim(kit, 3, f"d{n}") for n in range(8)))
    ids = [r.event_id for rows in got for r in rows] + [r.event_id for r in await claim(kit)]
    assert sorted(ids) == sorted(names)


@pytest.mark.guarantee("S22", "S23")
async def test_an_expired_lease_is_claimed_anew_and_fences_the_old(kit: Kit) -> None:
    await add_events(kit, 1)
    (old,) = await claim(kit)
    kit.later(10_001)
    (new,) = await claim(kit, worker="d2")
    assert (new.claim_version, new.worker_id, new.attempt_count) == (2, "d2", 1)
    assert await kit.store.outbox_heartbeat([key(old)], lease_ms=9, now=kit.now) == [Beat(held=False)]
    assert await kit.store.outbox_settle([delivered(old)], now=kit.now) == [Settled.STALE]
    assert await kit.store.outbox_settle([delivered(new)], now=kit.now) == [Settled.APPLIED]
    (row,) = await kit.store.outbox_find()
    assert (row.status, row.ended_at, row.attempt_count) == (Delivery.DELIVERED, kit.now, 2)


@pytest.mark.guarantee("S22")
async def test_a_heartbeat_keeps_the_lease(kit: Kit) -> None:
    await add_events(kit, 1)
    (row,) = await claim(kit)
    kit.later(9_000)
    assert await kit.store.outbox_heartbeat([key(row)], lease_ms=10_000, now=kit.now) == [Beat(held=True)]
    kit.later(9_000)
    assert await claim(kit) == []


@pytest.mark.guarantee("S23")
async def test_a_failed_delivery_waits_and_counts(kit: Kit) -> None:
    await add_events(kit, 1)
    (row,) = await claim(kit)
    again = OutboxSettlement(row.event_id, 1, Delivery.PENDING, delay_ms=5_000, error='{"status":503}')
    assert await kit.store.outbox_settle([again], now=kit.now) == [Settled.APPLIED]
    assert await kit.store.outbox_settle([again], now=kit.now) == [Settled.STALE]
    assert await claim(kit) == []
    kit.later(5_000)
    (second,) = await claim(kit)
    assert (second.attempt_count, second.claim_version, second.error) == (1, 2, '{"status":503}')
    released = OutboxSettlement(row.event_id, 2, Delivery.PENDING, counts=False)
    await kit.store.outbox_settle([released], now=kit.now)
    (third,) = await claim(kit)
    assert (third.attempt_count, third.claim_version) == (1, 3)


@pytest.mark.guarantee("S23")
async def test_an_undeliverable_event_is_kept_as_a_dead_letter(kit: Kit) -> None:
    await add_events(kit, 2)
    (row, other) = await claim(kit)
    dead = OutboxSettlement(row.event_id, 1, Delivery.DEAD_LETTER, error='"gone"')
    assert await kit.store.outbox_settle([dead, delivered(other)], now=kit.now) == [Settled.APPLIED] * 2
    (kept,) = await kit.store.outbox_find(status=Delivery.DEAD_LETTER)
    assert (kept.event_id, kept.error, kept.ended_at) == (row.event_id, '"gone"', T0)
    assert len(await kit.store.outbox_find(job_id=row.job_id)) == 1
    assert len(await kit.store.outbox_find(limit=1)) == 1
