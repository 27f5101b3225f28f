"""Cron schedules: documents with a job and its times. However many processes look, a slot fires once.

The job of a slot has an id made from the schedule's name and the slot, so a second process gets DuplicateJob. A
schedule stores when its next slot was chosen: a future time means that the clock was ahead, and the slot is chosen
again.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from callsheet.kernel import new_jobs
from callsheet.kernel.errors import DocumentConflict, DuplicateJob, InvalidInput, StoreError
from callsheet.kernel.job import Json, NewJob
from callsheet.kernel.wire import decode, encode
from callsheet.store.clock import TOLERANCE_MS
from callsheet.store.protocol import Document, Store

log = logging.getLogger("callsheet.schedules")
KIND = "schedule"
_SPACE = uuid.UUID("6f1d5a5c-2b6e-4c53-9d0e-5d6f6b0a7c11")


class Schedule(NamedTuple):
    """A job to enqueue at each slot of a cron line, in a time zone. Slots missed during downtime fire once together."""

    name: str
    cron: str
    kind: str
    payload: Json = "{}"
    queue: str = "default"
    priority: int = 0
    requester_id: str = ""
    contract: str = "callsheet"
    timezone: str = "UTC"

    def next_slot(self, after_ms: int) -> int:
        """Return the first slot after a moment; raises InvalidInput for a bad line or zone."""
        try:
            moment = datetime.fromtimestamp(after_ms / 1000, ZoneInfo(self.timezone))
            slots = (int(slot.timestamp()) * 1000 for slot in CronSim(self.cron, moment))
            return next(
                slot for slot in slots if slot > after_ms
            )  # if clocks go back an hour, skip slots that have passed
        except (CronSimError, StopIteration, ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidInput(
                f"schedule {self.name}: {self.cron!r} in {self.timezone!r} has no next slot ({error})"
            ) from error

    def job_at(self, slot: int) -> NewJob:
        """Return the job of a slot; its id is the same in every process."""
        return NewJob(
            job_id=str(uuid.uuid5(_SPACE, f"{self.name}:{slot}")),
            kind=self.kind,
            payload=self.payload,
            queue=self.queue,
            priority=self.priority,
            requester_id=self.requester_id,
            contract=self.contract,
            correlation_id=f"schedule:{self.name}:{slot}",
        )


async def put_schedule(store: Store, schedule: Schedule, *, now: int | None = None) -> None:
    """Create or replace a schedule, which fires from the next slot on; raises InvalidInput or InvalidJob."""
    at = await store.now() if now is None else now
    slot = schedule.next_slot(at)
    new_jobs.enqueue(schedule.job_at(slot))
    documents = await store.documents(KIND, schedule.name)
    await store.put_document(_document(schedule, slot, at, documents[0].version if documents else 0))


async def schedules(store: Store) -> list[tuple[Schedule, int]]:
    """Return all schedules, each with its next slot."""
    return [_read(document)[:2] for document in await store.documents(KIND)]


async def delete_schedule(store: Store, name: str) -> bool:
    """Delete a schedule; return False if there was none."""
    return await store.delete_document(KIND, name)


async def fire_due(store: Store, *, now: int | None = None) -> int:
    """Enqueue the jobs of due slots; return how many this process fired."""
    at = await store.now() if now is None else now
    count = 0
    for document in await store.documents(KIND):
        try:
            count += await _fire(store, document, at)
        except StoreError:
            raise
        except Exception:
            log.exception("schedule %s cannot fire; the others go on", document.id)
    return count


async def _fire(store: Store, document: Document, at: int) -> bool:
    """Enqueue the job of a due slot and advance the schedule; return False if another process was faster."""
    schedule, slot, chosen_at = _read(document)
    if slot > at and chosen_at <= at + TOLERANCE_MS:
        return False
    next_slot = schedule.next_slot(at)
    if slot > at:
        await _move_on(store, _document(schedule, next_slot, at, document.version))
        return False
    try:
        await store.enqueue([schedule.job_at(slot)], now=at)
        is_new = True
    except DuplicateJob:
        is_new = False  # another process fired this slot and has not yet advanced the schedule
    await _move_on(store, _document(schedule, next_slot, at, document.version))
    return is_new


async def _move_on(store: Store, document: Document) -> None:
    with contextlib.suppress(DocumentConflict):  # another process advanced the schedule, or a user changed it
        await store.put_document(document)


def _document(schedule: Schedule, slot: int, at: int, version: int) -> Document:
    body = {**schedule._asdict(), "next_slot": slot, "chosen_at": at}
    return Document(KIND, schedule.name, encode(body), version)


def _read(document: Document) -> tuple[Schedule, int, int]:
    """Return a schedule, its next slot, and the slot's choosing time; 0 in documents of earlier versions."""
    body: dict[str, Any] = decode(document.body)
    schedule = Schedule(**{name: value for name, value in body.items() if name in Schedule._fields})
    return schedule, body["next_slot"], body.get("chosen_at", 0)
