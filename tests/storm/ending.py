"""The final phase of a storm: wait until every job has ended, according to the store; then write the final state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from callsheet.engine.schedules import schedules
from callsheet.kernel.errors import StoreError
from callsheet.kernel.job import Delivery, Job
from callsheet.store.protocol import JobQuery, Store
from tests.storm.history import Fact, append, note

NET_S = 300.0  # without any progress; only a net
PAGE = 200


async def settle_down(outstanding: Callable[[], Awaitable[int]], what: str, net_s: float = NET_S) -> bool:
    """Wait until no work is outstanding; return False and write a note if nothing progressed for long."""
    least, moved_at = await outstanding(), time.monotonic()
    left = least
    while left:
        await asyncio.sleep(0.2)
        left = await outstanding()
        if left < least:
            least, moved_at = left, time.monotonic()
        if time.monotonic() - moved_at > net_s:
            note("stuck", what=what, left=left)
            return False
    return True


async def open_jobs(store: Store) -> int:
    """Return how many jobs have not ended, and how many schedules have a slot that nobody fired."""
    try:
        counts = await store.counts()
        now = await store.now()
        late = [slot for _, slot in await schedules(store) if slot <= now]
    except StoreError:
        return 1_000_000
    return len(late) + sum(n for some in counts.values() for status, n in some.items() if not status.terminal)


async def open_callbacks(store: Store) -> int:
    """Return the number of open callbacks, up to some pages."""
    try:
        pending = await store.outbox_find(status=Delivery.PENDING, limit=5 * PAGE)
        return len(pending) + len(await store.outbox_find(status=Delivery.DELIVERING, limit=PAGE))
    except StoreError:
        return 1_000_000


async def write_end(store: Store, folder: Path) -> None:
    """Write all jobs with their attempts, events and callbacks to `end.jsonl`."""
    cursor: str | None = None
    while True:
        page = await store.find(JobQuery(limit=PAGE, cursor=cursor))
        append(folder / "end.jsonl", await _facts_of(store, page.jobs))
        if (cursor := page.cursor) is None:
            return


async def _facts_of(store: Store, jobs: list[Job]) -> list[Fact]:
    facts: list[Fact] = []
    for job in jobs:
        facts.append({"fact": "job", **_plain(job)})
        facts += [{"fact": "attempt", **_plain(one)} for one in await store.attempts(job.job_id)]
        after = 0
        while events := await store.events({job.job_id: after}, PAGE):
            facts += [{"fact": "event", **_plain(event)} for event in events]
            after = events[-1].seq
        if job.contract == "euterpe":
            rows = await store.outbox_find(job_id=job.job_id, limit=10 * PAGE)
            facts += [{"fact": "callback", **_plain(row)} for row in rows]
    return facts


def _plain(record: Any) -> Fact:
    fields: Fact = record._asdict()
    return fields
