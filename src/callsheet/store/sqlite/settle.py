"""The settle verb inside a SQLite transaction: fenced moves with everything that hangs on them.

The usual end of an attempt goes in groups with few statements (`_end_all`); every other move goes one by one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from callsheet.kernel.job import Status
from callsheet.store.protocol import Settled
from callsheet.store.queries import Queries

from .connection import refusing_duplicates
from .enqueue import enqueue
from .line import admit, next_positions, release_dependents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.kernel.settlement import Settlement

    from .connection import Db

Q = Queries("callsheet.store.sqlite")


def settle(db: Db, settlements: Sequence[Settlement], now: int) -> list[Settled]:
    """Apply settlements in order, each if its fence holds."""
    answers: list[Settled] = []
    group: dict[str, Settlement] = {}
    for s in settlements:
        usual = _is_usual_end(s)
        if group and (not usual or s.job_id in group):
            answers += _end_all(db, group, now)
            group = {}
        if usual:
            group[s.job_id] = s
        else:
            answers.append(_settle_one(db, s, now))
    return answers + _end_all(db, group, now) if group else answers


def _is_usual_end(s: Settlement) -> bool:
    return (
        s.status.terminal
        and s.from_status is Status.RUNNING
        and s.event is not None
        and s.outcome is not None
        and (s.error is not None or s.status is Status.SUCCEEDED)
        and s.stage is None
        and s.cancel_reason is None
        and not (s.starts or s.lease_lost or s.expired_only or s.outbox or s.follow_ups or s.checkpoint)
    )


def _end_all(db: Db, group: dict[str, Settlement], now: int) -> list[Settled]:
    """End the attempts of distinct jobs: one look, three writes for all that still hold their claim."""
    ids = json.dumps(list(group))
    rows = db.execute(Q.running, (ids,)).fetchall()
    if db.execute(Q.waited_for, (ids,)).fetchone() or any(row[-1] is not None for row in rows):
        return [_settle_one(db, s, now) for s in group.values()]  # who comes into line next depends on the order
    moves, events, attempts = {}, [], []
    for job_id, seq, version, event_seq, event_ms, progress, attempt, worker_id, begun_at, _ in rows:
        s = group[job_id]
        if s.claim_version != version or s.event is None or s.outcome is None:
            continue
        at = max(now, event_ms)
        after = max(progress, s.progress or 0.0)
        error = None if s.status is Status.SUCCEEDED else s.error
        moves[job_id] = (seq, version, s.status.value, at, event_seq + 1, after, s.result, error)
        events.append((job_id, event_seq + 1, at, s.event.type, s.event.step, after, s.event.data))
        attempts.append((job_id, version, attempt, worker_id, begun_at, at, s.outcome.value, s.error))
    db.executemany(Q.end, list(moves.values()))
    db.executemany(Q.event, events)
    db.executemany(Q.attempt, attempts)
    return [Settled.APPLIED if s.job_id in moves else _repeated(db, s) for s in group.values()]


def _settle_one(db: Db, s: Settlement, now: int) -> Settled:
    """Apply one settlement if its fence holds."""
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
        return _repeated(db, s)
    event_seq, event_ms, progress, key, requester_id = row
    if s.event is not None:
        db.execute(Q.event, (s.job_id, event_seq, event_ms, s.event.type, s.event.step, progress, s.event.data))
    if s.checkpoint is not None:
        db.execute(Q.keep_checkpoint, (s.job_id, *s.checkpoint))
    for out in s.outbox:
        db.execute(Q.add_outbox, (out.event_id, s.job_id, requester_id, out.endpoint, out.body, now))
    if s.status is not Status.RUNNING:
        if s.follow_ups:
            enqueue(db, s.follow_ups, now)
        if s.status.terminal:
            release_dependents(db, s.job_id, s.status, now)
        if key is not None:
            admit(db, key)
    return Settled.APPLIED


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
    )


def _repeated(db: Db, s: Settlement) -> Settled:
    """Whether this claim's attempt has ended with the same outcome before."""
    if s.outcome is None:
        return Settled.STALE
    row = db.execute(Q.repeated, (s.job_id, s.claim_version)).fetchone()
    return Settled.REPEATED if row and row[0] == s.outcome.value else Settled.STALE
