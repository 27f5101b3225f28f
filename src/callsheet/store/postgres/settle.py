"""The settle verb: one optimistic statement for a batch, and a transaction for moves that need locks or an order.

Plain successes, most of all settlements, have their own statement (`succeed`). For other batches the statement `settle`
suffices if no job in the batch has a concurrency key, dependents or follow-ups, and no job occurs twice. Settlements
that it did not apply (a stale fence, a row that changed at that moment) run again under locks.

Repeating a batch after StoreUnavailable is safe for settlements with an outcome or callbacks: they answer REPEATED.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import asyncpg

from callsheet.kernel.errors import DuplicateJob, StoreError
from callsheet.kernel.job import NewJob, Outcome, Status
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import Settled
from callsheet.store.queries import Queries

from .columns import spread
from .enqueue import enqueue_within
from .line import admit, release_dependents

if TYPE_CHECKING:
    from .connection import Database

Q = Queries("callsheet.store.postgres")
SPECIAL = 0
_ARE_UUIDS = re.compile(r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:,|$))+").fullmatch
_EVENT = Settlement._fields.index("event")
_RESULT = Settlement._fields.index("result")
_SUCCESS = Settlement("", 0, Status.RUNNING, Status.SUCCEEDED, progress=100.0, outcome=Outcome.SUCCEEDED)
_USUAL = [(place, value) for place, value in enumerate(_SUCCESS) if place not in (0, 1, _EVENT, _RESULT)]
NO_EVENT = (None, None, None)
_OUTCOME: dict[Outcome | None, str | None] = {None: None, **{outcome: outcome.value for outcome in Outcome}}
Numbered = list[tuple[int, Settlement]]


async def settle(db: Database, settlements: Sequence[Settlement], now: int | None, lined_up: set[str]) -> list[Settled]:
    """Apply each settlement whose fence holds; add the queues with new ready jobs to `lined_up`."""
    try:
        return await _settle(db, settlements, now, lined_up)
    except asyncpg.UniqueViolationError as error:
        callbacks = [(out.event_id, s.job_id) for s in settlements for out in s.outbox]
        if len(set(callbacks)) == len(callbacks) and not await _existing_callbacks(db, callbacks):
            raise DuplicateJob("a key or an id of these jobs is in use already; let that job end first") from error
    return [await _settle_untold(db, s, now, lined_up) for s in settlements]


async def _existing_callbacks(db: Database, callbacks: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those (event id, job id) pairs whose callbacks are stored already."""
    rows = await db.fetch(Q.outbox_known, [event_id for event_id, _ in callbacks]) if callbacks else []
    return {(row[0], str(row[1])) for row in rows} & set(callbacks)


async def _settle_untold(db: Database, s: Settlement, now: int | None, lined_up: set[str]) -> Settled:
    """Settle without callbacks that exist already; if nothing else remains, the move was applied before."""
    existing = await _existing_callbacks(db, [(out.event_id, s.job_id) for out in s.outbox])
    left = tuple(out for out in s.outbox if (out.event_id, s.job_id) not in existing)
    if s.outbox and not left and s.outcome is None:
        holds = await db.fetch(Q.holds, s.job_id, s.claim_version, s.from_status.value)
        return Settled.REPEATED if holds else Settled.STALE
    try:
        return (await _settle(db, [s._replace(outbox=left)], now, lined_up))[0]
    except asyncpg.UniqueViolationError as error:
        raise DuplicateJob("a key or an id of this job is in use already; let that job end first") from error


async def _settle(
    db: Database, settlements: Sequence[Settlement], now: int | None, lined_up: set[str]
) -> list[Settled]:
    answers = [Settled.STALE] * len(settlements)
    rest: Numbered = list(enumerate(settlements))
    if _plain(rest):
        rest = await _succeed(db, rest, answers, now)
    rest = [pair for pair in rest if IS_UUID(pair[1][0])]
    if _plain(rest):
        rest = await _optimistic(db, rest, answers, now, lined_up)
    if rest:
        for i, answer in (await db.transact(lambda session: _Locked(session, lined_up).settle(rest, now))).items():
            answers[i] = answer
    return answers


async def _succeed(db: Database, rest: Numbered, answers: list[Settled], now: int | None) -> Numbered:
    """Apply the plain successes in one statement; return the remaining settlements."""
    batch = sorted([s for _, s in rest if s.status is Status.SUCCEEDED])  # by id: fast index access, no deadlocks
    columns = _usual_successes(batch) or _usual_successes([s for s in batch if _usual_successes([s])])
    ids = ",".join(columns[0]) if columns else ""
    if not _ARE_UUIDS(ids):
        return rest
    results = json.dumps(spread(columns[_RESULT]), ensure_ascii=False)
    steps = json.dumps(spread([event[1] for event in columns[_EVENT]]), ensure_ascii=False)
    try:
        ((moved_ids,),) = await db.fetch(Q.succeed, now, ids, spread(columns[1]), results, steps)
    except StoreError as error:
        if isinstance(error.__cause__, asyncpg.ProgramLimitExceededError):
            return rest  # too large for one value; nothing was written
        raise
    if moved_ids is None and len(columns[0]) == len(rest):  # as below, for most batches
        answers[:] = [Settled.APPLIED] * len(rest)
        return []
    applied_ids = set(columns[0] if moved_ids is None else moved_ids)
    for i, s in rest:
        if s[0] in applied_ids:
            answers[i] = Settled.APPLIED
    return [pair for pair in rest if pair[1][0] not in applied_ids]


async def _optimistic(
    db: Database, rest: Numbered, answers: list[Settled], now: int | None, lined_up: set[str]
) -> Numbered:
    """Apply a batch in one statement unless a job of the batch needs locks; return the remaining settlements."""
    if not rest:
        return rest
    run = _against_deadlocks(rest)
    moved_rows = {row[0]: row[2] for row in await db.fetch(Q.settle, *_parameters(run, now, alone=True))}
    if SPECIAL in moved_rows:
        return rest
    lined_up.update(filter(None, moved_rows.values()))
    for ord_ in moved_rows:
        answers[run[ord_ - 1][0]] = Settled.APPLIED
    return [pair for pair in rest if answers[pair[0]] is not Settled.APPLIED]


def _usual_successes(batch: Sequence[Settlement]) -> list[tuple[Any, ...]]:
    """Return the columns of plain successes; an empty list if any settlement writes more than result and event.

    Checked column by column: row by row costs three times as much.
    """
    columns = list(zip(*batch, strict=True))
    usual = (
        bool(columns)
        and all(columns[place].count(value) == len(batch) for place, value in _USUAL)
        and None not in columns[_RESULT]
        and all(event is not None and event.type == "done" and event.data == "{}" for event in spread(columns[_EVENT]))
    )
    return columns if usual else []


def _plain(rest: Numbered) -> bool:
    return len({s[0] for _, s in rest}) == len(rest) and not any(map(_follow_ups, rest))


def _against_deadlocks(rest: Numbered) -> Numbered:
    """Return settlements sorted by job id; in batch order if that order decides positions in the line."""
    if any(s.status is Status.QUEUED for _, s in rest):
        return rest
    return sorted(rest, key=_job_id)


def _follow_ups(pair: tuple[int, Settlement]) -> tuple[NewJob, ...]:
    return pair[1].follow_ups


def _job_id(pair: tuple[int, Settlement]) -> str:
    return pair[1][0]


class _Locked:
    """A batch in a transaction that holds the locks of its jobs: settlements in order, plain runs in one statement."""

    def __init__(self, session: Any, lined_up: set[str]) -> None:
        self._session = session
        self._lined_up = lined_up
        self._answers: dict[int, Settled] = {}

    async def settle(self, rest: Numbered, now: int | None) -> dict[int, Settled]:
        ids = list({s.job_id for _, s in rest})
        at: int = await self._session.fetchval(Q.now, now)
        await self._session.fetch(Q.lock_jobs, ids)
        rows = await self._session.fetch(Q.ties, ids)
        if parents := [row[0] for row in rows if row[2]]:
            await self._session.fetch(Q.lock_dependents, parents)
        await self._session.fetch(Q.lock_slots, list({row[1] for row in rows if row[1] is not None}))
        tied = {row[0] for row in rows if row[1] is not None or row[2]}
        run: Numbered = []
        for i, s in rest:
            if any(s.job_id == other.job_id for _, other in run):
                await self._apply(run, at)
                run = []
            if s.status is not Status.RUNNING and (s.follow_ups or s.job_id in tied):
                await self._apply(run, at)
                run = []
                await self._apply_with_ties(i, s, at)
                tied |= {parent for new in s.follow_ups for parent in new.depends_on}
            else:
                run.append((i, s))
        await self._apply(run, at)
        return self._answers

    async def _apply(self, run: Numbered, now: int) -> dict[int, str | None]:
        """Apply a run in one statement; return the concurrency keys of applied settlements, by position in the run.

        Positions count from 1.
        """
        if not run:
            return {}
        rows = await self._session.fetch(Q.settle, *_parameters(run, now, alone=False))
        moved_rows = {row[0]: row[1] for row in rows}
        self._lined_up.update(row[2] for row in rows if row[2] is not None)
        unapplied = [(i, s) for place, (i, s) in enumerate(run, 1) if place not in moved_rows]
        self._answers |= {i: Settled.APPLIED for place, (i, _) in enumerate(run, 1) if place in moved_rows}
        if unapplied:
            self._answers |= await self._repeats(unapplied)
        return moved_rows

    async def _apply_with_ties(self, i: int, s: Settlement, now: int) -> None:
        moved_rows = await self._apply([(i, s)], now)
        if not moved_rows:
            return
        if s.follow_ups:
            await enqueue_within(self._session, s.follow_ups, now)
            self._lined_up.update(new.queue for new in s.follow_ups)
        if s.status.terminal:
            self._lined_up |= await release_dependents(self._session, s.job_id, s.status, now)
        if (key := moved_rows[1]) is not None:
            self._lined_up.update(await admit(self._session, [key]))

    async def _repeats(self, unapplied: Numbered) -> dict[int, Settled]:
        """Return REPEATED for claims whose attempts ended with the same outcome before, STALE for all others."""
        rows = await self._session.fetch(
            Q.repeated,
            [s.job_id for _, s in unapplied],
            [s.claim_version for _, s in unapplied],
            [s.outcome.value if s.outcome else None for _, s in unapplied],
        )
        again = {ord_ for (ord_,) in rows}
        return {i: Settled.REPEATED if place in again else Settled.STALE for place, (i, _) in enumerate(unapplied, 1)}


def _parameters(run: Numbered, now: int | None, *, alone: bool) -> tuple[object, ...]:
    batch = [s for _, s in run]
    events = [s.event or NO_EVENT for s in batch]
    checkpoints = [(place, *s.checkpoint) for place, s in enumerate(batch, 1) if s.checkpoint is not None]
    callbacks = [(place, *out, out.destination) for place, s in enumerate(batch, 1) for out in s.outbox]
    return (
        now,
        alone,
        [s.job_id for s in batch],
        spread([s.claim_version for s in batch]),
        spread([s.from_status.value for s in batch]),
        spread([s.status.value for s in batch]),
        spread([s.starts | s.refund << 1 | s.lease_lost << 2 | s.refreshed << 3 | s.expired_only << 4 for s in batch]),
        spread([s.stage for s in batch]),
        spread([s.progress or 0.0 for s in batch]),
        spread([s.result for s in batch]),
        spread([s.error for s in batch]),
        spread([s.fresh_attempts for s in batch]),
        spread([s.cancel_reason for s in batch]),
        spread([s.delay_ms for s in batch]),
        spread([_OUTCOME[s.outcome] for s in batch]),
        spread([e[0] for e in events]),
        spread([e[1] for e in events]),
        spread([e[2] for e in events]),
        *([row[column] for row in checkpoints] for column in range(3)),
        *([row[column] for row in callbacks] for column in range(6)),
        spread([s.silence_ms for s in batch]),
    )
