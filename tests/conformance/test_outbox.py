from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import Claim, Delivery, NewOutboxEvent, OutboxEvent
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.store.outbox import OutboxFilter, Replay, Room, Sharing
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


async def add_to(kit: Kit, endpoint: str, count: int, requester_id: str = "acme") -> list[str]:
    """Events of one endpoint, each with a job of its own."""
    names = []
    for _ in range(count):
        job = await kit.running(requester_id=requester_id)
        names.append(f"ev-{job.job_id}")
        await kit.settle(commands.succeed(job, outbox=(NewOutboxEvent(names[-1], endpoint, "b"),)))
    return names


async def shared(kit: Kit, sharing: Sharing, limit: int = 10) -> list[str]:
    rows = await kit.store.outbox_claim("d1", limit=limit, lease_ms=10_000, sharing=sharing, now=kit.now)
    return [row.event_id for row in rows]


def test_a_destination_is_a_host_or_an_endpoint_of_ours() -> None:
    at = {url: NewOutboxEvent("e", url, "b").destination for url in ("https://A.example/x?job=1", "https://b:8443#f")}
    assert list(at.values()) == ["https://a.example", "https://b:8443"]
    assert NewOutboxEvent("e", "whe_X", "b").destination == "whe_X"


@pytest.mark.guarantee("S33")
async def test_a_claim_takes_no_more_of_a_destination_than_its_share(kit: Kit) -> None:
    slow = await add_to(kit, "https://slow.example/1", 6)
    kit.later(1)
    quick = await add_to(kit, "https://quick.example/1", 3)
    assert await shared(kit, Sharing(each=2)) == [*slow[:2], *quick[:2]]
    room = Room("acme", "https://slow.example", 1)
    assert await shared(kit, Sharing(each=2, rooms=(room,))) == [slow[2], quick[2]]
    assert await shared(kit, Sharing(each=9, rooms=(room._replace(room=0),))) == []
    assert await shared(kit, Sharing(rooms=(room._replace(requester_id="other", room=0),)), 1) == slow[3:4]
    assert await shared(kit, Sharing()) == slow[4:]


@pytest.mark.guarantee("S33")
async def test_the_same_host_is_another_destination_for_another_requester(kit: Kit) -> None:
    a = await add_to(kit, "https://h.example/", 2, "a")
    b = await add_to(kit, "https://h.example/", 2, "ab")
    none = await add_to(kit, "bhttps://h.example/", 1, "")
    assert await shared(kit, Sharing(each=1)) == [a[0], b[0], *none]
    assert await shared(kit, Sharing(without=("a",))) == b[1:]
    assert await shared(kit, Sharing(without=("ab",))) == a[1:]


@pytest.mark.guarantee("S33")
async def test_what_waits_does_not_hide_what_is_due(kit: Kit) -> None:
    (first, second) = await add_to(kit, "https://h.example/", 2)
    (row,) = await claim(kit, 1)
    later = OutboxSettlement(row.event_id, 1, Delivery.PENDING, delay_ms=5_000)
    await kit.store.outbox_settle([later], now=kit.now)
    assert await shared(kit, Sharing(each=1)) == [second]
    assert await shared(kit, Sharing(each=1)) == []
    kit.later(5_000)
    assert await shared(kit, Sharing(each=1)) == [first]


@pytest.mark.guarantee("S33")
async def test_an_expired_lease_is_held_back_by_no_room_alone(kit: Kit) -> None:
    names = await add_to(kit, "https://h.example/", 3)
    assert len(await claim(kit)) == 3
    kit.later(10_001)
    none = Room("acme", "https://h.example", 0)
    assert await shared(kit, Sharing(rooms=(none,))) == []
    assert await shared(kit, Sharing(without=("acme",))) == []
    assert await shared(kit, Sharing(each=1)) == names


@pytest.mark.guarantee("S34")
async def test_a_filter_finds_what_it_names(kit: Kit) -> None:
    mine = await add_to(kit, "https://a.example/", 3, "a")
    kit.later(1_000)
    theirs = await add_to(kit, "https://b.example/", 2, "b")
    nobodys = await add_to(kit, "https://b.example/", 1, "")

    async def found(status: Delivery | None = None, limit: int = 50, **where: Any) -> list[str]:
        rows = await kit.store.outbox_find(status=status, limit=limit, where=OutboxFilter(**where))
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
async def test_an_ended_event_comes_back_once_with_its_id_and_body(kit: Kit) -> None:
    await add_events(kit, 3)
    done, dead, _ = await claim(kit)
    letter = OutboxSettlement(dead.event_id, 1, Delivery.DEAD_LETTER, error='"gone"')
    await kit.store.outbox_settle([delivered(done), letter], now=kit.now)
    asked = [Replay(done.event_id, 500), Replay(dead.event_id), Replay(dead.event_id), Replay("no-such")]
    assert await kit.store.outbox_replay(asked, now=kit.now) == [True, True, False, False]
    assert await kit.store.outbox_replay(asked, now=kit.now) == [False] * 4
    assert await kit.store.outbox_replay([], now=kit.now) == []
    (again,) = await claim(kit)
    assert (again.event_id, again.body, again.attempt_count) == (dead.event_id, dead.body, 0)
    assert (again.claim_version, again.ended_at, again.error) == (2, None, '"gone"')
    assert await kit.store.outbox_settle([delivered(dead)], now=kit.now) == [Settled.STALE]
    kit.later(500)
    assert [row.event_id for row in await claim(kit)] == [done.event_id]
