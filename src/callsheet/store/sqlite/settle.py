"""The settle verb inside a SQLite transaction: fenced moves with all their dependent rows.

Usual ends of attempts go in groups with few statements (`_end_all`, 9 µs a job); other moves take a settlement each
(some 40 µs). Statements that take a row each from `executemany` took 14 µs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from callsheet.kernel.job import DELETES_CREDENTIALS, Status
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import Settled
from callsheet.store.queries import Queries

from .connection import Db, refusing_duplicates
from .enqueue import enqueue
from .line import admit, next_positions, release_dependents
from .side_records import forget_credentials, outbox_row

Q = Queries("callsheet.store.sqlite")
_BODY = slice(Settlement._fields.index("from_status"), Settlement._fields.index("result"))
_REST = slice(Settlement._fields.index("error"), None)
_ORDINARY = Settlement._fields.index("lease_lost")
_TAIL = Settlement("", 0, Status.RUNNING, Status.RUNNING)[_ORDINARY:]


def settle(db: Db, settlements: Sequence[Settlement], now: int) -> list[Settled]:
    """Apply settlements in order, each if its fence holds."""
    answers: list[Settled] = []
    for group in _alike(settlements):
        if len(group) == 1 or not _end_all(db, group, now):
            answers += [_settle_one(db, s, now) for s in group]
        else:
            answers += [Settled.APPLIED] * len(group)
    return answers


def _alike(settlements: Sequence[Settlement]) -> Iterator[list[Settlement]]:
    """Yield groups of usual ends of different jobs, equal but for job and result; other settlements come singly."""
    group: list[Settlement] = []
    shared: tuple[Any, Any] | None = None  # the equal fields of a group that may grow
    ids: set[str] = set()
    for s in settlements:
        body, rest, job_id = s[_BODY], s[_REST], s[0]
        if group and (shared is None or body != shared[0] or rest != shared[1] or job_id in ids):
            yield group
            group, ids = [], set()
        if not group:
            shared = (body, rest) if _is_usual_end(s) else None
        group.append(s)
        ids.add(job_id)
    if group:
        yield group


def _is_usual_end(s: Settlement) -> bool:
    """Return whether an attempt ends with its event and nothing else to write, as most settlements do."""
    return (
        s[_ORDINARY:] == _TAIL
        and s.status.terminal
        and s.from_status is Status.RUNNING
        and s.event is not None
        and s.outcome is not None
        and s.stage is None
        and not s.starts
        and (s.error is not None or s.status is Status.SUCCEEDED)
    )


def _end_all(db: Db, group: list[Settlement], now: int) -> bool:
    """End all attempts of a group with three statements; return False, with nothing written, if a job needs more."""
    first = group[0]
    if first.event is None or first.outcome is None:
        return False
    ends = json.dumps([(s.job_id, s.claim_version, s.result) for s in group], ensure_ascii=False)
    if db.execute(Q.waited_for, (ends,)).fetchone():
        return False
    db.execute("SAVEPOINT ends")
    db.execute(Q.end_attempts, (ends, now, first.outcome.value, first.error))
    complete: bool = db.execute(Q.changes).fetchone()[0] == len(group)
    if complete:
        progress = first.progress or 0.0
        error = None if first.status is Status.SUCCEEDED else first.error
        db.execute(Q.note_ends, (ends, now, *first.event, progress))
        db.execute(Q.end, (ends, now, first.status.value, progress, error))
        if first.status in DELETES_CREDENTIALS:
            forget_credentials(db, [s.job_id for s in group])
    else:
        db.execute("ROLLBACK TO ends")
    db.execute("RELEASE ends")
    return complete


def _settle_one(db: Db, s: Settlement, now: int) -> Settled:
    """Apply one settlement if its fence holds; if its callbacks exist already, it was applied before."""
    if not s.outbox:
        return _apply(db, s, now)
    untold, is_repeat = _untold(db, s)
    if not is_repeat:
        return _apply(db, untold, now)
    return Settled.REPEATED if db.execute(Q.holds, (*s[:2], s.from_status.value)).fetchone() else Settled.STALE


def _apply(db: Db, s: Settlement, now: int) -> Settled:
    if s.outcome is not None:
        db.execute(
            Q.end_attempt,
            (
                s.job_id,
                s.claim_version,
                s.from_status,
                s.starts,
                now,
                s.outcome.value,
                s.error,
                s.expired_only,
            ),
        )
    with refusing_duplicates("an active job holds this key; let that one end first"):
        row = db.execute(Q.settle, _parameters(db, s, now)).fetchone()
    if row is None:
        return _repeat_or_stale(db, s)
    event_seq, event_ms, progress, key, requester_id = row
    if s.event is not None:
        db.execute(Q.event, (s.job_id, event_seq, event_ms, s.event.type, s.event.step, progress, s.event.data))
    if s.checkpoint is not None:
        db.execute(Q.keep_checkpoint, (s.job_id, *s.checkpoint))
    for out in s.outbox:
        db.execute(Q.add_outbox, outbox_row(out, s.job_id, requester_id, out.body_at(max(now, event_ms)), now))
    if s.status is not Status.RUNNING:
        if s.follow_ups:
            enqueue(db, s.follow_ups, now)
        if s.status.terminal:
            _lay_to_rest(db, s, now)
        if key is not None:
            admit(db, key)
    return Settled.APPLIED


def _untold(db: Db, s: Settlement) -> tuple[Settlement, bool]:
    """Return the settlement without callbacks that exist already, and whether an earlier call applied it."""
    ids = json.dumps([out.event_id for out in s.outbox])
    existing = {event_id for (event_id,) in db.execute(Q.outbox_known, (s.job_id, ids)).fetchall()}
    left = tuple(out for out in s.outbox if out.event_id not in existing)
    return s._replace(outbox=left), not left and s.outcome is None


def _lay_to_rest(db: Db, s: Settlement, now: int) -> None:
    release_dependents(db, s.job_id, s.status, now)
    if s.status in DELETES_CREDENTIALS:
        forget_credentials(db, [s.job_id])


def _parameters(db: Db, s: Settlement, now: int) -> tuple[object, ...]:
    return (
        s.job_id,
        s.claim_version,
        s.from_status.value,
        s.status.value,
        now,
        s.stage,
        s.progress or 0.0,
        int(s.starts),
        int(s.refund),
        int(s.lease_lost),
        int(s.refreshed),
        s.result,
        s.error,
        s.fresh_attempts,
        s.cancel_reason,
        s.delay_ms,
        next_positions(db, 1) if s.status is Status.QUEUED else None,
        int(s.event is not None),
        int(s.expired_only),
        s.silence_ms,
    )


def _repeat_or_stale(db: Db, s: Settlement) -> Settled:
    """Return REPEATED if this claim's attempt has ended with the same outcome before, else STALE."""
    if s.outcome is None:
        return Settled.STALE
    row = db.execute(Q.repeated, (s.job_id, s.claim_version)).fetchone()
    return Settled.REPEATED if row and row[0] == s.outcome.value else Settled.STALE
