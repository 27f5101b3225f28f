"""The claim verb: one statement; a few more if it returns no job, or if delayed jobs have become due.

`Floor` is the position where a claim begins to read the line, so that dead index entries cost nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncpg import InvalidTextRepresentationError

from callsheet.kernel.callbacks import claim_callback
from callsheet.kernel.contracts import WITH_CALLBACKS
from callsheet.kernel.errors import StoreError
from callsheet.kernel.job import Claim, Job, OnDependencyFailure, Status
from callsheet.store.protocol import ClaimRequest, HeartbeatResult
from callsheet.store.queries import Queries

from .line import line_up_due

if TYPE_CHECKING:
    from .connection import Database, Row

LAG_S = 1.0
LOOK_EVERY_S = 0.5
FULL_LOOK_EVERY_S = 1.0
FULL_LOOK_SHARE = 50
FULL_LOOK_AT_LEAST_EVERY_S = 10.0
DUE_EVERY_S = 0.1
Q = Queries("callsheet.store.postgres")
RUNNING = Status.RUNNING  # read for every job, and an enum's member takes 45 ns to look up
DUE, POSITION, CONTRACT_AT, QUEUE, PRIORITY = 1, 2, 5, 7, 8  # column numbers in a row of the claim statement
POLICIES: dict[str | None, OnDependencyFailure] = {policy.value: policy for policy in OnDependencyFailure}
POLICIES[None] = OnDependencyFailure.CANCEL  # the statement sends no default values
IN_LINE = "j.held IS NULL AND j.position >= a.floor"  # occurs once in the claim statement
CONTRACT = "    j.contract, j.kind,"  # likewise
TOLD_OF = "no number, for claims are told of in queue "
_CONTRACTS = ", ".join(map(repr, sorted(WITH_CALLBACKS)))
TOLD_APART = f"CASE WHEN j.contract IN ({_CONTRACTS}) THEN ('{TOLD_OF}' || j.queue)::integer::text"
TELLING = Q.claim
CLAIM = Q.claim.replace(CONTRACT, f"    {TOLD_APART} ELSE j.contract END, j.kind,")


class Look(NamedTuple):
    """The lowest live position of a queue, and the end of the whole line."""

    lowest: int | None  # the lowest live position, None if no job is in line
    end: int  # the end of the whole line, all queues
    ended_position: int | None = None  # the position of a job that ended LAG_S ago or earlier, if any


class Floor:
    """A lower bound on the positions of live jobs, for each queue.

    An old snapshot (a forgotten transaction, a dump) keeps vacuum from removing the index entries of claimed jobs, and
    a scan from the start of the line would visit all of them on every claim: 50,000 dead entries cost 6 ms. So after
    the first claim, and from time to time, a look reads the lowest live position of a queue (all priorities, claimed or
    not), and claims begin at that position until the next look. Most looks begin at the floor; looks from zero take at
    most 1/50 of the time.

    New positions come from a sequence and lie above the floor. The exception is a writer that drew its positions before
    a look and commits after it. Therefore the floor also stays below the end of the line LAG_S ago: only later commits
    can be missed, and only until the next look from zero, which lowers the floor again. A look saw that end, or a job
    that ended at that time gives its position as a lower bound, which a new process can read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.told_of: set[str] = set()  # queues in which a claim met a job with claim callbacks
        self._clock = clock
        self._floors: dict[str, int] = {}
        self._next_look: dict[str, float] = {}
        self._next_full: dict[str, float] = {}
        self._ends: deque[tuple[float, int]] = deque()
        self._next_due: dict[str, float] = {}

    def of(self, queue: str) -> int:
        """Return the position to begin at; 0 skips no job."""
        return self._floors.get(queue, 0)

    def wants_look(self, queue: str) -> bool:
        """Return whether a look at the line is due; never at a queue's first claim, which must not wait for a look."""
        if queue not in self._next_look:
            self._next_look[queue] = 0.0
            return False
        return self._clock() >= self._next_look[queue]

    def wants_due(self, queue: str) -> bool:
        """Return whether an empty claim should query due jobs: at most once per 0.1 s, however many claims run."""
        now = self._clock()
        if now < self._next_due.get(queue, 0.0):
            return False
        self._next_due[queue] = now + DUE_EVERY_S
        return True

    def look_from(self, queue: str) -> int:
        """Return the position where a look must begin: the floor, or zero."""
        self._next_look[queue] = self._clock() + LOOK_EVERY_S
        return self.of(queue) if self._clock() < self._next_full.get(queue, 0.0) else 0

    def note_look(self, queue: str, look: Look, took_s: float, *, full: bool = True) -> None:
        """Record a look at the line as of its start, `took_s` ago; `full` if the look began at zero."""
        now = self._clock()
        seen_at = now - took_s
        self._next_look[queue] = now + LOOK_EVERY_S
        if full:
            pause_s = min(FULL_LOOK_SHARE * took_s, FULL_LOOK_AT_LEAST_EVERY_S)
            self._next_full[queue] = now + max(FULL_LOOK_EVERY_S, pause_s)
        self._ends.append((now, look.end))
        while len(self._ends) > 1 and self._ends[1][0] <= seen_at - LAG_S:
            self._ends.popleft()
        settled_position = self._ends[0][1] if self._ends[0][0] <= seen_at - LAG_S else look.ended_position or 0
        self._floors[queue] = settled_position if look.lowest is None else min(look.lowest, settled_position)


"""SQL that makes a plain claim fail when it meets a job with claim callbacks; the error names the queue."""


def _of_tenants(sql: str) -> str:
    """Return a claim statement limited to the jobs of some tenants, by one more condition."""
    return sql.replace(IN_LINE, f"{IN_LINE} AND j.requester_id = ANY ($9::text[])")


TELLING_OF_TENANTS, CLAIM_OF_TENANTS = _of_tenants(TELLING), _of_tenants(CLAIM)


async def claim(db: Database, floor: Floor, request: ClaimRequest, now: int | None) -> list[Job]:
    """Fill the request queue by queue; due jobs join the end of the line, a short claim tries once more."""
    queues = list(dict.fromkeys(request.queues))
    jobs: list[Job] = []
    while queues and len(jobs) < request.limit:
        try:
            rows, due = await _take(db, floor, rest := _rest(request, queues, jobs), now, look_for_due=True)
            jobs += [_claimed_job(row, request) for row in rows]
            if due is None:
                break
            before = set(queues[: due - 1])
            if sum(row[QUEUE] in before for row in rows) >= rest.limit:
                break
            jobs += await _line_up_and_take(db, floor, rest._replace(queues=(queues[due - 1],)), len(rows), now)
        except StoreError:
            if jobs:
                break  # these jobs are claimed and committed: return them to the worker
            raise
        queues = queues[due:]
    return jobs


def _rest(request: ClaimRequest, queues: list[str], jobs: list[Job]) -> ClaimRequest:
    return request._replace(queues=tuple(queues), limit=request.limit - len(jobs))


async def _line_up_and_take(
    db: Database, floor: Floor, request: ClaimRequest, taken_count: int, now: int | None
) -> list[Job]:
    lined_up = await db.transact(lambda session: line_up_due(session, request.queues[0], now))
    if not lined_up or taken_count >= request.limit:
        return []
    rest = request._replace(limit=request.limit - taken_count)
    rows, _ = await _take(db, floor, rest, now, look_for_due=False)
    return [_claimed_job(row, request) for row in rows]


async def _take(
    db: Database, floor: Floor, request: ClaimRequest, now: int | None, *, look_for_due: bool
) -> tuple[list[Row], int | None]:
    """Claim ready jobs in order; return rows and the number (from 1) of a queue with due jobs, None without one."""
    queues = request.queues
    for queue in queues:
        if floor.wants_look(queue):
            await _look(db, floor, queue, now)
    floors = [floor.of(queue) for queue in queues]
    rows = await _claim(db, floor, request, now, look_for_due=look_for_due)
    due: int | None = None
    always = request.thorough or now is not None or len(queues) > 1
    if not rows and look_for_due and (always or floor.wants_due(queues[0])):
        ((due, passed_over),) = await db.fetch(Q.due, now, queues, floors)
        if passed_over:
            rows = await _claim(db, floor, request, now, look_for_due=look_for_due)
    if not rows:
        return [], due
    due = rows[0][DUE]
    rows.sort(key=itemgetter(POSITION))
    rows.sort(key=itemgetter(PRIORITY), reverse=True)
    if len(queues) > 1:
        rows.sort(key=lambda row: queues.index(row[QUEUE]))
    return rows, due


async def _claim(
    db: Database, floor: Floor, request: ClaimRequest, now: int | None, *, look_for_due: bool
) -> list[Row]:
    """Run the claim statement; for queues with claim callbacks, write claims and callbacks in one transaction.

    Other queues never pay for the transaction: a queue is marked as soon as a claim meets a job with claim callbacks.
    """
    floors = [floor.of(queue) for queue in request.queues]
    rest = (request.limit, request.worker_id, request.lease_ms, int(request.start), look_for_due)
    parameters = (now, request.queues, floors, *rest)
    of_tenants = () if request.tenants is None else (sorted(request.tenants),)
    while floor.told_of.isdisjoint(request.queues):
        try:
            return await db.fetch(CLAIM_OF_TENANTS if of_tenants else CLAIM, *parameters, *of_tenants)
        except StoreError as error:
            if (queue := _queue_told_of(error, request.queues)) is None:
                raise
            floor.told_of.add(queue)
    sql = TELLING_OF_TENANTS if of_tenants else TELLING
    return await db.transact(lambda session: _claim_and_tell(session, sql, (*parameters, *of_tenants), request))


async def _claim_and_tell(session: Any, sql: str, parameters: tuple[object, ...], request: ClaimRequest) -> list[Row]:
    rows: list[Row] = await session.fetch(sql, *parameters)
    jobs = [job for row in rows if row[CONTRACT_AT] in WITH_CALLBACKS and (job := _claimed_job(row, request))]
    callbacks = [(callback, job) for job in jobs if (callback := claim_callback(job)) is not None]
    if callbacks:
        columns = [(c.event_id, j.job_id, j.requester_id, c.endpoint, c.body, c.destination) for c, j in callbacks]
        await session.fetch(Q.tell_claims, rows[0][0], *map(list, zip(*columns, strict=True)))
    return rows


def _queue_told_of(error: StoreError, queues: Sequence[str]) -> str | None:
    """Return the queue whose claim callbacks made a plain claim fail; None for any other error."""
    if not isinstance(error.__cause__, InvalidTextRepresentationError):
        return None
    message = str(error.__cause__)
    return max((queue for queue in queues if f"{TOLD_OF}{queue}" in message), key=len, default=None)


def _claimed_job(row: Row, request: ClaimRequest) -> Job:
    """Return the job after its claim, from a row that omits the request's own fields and default values.

    Fields are named one by one, because slices of a row take two thirds longer.
    """
    (
        now, _, _, job_id, requester_id, contract, kind, queue, priority, stage, progress, run_at, payload, result,
        error, claim_version, attempt_count, max_attempts, lease_losses, refresh_count, retry, created_at, started_at,
        cancel_requested_at, cancel_reason, unique_key, concurrency_key, blocked_by, broken_by, on_failure, ttl_s,
        correlation_id, event_seq, event_ms,
    ) = row  # fmt: skip
    fields = (
        job_id, requester_id or "", contract, kind, queue, priority, RUNNING, stage or "", None,
        progress or 0.0, created_at if run_at is None else run_at, payload, result, error, request.worker_id,
        claim_version or 1, now + request.lease_ms, now, 1 if attempt_count is None else attempt_count, max_attempts,
        lease_losses or 0, refresh_count or 0, retry or "", created_at, max(now, event_ms), started_at,
        event_ms if request.start else None, None, cancel_requested_at, cancel_reason, unique_key, concurrency_key,
        blocked_by or 0, broken_by, POLICIES[on_failure], ttl_s, correlation_id or "", event_seq or 2, event_ms,
    )  # fmt: skip
    return tuple.__new__(Job, fields)


async def _look(db: Database, floor: Floor, queue: str, now: int | None) -> None:
    begin, started_at = floor.look_from(queue), time.perf_counter()
    (row,) = await db.fetch(Q.line_start, queue, begin, now, int(LAG_S * 1000))
    floor.note_look(queue, Look(*row), time.perf_counter() - started_at, full=begin == 0)


async def heartbeat(
    db: Database, sql: str, claims: Sequence[Claim], now: int | None, *lengths_ms: int
) -> list[HeartbeatResult]:
    """Extend the leases that are still held, in one statement; sorted by id, against deadlocks."""
    distinct = sorted(set(claims))
    rows = await db.fetch(sql, now, [c[0] for c in distinct], [c[1] for c in distinct], *lengths_ms) if distinct else []
    held = {(row[0], row[1]): row[2] for row in rows}
    return [
        HeartbeatResult(held=True, cancel_requested=held[c]) if c in held else HeartbeatResult(held=False)
        for c in claims
    ]
