"""Schedules: documents with a job and its times. However many processes look, a slot fires once.

The job of a slot has an id made from the schedule's name and the slot, so a second process gets DuplicateJob. A
schedule stores when its next slot was chosen: a future time means that the clock was ahead, and the slot is chosen
again.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from callsheet.kernel import commands, new_jobs
from callsheet.kernel.errors import DocumentConflict, DuplicateJob, InvalidInput, QueueFull, QuotaExceeded, StoreError
from callsheet.kernel.job import Job, Json, NewJob
from callsheet.kernel.wire import decode, encode
from callsheet.store.clock import TOLERANCE_MS
from callsheet.store.protocol import Document

from .quotas import Quotas, slot_of
from .silent_workers import silence_ms_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from callsheet.store.protocol import Store

log = logging.getLogger("callsheet.schedules")
KIND = "schedule"
GRACE_MS = 60_000  # a slot that is this late was missed
MOST_MISSED = 1_000
MAX_MISSED_SCAN = 100_000  # slots of one outage that are counted
SHORTEST_MS = 1_000
LONGEST_MS = 366 * 86_400_000
MAX_NAME = 255
HISTORY = 20  # runs that a schedule remembers
_SPACE = uuid.UUID("6f1d5a5c-2b6e-4c53-9d0e-5d6f6b0a7c11")


class Missed(StrEnum):
    """What happens to slots that passed while no process looked: none runs, one runs for all, or each runs."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What happens to a slot while the job of the slot before has not ended."""

    QUEUE = "queue"
    SKIP = "skip"
    CANCEL = "cancel"


class Source(StrEnum):
    """Where a schedule was made: declared ones follow the code, the others stay until somebody deletes them."""

    API = "api"
    CODE = "code"


class Schedule(NamedTuple):
    """A job to enqueue at each slot of a cron line in a time zone, or every `every_ms`.

    `missed` and `overlap` say what happens after downtime, and while the job before still runs. With `missed="all"` at
    most the last `most` slots run. `app` names the program that declared the schedule.
    """

    name: str
    cron: str
    kind: str
    payload: Json = "{}"
    queue: str = "default"
    priority: int = 0
    requester_id: str = ""
    contract: str = "callsheet"
    timezone: str = "UTC"
    every_ms: int = 0
    max_attempts: int | None = None
    retry: str = ""
    ttl_s: int | None = None
    missed: str = Missed.ONCE
    most: int = 100
    overlap: str = Overlap.QUEUE
    paused: bool = False
    source: str = Source.API
    app: str = ""

    def next_slot(self, after_ms: int) -> int:
        """Return the first slot after a moment; raises InvalidInput for a bad line or zone."""
        return next(self.slots(after_ms))

    def slots(self, after_ms: int) -> Iterator[int]:
        """Yield the slots after a moment, without end; raises InvalidInput for a line or zone that has none."""
        if self.every_ms:
            slot = after_ms
            while True:
                slot = (slot // self.every_ms + 1) * self.every_ms
                yield slot
        try:
            moment = datetime.fromtimestamp(after_ms / 1000, ZoneInfo(self.timezone))
            before = after_ms
            for at in CronSim(self.cron, moment):
                slot = int(at.timestamp()) * 1000
                if slot > before:  # if clocks go back an hour, skip slots that have passed
                    yield slot
                    before = slot
        except (CronSimError, ZoneInfoNotFoundError, ValueError, OverflowError, OSError) as error:
            raise self._without_slots(str(error)) from error
        raise self._without_slots("it never comes")

    def _without_slots(self, reason: str) -> InvalidInput:
        return InvalidInput(
            f"schedule {self.name}: cron {self.cron!r} in timezone {self.timezone!r} has no next slot ({reason})"
        )

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
            correlation_id=f"schedule:{self.name}:{slot}"[-MAX_NAME:],
            max_attempts=self.max_attempts,
            retry=self.retry,
            ttl_s=self.ttl_s,
        )


class ScheduleState(NamedTuple):
    """A schedule with its next slot, the numbers of slots that ran and did not, and its last runs with their jobs."""

    schedule: Schedule
    next_slot: int
    chosen_at: int = 0
    history: tuple[tuple[int, str], ...] = ()
    runs: int = 0
    skipped: int = 0
    version: int = 0

    @property
    def last_job_id(self) -> str | None:
        """The id of the latest run's job, None before the first run."""
        return self.history[-1][1] if self.history else None

    def with_run(self, slot: int, job_id: str) -> ScheduleState:
        """Return the state after a run."""
        return self._replace(history=(*self.history, (slot, job_id))[-HISTORY:], runs=self.runs + 1)

    def document(self) -> Document:
        """Return the state as a document of the store."""
        body = {**self.schedule._asdict(), **self._asdict()}
        del body["schedule"], body["version"]
        return Document(KIND, self.schedule.name, encode(body), self.version)


def check(schedule: Schedule, at: int) -> int:
    """Return the first slot after a moment; raises InvalidInput or InvalidJob for a schedule that cannot fire."""
    if not 0 < len(schedule.name) <= MAX_NAME or not schedule.name.isprintable():
        raise InvalidInput(f"name: a schedule's name is printable text of 1 to {MAX_NAME} characters")
    if bool(schedule.every_ms) == bool(schedule.cron):
        raise InvalidInput(f"schedule {schedule.name}: give either a cron line or every, not both")
    if schedule.every_ms and not SHORTEST_MS <= schedule.every_ms <= LONGEST_MS:
        raise InvalidInput(f"schedule {schedule.name}: every must be one second to a year")
    if schedule.missed not in set(Missed):
        raise InvalidInput(f"schedule {schedule.name}: missed is one of {', '.join(Missed)}")
    if schedule.overlap not in set(Overlap):
        raise InvalidInput(f"schedule {schedule.name}: overlap is one of {', '.join(Overlap)}")
    if not 1 <= schedule.most <= MOST_MISSED:
        raise InvalidInput(f"schedule {schedule.name}: most must be 1 to {MOST_MISSED}")
    try:
        ZoneInfo(schedule.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(f"schedule {schedule.name}: there is no timezone {schedule.timezone!r}") from None
    slot = schedule.next_slot(at)
    new_jobs.enqueue(schedule.job_at(slot))
    return slot


async def put_schedule(store: Store, schedule: Schedule, *, now: int | None = None) -> None:
    """Create or replace a schedule, which fires from the next slot on; raises InvalidInput or InvalidJob."""
    at = await store.now() if now is None else now
    slot = check(schedule, at)
    documents = await store.documents(KIND, schedule.name)
    before = _read(documents[0]) if documents else None
    if before is not None and before.schedule == schedule and before.next_slot > at >= before.chosen_at:
        return  # nothing changes
    state = before or ScheduleState(schedule, slot)
    await store.put_document(state._replace(schedule=schedule, next_slot=slot, chosen_at=at).document())


async def declare_schedules(
    store: Store, by_program: Mapping[str, Sequence[Schedule]], *, now: int | None = None
) -> list[str]:
    """Let the stored schedules of programs be those that they declare now; return the names that changed.

    Schedules that were made in another way, or by another program, stay. A pause by an operator stays, too.
    """
    before_by_name = {state.schedule.name: state.schedule for state in await schedule_states(store)}
    names = {schedule.name for schedules_now in by_program.values() for schedule in schedules_now}
    changes = [
        name
        for name, schedule in before_by_name.items()
        if schedule.source == Source.CODE and schedule.app in by_program and name not in names
    ]
    for name in changes:
        await delete_schedule(store, name)
    for program, schedules_now in by_program.items():
        for schedule in schedules_now:
            before = before_by_name.get(schedule.name)
            own = schedule._replace(source=Source.CODE.value, app=program, paused=before.paused if before else False)
            if own == before:
                continue
            with contextlib.suppress(DocumentConflict):  # another process of the same program was faster
                await put_schedule(store, own, now=now)
                changes.append(schedule.name)
    return changes


async def schedules(store: Store) -> list[tuple[Schedule, int]]:
    """Return all schedules, each with its next slot."""
    return [state[:2] for state in await schedule_states(store)]


async def schedule_states(store: Store, name: str | None = None) -> list[ScheduleState]:
    """Return all schedules, or the one of a name, with their times."""
    return [_read(document) for document in await store.documents(KIND, name)]


async def delete_schedule(store: Store, name: str) -> bool:
    """Delete a schedule; return False if there was none."""
    return await store.delete_document(KIND, name)


async def pause_schedule(store: Store, name: str, *, paused: bool, now: int | None = None) -> ScheduleState | None:
    """Pause a schedule, or let it go on with the next slot; return None if there is none of this name."""
    at = await store.now() if now is None else now
    while states := await schedule_states(store, name):
        schedule = states[0].schedule._replace(paused=paused)
        slot = states[0].next_slot if paused else schedule.next_slot(at)
        state = states[0]._replace(schedule=schedule, next_slot=slot, chosen_at=at)
        with contextlib.suppress(DocumentConflict):  # it fired in between: again
            await store.put_document(state.document())
            return state
    return None


async def note_run(store: Store, name: str, slot: int, job_id: str) -> None:
    """Add a run that somebody asked for to a schedule's history; a schedule that is gone is left alone."""
    while states := await schedule_states(store, name):
        with contextlib.suppress(DocumentConflict):
            await store.put_document(states[0].with_run(slot, job_id).document())
            return


async def fire_due(store: Store, *, now: int | None = None) -> int:
    """Enqueue the jobs of due slots; return how many this process fired."""
    at = await store.now() if now is None else now
    count = 0
    for document in await store.documents(KIND):
        try:
            count += await _fire(store, _read(document), at)
        except StoreError:
            raise
        except Exception:
            log.exception("schedule %s cannot fire; the others go on", document.id)
    return count


async def _fire(store: Store, state: ScheduleState, at: int) -> int:
    """Enqueue the jobs of due slots and advance the schedule; return how many this process enqueued."""
    schedule = state.schedule
    if schedule.paused or (state.next_slot > at and state.chosen_at <= at + TOLERANCE_MS):
        return 0
    next_slot = schedule.next_slot(at)
    if state.next_slot > at:
        await _advance(store, state._replace(next_slot=next_slot, chosen_at=at))
        return 0
    slots, missed = _slots_to_run(schedule, state.next_slot, at)
    if missed:
        log.warning("schedule %s missed %d slots; its policy is %s", schedule.name, missed, schedule.missed)
    count = 0
    for slot in slots:
        if not await _may_run(store, state, at):
            missed += 1
            continue
        new = schedule.job_at(slot)
        if (is_new := await _enqueue(store, new, at)) is None:
            missed += 1
            continue
        count += is_new
        state = state.with_run(slot, new.job_id)
    await _advance(store, state._replace(next_slot=next_slot, chosen_at=at, skipped=state.skipped + missed))
    return count


def _slots_to_run(schedule: Schedule, first: int, at: int) -> tuple[list[int], int]:
    """Return the due slots that run by the schedule's policy, and how many due slots do not."""
    if schedule.missed == Missed.ONCE:
        return [first], 0
    due = [first, *_due(schedule.slots(first), at)]
    in_time = due[-1:] if at - due[-1] < GRACE_MS else []
    slots = in_time if schedule.missed == Missed.SKIP else due[-schedule.most :]
    return slots, len(due) - len(slots)


def _due(slots: Iterable[int], at: int) -> Iterator[int]:
    for number, slot in enumerate(slots):
        if slot > at or number == MAX_MISSED_SCAN:
            return
        yield slot


async def _may_run(store: Store, state: ScheduleState, at: int) -> bool:
    """Return whether a slot may run beside the job of the slot before; cancels that job if the schedule says so."""
    if state.schedule.overlap == Overlap.QUEUE or state.last_job_id is None:
        return True
    (job,) = await store.get([state.last_job_id])
    if job is None or job.status.terminal:
        return True
    if state.schedule.overlap == Overlap.SKIP:
        return False
    await _cancel(store, job, at)
    return True


async def _cancel(store: Store, job: Job, at: int) -> None:
    reason = "the schedule's next slot has come"
    await store.settle([commands.request_cancel(job, reason, now=at, silent_after_ms=silence_ms_of(job))], now=at)


async def _enqueue(store: Store, new: NewJob, at: int) -> bool | None:
    """Enqueue the job of a slot; return False if another process did, None if its tenant has no room for it."""
    new, limits = await _within_quota(store, new)
    try:
        await store.enqueue([new], quotas=limits, now=at)
    except DuplicateJob:
        return False
    except (QuotaExceeded, QueueFull) as error:
        log.warning("%s: a slot did not run (%s)", new.correlation_id, error)
        return None
    return True


async def _within_quota(store: Store, new: NewJob) -> tuple[NewJob, dict[str, int] | None]:
    """Return the job with its tenant's slot for running jobs, and the tenant's limit of queued jobs."""
    if not new.requester_id:
        return new, None
    quotas = Quotas(store, None)
    await quotas.refresh()
    limits = quotas.limits_of(new.requester_id)
    if limits.running:
        new = new._replace(concurrency_key=slot_of(new.requester_id), concurrency_limit=limits.running)
    return new, {new.requester_id: limits.queued} if limits.queued else None


async def _advance(store: Store, state: ScheduleState) -> None:
    with contextlib.suppress(DocumentConflict):  # another process advanced the schedule, or a user changed it
        await store.put_document(state.document())


def _read(document: Document) -> ScheduleState:
    """Return the state in a document; documents of earlier versions lack some members."""
    body: dict[str, Any] = decode(document.body)
    schedule = Schedule(**{name: value for name, value in body.items() if name in Schedule._fields})
    own = {name: value for name, value in body.items() if name in ScheduleState._fields}
    own["history"] = tuple((slot, job_id) for slot, job_id in body.get("history", ()))
    return ScheduleState(schedule, **{**own, "version": document.version})
