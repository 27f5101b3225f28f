"""Events in a store, and a deliverer for them, in short words."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from callsheet.app.sealing import VaultSealer
from callsheet.engine import Engine
from callsheet.kernel import commands
from callsheet.kernel.job import NewJob, NewOutboxEvent, OutboxEvent
from callsheet.net.guarded_client import Limits
from callsheet.outbox import Deliveries, DeliveryOptions, Endpoints
from callsheet.store.outbox import OutboxFilter
from callsheet.store.protocol import ClaimRequest, Settled, Store
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring
from tests.outbox.sink import RULES

FAST = DeliveryOptions(poll_ms=(20, 40), limits=Limits(deadline_s=60.0), lease_ms=60_000)


def sealer() -> VaultSealer:
    return VaultSealer(LocalKeyring(first_keys()))


def endpoints(store: Store) -> Endpoints:
    return Endpoints(store, sealer(), RULES)


async def add_events(engine: Engine, *where: str, requester_id: str = "acme", body: str | None = None) -> list[str]:
    """One event for each endpoint named, by jobs that succeed."""
    jobs = [NewJob(str(uuid.uuid4()), "t", queue="webhooks", requester_id=requester_id) for _ in where]
    await engine.enqueue(jobs)
    claimed_jobs = await engine.claim(ClaimRequest("w", ("webhooks",), len(jobs)))
    ids, settlements = [], []
    for job, endpoint in zip(claimed_jobs, where, strict=True):
        event_id = f"evt_{uuid.uuid4().hex}"
        text = body if body is not None else json.dumps({"event_id": event_id, "job_id": job.job_id})
        settlements.append(commands.succeed(job, outbox=(NewOutboxEvent(event_id, endpoint, text),)))
        ids.append(event_id)
    assert set(await engine.settle(settlements)) == {Settled.APPLIED}
    return ids


@contextlib.asynccontextmanager
async def delivering(engine: Engine, endpoint_registry: Endpoints, **options: Any) -> AsyncIterator[Deliveries]:
    async with Deliveries(engine, endpoint_registry, FAST._replace(**options)) as deliveries:
        yield deliveries


async def event(engine: Engine, event_id: str) -> OutboxEvent:
    (event,) = await engine.store.outbox_find(where=OutboxFilter(event_id=event_id))
    return event


async def until(engine: Engine, ids: Sequence[str], status: str, patience_s: float = 60) -> list[OutboxEvent]:
    """Wait until all events have a status."""
    async with asyncio.timeout(patience_s):
        while True:
            events = [await event(engine, event_id) for event_id in ids]
            if all(found.status.value == status for found in events):
                return events
            await asyncio.sleep(0.01)
