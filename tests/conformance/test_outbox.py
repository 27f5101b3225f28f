from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import Claim, Delivery, NewOutboxEvent, OutboxEvent
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.store.outbox import ClaimShares, DestinationLimit, OutboxFilter, Replay
from callsheet.store.protocol import HeartbeatResult, Settled
from tests.store_driver import T0, StoreDriver


async def add_events(driver: StoreDriver, count: int) -> list[str]:
    """Write outbox rows through settlements: with a job's move."""
    names = []
    for n in range(count):
        job = await driver.running(requester_id="acme")
        name = f"ev-{job.job_id}"
        await driver.settle(commands.succeed(job, outbox=(NewOutboxEvent(name, f"https://h/{n}", f"body {n}"),)))
        names.append(name)
    return names


async def claim(driver: StoreDriver, limit: int = 10, worker: str = "d1") -> list[OutboxEvent]:
    return await driver.store.outbox_claim(worker, limit=limit, lease_ms=10_000, now=driver.now)


def key(row: OutboxEvent) -> Claim:
    return Claim(row.event_id, row.claim_version)


def delivered(row: OutboxEvent) -> OutboxSettlement:
    return OutboxSettlement(row.event_id, row.claim_version, Delivery.DELIVERED)


@pytest.mark.guarantee("S22")
async def test_a_claim_takes_due_events_in_order(driver: StoreDriver) -> None:
    names = await add_events(driver, 4)
    rows = await claim(driver, 3)
    assert [r.event_id for r in rows] == names[:3]
    first = rows[0]
    assert (first.status, first.claim_version, first.worker_id) == (Delivery.DELIVERING, 1, "d1")
    assert (first.lease_expires_at, first.body, first.endpoint) == (T0 + 10_000, "body 0", "https://h/0")
    assert [r.event_id for r in await claim(driver)] == names[3:]
    assert await claim(driver) == []


@pytest.mark.guarantee("S22")
async def test_an_event_is_claimed_once(driver: StoreDriver) -> None:
    names = await add_events(driver, 10)
    jobs = await asyncio.gather(*(claim(driver, 3, f"d{n}") for n in range(8)))
    ids = [r.event_id for rows in jobs for r in rows] + [r.event_id for r in await claim(driver)]
    assert sorted(ids) == sorted(names)


@pytest.mark.guarantee("S22", "S23")
async def test_an_expired_lease_is_claimed_anew_and_fences_the_old(driver: StoreDriver) -> None:
    await add_events(driver, 1)
    (old,) = await claim(driver)
    driver.later(10_001)
    (new,) = await claim(driver, worker="d2")
    assert (new.claim_version, new.worker_id, new.attempt_count) == (2, "d2", 1)
    assert await driver.store.outbox_heartbeat([key(old)], lease_ms=9, now=driver.now) == [HeartbeatResult(held=False)]
    assert await driver.store.outbox_settle([delivered(old)], now=driver.now) == [Settled.STALE]
    assert await driver.store.outbox_settle([delivered(new)], now=driver.now) == [Settled.APPLIED]
    (row,) = await driver.store.outbox_find()
    assert (row.status, row.ended_at, row.attempt_count) == (Delivery.DELIVERED, driver.now, 2)


@pytest.mark.guarantee("S22")
async def test_a_heartbeat_keeps_the_lease(driver: StoreDriver) -> None:
    await add_events(driver, 1)
    (row,) = await claim(driver)
    driver.later(9_000)
    assert await driver.store.outbox_heartbeat([key(row)], lease_ms=10_000, now=driver.now) == [
        HeartbeatResult(held=True)
    ]
    driver.later(9_000)
    assert await claim(driver) == []


@pytest.mark.guarantee("S23")
async def test_a_failed_delivery_waits_and_counts(driver: StoreDriver) -> None:
    await add_events(driver, 1)
    (row,) = await claim(driver)
    again = OutboxSettlement(row.event_id, 1, Delivery.PENDING, delay_ms=5_000, error='{"status":503}')
    assert await driver.store.outbox_settle([again], now=driver.now) == [Settled.APPLIED]
    assert await driver.store.outbox_settle([again], now=driver.now) == [Settled.STALE]
    assert await claim(driver) == []
    driver.later(5_000)
    (second,) = await claim(driver)
    assert (second.attempt_count, second.claim_version, second.error) == (1, 2, '{"status":503}')
    released = OutboxSettlement(row.event_id, 2, Delivery.PENDING, counts=False)
    await driver.store.outbox_settle([released], now=driver.now)
    (third,) = await claim(driver)
    assert (third.attempt_count, third.claim_version) == (1, 3)


@pytest.mark.guarantee("S23")
async def test_an_undeliverable_event_is_kept_as_a_dead_letter(driver: StoreDriver) -> None:
    await add_events(driver, 2)
    (row, other) = await claim(driver)
    dead = OutboxSettlement(row.event_id, 1, Delivery.DEAD_LETTER, error='"gone"')
    assert await driver.store.outbox_settle([dead, delivered(other)], now=driver.now) == [Settled.APPLIED] * 2
    (kept,) = await driver.store.outbox_find(status=Delivery.DEAD_LETTER)
    assert (kept.event_id, kept.error, kept.ended_at) == (row.event_id, '"gone"', T0)
    assert len(await driver.store.outbox_find(job_id=row.job_id)) == 1
    assert len(await driver.store.outbox_find(limit=1)) == 1


async def add_to(driver: StoreDriver, endpoint: str, count: int, requester_id: str = "acme") -> list[str]:
    """Write events of one endpoint, one job per event."""
    names = []
    for _ in range(count):
        job = await driver.running(requester_id=requester_id)
        names.append(f"ev-{job.job_id}")
        await driver.settle(commands.succeed(job, outbox=(NewOutboxEvent(names[-1], endpoint, "b"),)))
    return names


async def shared(driver: StoreDriver, shares: ClaimShares, limit: int = 10) -> list[str]:
    rows = await driver.store.outbox_claim("d1", limit=limit, lease_ms=10_000, shares=shares, now=driver.now)
    return [row.event_id for row in rows]


def test_a_destination_is_a_host_or_an_endpoint_of_ours() -> None:
    at = {url: NewOutboxEvent("e", url, "b").destination for url in ("https://A.example/x?job=1", "https://b:8443#f")}
    assert list(at.values()) == ["https://a.example", "https://b:8443"]
    assert NewOutboxEvent("e", "whe_X", "b").destination == "whe_X"


@pytest.mark.guarantee("S33")
async def test_a_claim_takes_no_more_of_a_destination_than_its_share(driver: StoreDriver) -> None:
    slow = await add_to(driver, "https://slow.example/1", 6)
    driver.later(1)
    quick = await add_to(driver, "https://quick.example/1", 3)
    assert await shared(driver, ClaimShares(each=2)) == [*slow[:2], *quick[:2]]
    room = DestinationLimit("acme", "https://slow.example", 1)
    assert await shared(driver, ClaimShares(each=2, limits=(room,))) == [slow[2], quick[2]]
    assert await shared(driver, ClaimShares(each=9, limits=(room._replace(limit=0),))) == []
    assert await shared(driver, ClaimShares(limits=(room._replace(requester_id="other", limit=0),)), 1) == slow[3:4]
    assert await shared(driver, ClaimShares()) == slow[4:]


@pytest.mark.guarantee("S33")
async def test_the_same_host_is_another_destination_for_another_requester(driver: StoreDriver) -> None:
    a = await add_to(driver, "https://h.example/", 2, "a")
    b = await add_to(driver, "https://h.example/", 2, "ab")
    none = await add_to(driver, "bhttps://h.example/", 1, "")
    assert await shared(driver, ClaimShares(each=1)) == [a[0], b[0], *none]
    assert await shared(driver, ClaimShares(without=("a",))) == b[1:]
    assert await shared(driver, ClaimShares(without=("ab",))) == a[1:]


@pytest.mark.guarantee("S33")
async def test_what_waits_does_not_hide_what_is_due(driver: StoreDriver) -> None:
    (first, second) = await add_to(driver, "https://h.example/", 2)
    (row,) = await claim(driver, 1)
    later = OutboxSettlement(row.event_id, 1, Delivery.PENDING, delay_ms=5_000)
    await driver.store.outbox_settle([later], now=driver.now)
    assert await shared(driver, ClaimShares(each=1)) == [second]
    assert await shared(driver, ClaimShares(each=1)) == []
    driver.later(5_000)
    assert await shared(driver, ClaimShares(each=1)) == [first]


@pytest.mark.guarantee("S33")
async def test_an_expired_lease_is_held_back_by_no_room_alone(driver: StoreDriver) -> None:
    names = await add_to(driver, "https://h.example/", 3)
    assert len(await claim(driver)) == 3
    driver.later(10_001)
    none = DestinationLimit("acme", "https://h.example", 0)
    assert await shared(driver, ClaimShares(limits=(none,))) == []
    assert await shared(driver, ClaimShares(without=("acme",))) == []
    assert await shared(driver, ClaimShares(each=1)) == names


@pytest.mark.guarantee("S34")
async def test_a_filter_finds_what_it_names(driver: StoreDriver) -> None:
    mine = await add_to(driver, "https://a.example/", 3, "a")
    driver.later(1_000)
    theirs = await add_to(driver, "https://b.example/", 2, "b")
    nobodys = await add_to(driver, "https://b.example/", 1, "")

    async def found(status: Delivery | None = None, limit: int = 50, **where: Any) -> list[str]:
        rows = await driver.store.outbox_find(status=status, limit=limit, where=OutboxFilter(**where))
        return [row.event_id for row in rows]

    assert await found(requester_id="a") == mine
    assert await found(requester_id="") == nobodys
    assert await found(requester_id="a", newest_first=True) == mine[::-1]
    assert await found(requester_id="b", event_id=mine[0]) == []
    assert await found(requester_id="a", event_id=mine[0]) == [mine[0]]
    assert await found(event_id="no-such") == []
    assert await found(endpoint="https://b.example/") == theirs + nobodys
    assert await found(created_from=T0 + 1) == theirs + nobodys
    assert await found(created_to=T0 + 1) == mine
    assert await found(after=mine[1]) == [mine[2], *theirs, *nobodys]
    assert await found(after=theirs[0], newest_first=True, limit=2) == mine[:0:-1]
    assert await found(after=mine[1], newest_first=True, requester_id="a") == mine[:1]
    assert await found(after="no-such") == []
    assert await found(Delivery.DEAD_LETTER, requester_id="a") == []


@pytest.mark.guarantee("S35")
async def test_an_ended_event_comes_back_once_with_its_id_and_body(driver: StoreDriver) -> None:
    await add_events(driver, 3)
    done_event, dead, _ = await claim(driver)
    letter = OutboxSettlement(dead.event_id, 1, Delivery.DEAD_LETTER, error='"gone"')
    await driver.store.outbox_settle([delivered(done_event), letter], now=driver.now)
    request = [Replay(done_event.event_id, 500), Replay(dead.event_id), Replay(dead.event_id), Replay("no-such")]
    assert await driver.store.outbox_replay(request, now=driver.now) == [True, True, False, False]
    assert await driver.store.outbox_replay(request, now=driver.now) == [False] * 4
    assert await driver.store.outbox_replay([], now=driver.now) == []
    (again,) = await claim(driver)
    assert (again.event_id, again.body, again.attempt_count) == (dead.event_id, dead.body, 0)
    assert (again.claim_version, again.ended_at, again.error) == (2, None, '"gone"')
    assert await driver.store.outbox_settle([delivered(dead)], now=driver.now) == [Settled.STALE]
    driver.later(500)
    assert [row.event_id for row in await claim(driver)] == [done_event.event_id]
