"""S39 to S41: the audit log."""

from __future__ import annotations

import asyncio

import pytest

from callsheet.kernel.audit import AuditEntry, new_entry
from callsheet.store.audit import AuditQuery
from tests.store_driver import T0, StoreDriver


def entry(action: str = "key.created", requester_id: str = "acme", **more: str) -> AuditEntry:
    return new_entry(action, requester_id=requester_id, details={"n": 1, "ü": "ß"}, **more)


async def found(driver: StoreDriver, **filters: object) -> list[AuditEntry]:
    return (await driver.store.audit_find(AuditQuery(**filters))).entries  # type: ignore[arg-type]


@pytest.mark.guarantee("S39")
async def test_an_entry_is_kept_as_it_was_written(driver: StoreDriver) -> None:
    written_text = entry(actor="k1", target="k2", outcome="refused", address="::1", request_id="r")
    (entry_id,) = await driver.store.audit_append([written_text], now=driver.now)
    assert await found(driver) == [written_text._replace(at=T0, entry_id=entry_id)]
    assert await driver.store.audit_append([], now=driver.now) == []


@pytest.mark.guarantee("S40")
async def test_entries_are_found_newest_first_by_filter(driver: StoreDriver) -> None:
    for n, (action, tenant, actor) in enumerate(
        [("key.created", "a", "x"), ("key.revoked", "b", "x"), ("quota.changed", "a", "y"), ("key.created", "", "y")]
    ):
        await driver.store.audit_append([entry(action, tenant, actor=actor)], now=T0 + n * 1_000)
    assert [e.at - T0 for e in await found(driver)] == [3_000, 2_000, 1_000, 0]
    assert [e.at - T0 for e in await found(driver, requester_id="a")] == [2_000, 0]
    assert [e.requester_id for e in await found(driver, requester_id="")] == [""]
    assert [e.at - T0 for e in await found(driver, action="key.created")] == [3_000, 0]
    assert [e.at - T0 for e in await found(driver, action="key.")] == [3_000, 1_000, 0]
    assert [e.at - T0 for e in await found(driver, actor="y", requester_id="a")] == [2_000]
    assert [e.at - T0 for e in await found(driver, since=T0 + 1_000, until=T0 + 3_000)] == [2_000, 1_000]
    assert await found(driver, requester_id="nobody") == []


@pytest.mark.guarantee("S40")
async def test_pages_are_without_gaps_and_do_not_shift(driver: StoreDriver) -> None:
    ids = await driver.store.audit_append([entry() for _ in range(7)], now=driver.now)
    ids += await driver.store.audit_append([entry() for _ in range(2)], now=driver.later(5))
    assert len(set(ids)) == 9
    seen: list[str] = []
    cursor: str | None = None
    while len(seen) < 9 or cursor:
        page = await driver.store.audit_find(AuditQuery("acme", limit=2, cursor=cursor))
        seen += [e.entry_id for e in page.entries]
        cursor = page.cursor
        await driver.store.audit_append([entry()], now=driver.later(1))
    assert seen == ids[::-1]


@pytest.mark.guarantee("S39")
async def test_writers_at_the_same_moment_lose_nothing(driver: StoreDriver) -> None:
    await asyncio.gather(*(driver.store.audit_append([entry(actor=str(n))], now=driver.now) for n in range(30)))
    assert {e.actor for e in await found(driver, limit=100)} == {str(n) for n in range(30)}


@pytest.mark.guarantee("S41")
async def test_only_old_entries_are_pruned_oldest_first(driver: StoreDriver) -> None:
    for n in range(5):
        await driver.store.audit_append([entry(actor=str(n), requester_id="a" if n % 2 else "b")], now=T0 + n)
    assert await driver.store.audit_prune(before=T0 + 3, limit=2) == 2
    assert [e.actor for e in await found(driver)] == ["4", "3", "2"]
    assert await driver.store.audit_prune(before=T0 + 3, limit=2) == 1
    assert await driver.store.audit_prune(before=T0 + 3, limit=2) == 0
    assert [e.actor for e in await found(driver, requester_id="a")] == ["3"]
    assert [e.actor for e in await found(driver, requester_id="b")] == ["4"]
