"""The pure model of a store: plain dictionaries and the kernel's own functions. What the real stores are held to."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from callsheet.kernel import apply
from callsheet.kernel.errors import DependencyNotFound, DocumentConflict, DuplicateJob, IdempotencyConflict
from callsheet.kernel.job import (
    DELETES_CREDENTIALS,
    RESUMED_FROM,
    RUN_AT,
    Attempt,
    Claim,
    Credentials,
    Delivery,
    Event,
    HoldReason,
    Job,
    NewEvent,
    NewJob,
    OnDependencyFailure,
    OutboxEvent,
    Status,
)
from callsheet.kernel.new_jobs import max_attempts_of
from callsheet.kernel.settlement import OutboxSettlement, Settlement
from callsheet.kernel.workers import silence_of
from callsheet.store.clock import TOLERANCE_MS, ClockStep, Rebased
from callsheet.store.protocol import ClaimRequest, Document, Enqueued, HeartbeatResult, IdempotencyRecord, Settled
from callsheet.store.rows import running_attempt

Leased = TypeVar("Leased", Job, OutboxEvent)


@dataclass
class State:
    """The whole state of a store. Dictionaries keep the order of insertion, which is the order of enqueueing."""

    jobs: dict[str, Job] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    next_position: int = 0
    events: dict[str, list[Event]] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    checkpoints: dict[str, dict[str, str]] = field(default_factory=dict)
    credentials: dict[str, Credentials] = field(default_factory=dict)
    dependents: dict[str, list[str]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    keys: dict[tuple[str, str], IdempotencyRecord] = field(default_factory=dict)
    outbox: dict[str, OutboxEvent] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    marks: int = 0


class Model:
    """The store's verbs on a State. A verb that raises an error leaves the state unchanged."""

    def __init__(self) -> None:
        self.state = State()

    # --- verbs

    def enqueue(self, batch: Sequence[NewJob], *, now: int) -> list[Enqueued]:
        with _Atomic(self):
            return self._enqueue(batch, now)

    def claim(self, request: ClaimRequest, *, now: int) -> list[Job]:
        taken_jobs: list[Job] = []
        for queue in dict.fromkeys(request.queues):
            if queue in self.state.paused or len(taken_jobs) >= request.limit:
                continue
            taken_jobs += self._take(request, queue, now, request.limit - len(taken_jobs))
            if self._line_up_due(queue, now) and len(taken_jobs) < request.limit:
                taken_jobs += self._take(request, queue, now, request.limit - len(taken_jobs))
        return taken_jobs

    def heartbeat(self, claims: Sequence[Claim], *, lease_ms: int, now: int) -> list[HeartbeatResult]:
        beats = []
        for claim in claims:
            job = self.state.jobs.get(claim.job_id)
            held = job is not None and job.status is Status.RUNNING and job.claim_version == claim.claim_version
            if job is not None and held:
                length_ms = lease_ms if job.cancel_requested_at is None else silence_of(lease_ms)
                self._put(job._replace(lease_expires_at=now + length_ms, heartbeat_at=now))
            beats.append(HeartbeatResult(held, held and job is not None and job.cancel_requested_at is not None))
        return beats

    def settle(self, settlements: Sequence[Settlement], *, now: int) -> list[Settled]:
        with _Atomic(self):
            return [self._settle(s, now) for s in settlements]

    def with_expired_lease(self, limit: int, *, now: int) -> list[Job]:
        over = [j for j in self.state.jobs.values() if j.lease_expires_at is not None and j.lease_expires_at < now]
        return sorted(over, key=lambda j: j.lease_expires_at or 0)[:limit]

    def with_failed_dependency(self, limit: int) -> list[Job]:
        return [j for j in self._queued() if j.broken_by is not None][:limit]

    def promote(self, *, now: int) -> int:
        queues = dict.fromkeys(j.queue for j in self._queued() if j.held is HoldReason.DELAY)
        due = sum(self._line_up_due(queue, now) for queue in queues)
        keys = {j.concurrency_key for j in self._queued() if j.held is HoldReason.SLOT}
        return due + sum(self._admit(key) for key in sorted(k for k in keys if k is not None))

    def prune(self, *, ended_before: int, limit: int, now: int) -> int:
        gone = [
            j
            for j in sorted(self.state.jobs.values(), key=lambda j: j.ended_at or 0)
            if j.ended_at is not None
            and (j.ended_at < ended_before or (j.ttl_s is not None and j.ended_at + j.ttl_s * 1000 < now))
        ][:limit]
        s = self.state
        orphans = [
            r
            for r in s.outbox.values()
            if r.ended_at is not None and r.ended_at < ended_before and r.job_id not in s.jobs
        ]
        for row in sorted(orphans, key=lambda r: r.ended_at or 0)[:limit]:
            del s.outbox[row.event_id]
        for job in gone:
            for table in (s.jobs, s.events, s.attempts, s.checkpoints, s.credentials, s.dependents, s.position):
                table.pop(job.job_id, None)
            for row in [r for r in s.outbox.values() if r.job_id == job.job_id and r.ended_at is not None]:
                del s.outbox[row.event_id]
        s.keys = {k: v for k, v in s.keys.items() if v.expires_at > now}
        return len(gone)

    def credentials(self, job_ids: Sequence[str]) -> list[Credentials | None]:
        return [self.state.credentials.get(job_id) for job_id in job_ids]

    def replace_credentials(self, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
        answers = []
        for was, becomes in changes:
            answers.append(self.state.credentials.get(was.job_id) == was)
            if answers[-1]:
                self.state.credentials[was.job_id] = becomes
        return answers

    def credential_keks(self) -> dict[str, int]:
        return dict(Counter(c.envelope.storage_creds_kek_id for c in self.state.credentials.values()))

    def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        return [self.state.jobs.get(job_id) for job_id in job_ids]

    def counts(self) -> dict[str, dict[Status, int]]:
        by_name: dict[str, dict[Status, int]] = {}
        for job in self.state.jobs.values():
            of_queue = by_name.setdefault(job.queue, {})
            of_queue[job.status] = of_queue.get(job.status, 0) + 1
        return by_name

    def events(self, after: Mapping[str, int], limit: int) -> list[Event]:
        return [e for job_id, seq in after.items() for e in self.state.events.get(job_id, [])[seq:][:limit]]

    def attempt_list(self, job_id: str) -> list[Attempt]:
        job = self.state.jobs.get(job_id)
        running = [running_attempt(job)] if job is not None and job.has_started else []
        return self.state.attempts.get(job_id, []) + running

    def idempotency_record(self, requester_id: str, key: str, *, now: int) -> IdempotencyRecord | None:
        record = self.state.keys.get((requester_id, key))
        return record if record is not None and record.expires_at > now else None

    def outbox_claim(self, worker_id: str, *, limit: int, lease_ms: int, now: int) -> list[OutboxEvent]:
        rows = list(self.state.outbox.values())
        expired = [r for r in rows if r.lease_expires_at is not None and r.lease_expires_at < now]
        expired = sorted(expired, key=lambda r: r.lease_expires_at or 0)[:limit]
        due = [r for r in rows if r.status is Delivery.PENDING and r.run_at <= now]
        due = sorted(due, key=lambda r: r.run_at)[: limit - len(expired)]
        for row in (*expired, *due):
            self.state.outbox[row.event_id] = row._replace(
                status=Delivery.DELIVERING,
                worker_id=worker_id,
                claim_version=row.claim_version + 1,
                lease_expires_at=now + lease_ms,
                heartbeat_at=now,
                attempt_count=row.attempt_count + (row.status is Delivery.DELIVERING),
            )
        taken = {r.event_id for r in (*expired, *due)}
        return [r for r in self.state.outbox.values() if r.event_id in taken]

    def outbox_settle(self, settlements: Sequence[OutboxSettlement], *, now: int) -> list[Settled]:
        answers = []
        for s in settlements:
            row = self.state.outbox.get(s.event_id)
            if row is None or row.status is not Delivery.DELIVERING or row.claim_version != s.claim_version:
                answers.append(Settled.STALE)
                continue
            pending = s.status is Delivery.PENDING
            self.state.outbox[s.event_id] = row._replace(
                status=s.status,
                attempt_count=row.attempt_count + s.counts,
                error=s.error or row.error,
                lease_expires_at=None,
                heartbeat_at=None,
                run_at=now + s.delay_ms if pending else row.run_at,
                worker_id=None if pending else row.worker_id,
                ended_at=None if pending else now,
            )
            answers.append(Settled.APPLIED)
        return answers

    def rebase(self, step: ClockStep, mark: Document) -> Rebased:
        if mark.version != self.state.marks:
            raise DocumentConflict(mark.id)
        self.state.marks += 1
        leases = [job for job in self.state.jobs.values() if _is_old(job, step)]
        old_rows = [row for row in self.state.outbox.values() if _is_old(row, step)]
        for job in leases:
            self._put(_moved(job, step.shift_ms))
        for row in old_rows:
            self.state.outbox[row.event_id] = _moved(row, step.shift_ms)
        if step.shift_ms > 0:
            return Rebased(0, len(leases), len(old_rows))
        late = [job for job in self._queued() if self._waits_by_another_clock(job, step)]
        for job in late:
            self._put(job._replace(run_at=job.run_at + step.shift_ms))
        rows = [r for r in self.state.outbox.values() if r.status is Delivery.PENDING and r.run_at > step.after]
        for row in rows:
            self.state.outbox[row.event_id] = row._replace(run_at=row.run_at + step.shift_ms)
        return Rebased(len(late), len(leases), len(old_rows) + len(rows))

    # --- parts

    def _waits_by_another_clock(self, job: Job, step: ClockStep) -> bool:
        request = self.state.checkpoints.get(job.job_id, {}).get(RUN_AT) == str(job.run_at)
        waits = job.held in (HoldReason.DELAY, HoldReason.DEPENDENCY) and job.run_at > step.after
        return waits and job.updated_at >= (step.since or 0) and not request

    def _put(self, job: Job) -> Job:
        self.state.jobs[job.job_id] = job
        return job

    def _queued(self) -> list[Job]:
        return [job for job in self.state.jobs.values() if job.status is Status.QUEUED]

    def _place(self, job_id: str) -> None:
        self.state.next_position += 1
        self.state.position[job_id] = self.state.next_position

    def _record(self, job: Job, event: NewEvent) -> None:
        fact = Event(job.job_id, job.event_seq, job.event_ms, event.type, event.step, job.progress, event.data)
        self.state.events.setdefault(job.job_id, []).append(fact)

    def _enqueue(self, batch: Sequence[NewJob], now: int) -> list[Enqueued]:
        known = [self._known(new, now) for new in batch]
        answers: list[Enqueued] = []
        fresh: list[NewJob] = []
        for new, earlier in zip(batch, known, strict=True):
            active = next(
                (
                    j.job_id
                    for j in self.state.jobs.values()
                    if new.unique_key is not None and j.unique_key == new.unique_key and not j.status.terminal
                ),
                None,
            )
            if earlier is not None:
                answers.append(earlier)
                continue
            if active is not None:
                answers.append(Enqueued(active, created=False))
            else:
                if new.job_id in self.state.jobs:
                    raise DuplicateJob(new.job_id)
                self._create(new, now)
                self._keep_beside(new)
                fresh.append(new)
                answers.append(Enqueued(new.job_id, created=True))
            if new.idempotency is not None:
                k = new.idempotency
                self.state.keys[new.requester_id, k.key] = IdempotencyRecord(
                    k.request_hash, answers[-1].job_id, k.response, now + k.ttl_s * 1000
                )
        for new in fresh:
            self._wait_for(new)
        for key, limit in {n.concurrency_key: n.concurrency_limit for n in fresh}.items():
            if key is not None:
                self.state.limits[key] = limit
                self._admit(key)
        return answers

    def _keep_beside(self, new: NewJob) -> None:
        if new.credentials is not None:
            self.state.credentials[new.job_id] = Credentials(new.job_id, new.requester_id, new.credentials)
        if new.resumed_from is not None:
            self.state.checkpoints[new.job_id] = {RESUMED_FROM: f'"{new.resumed_from}"'}
        if new.run_at is not None:
            self.state.checkpoints.setdefault(new.job_id, {})[RUN_AT] = str(new.run_at)

    def _known(self, new: NewJob, now: int) -> Enqueued | None:
        if new.idempotency is None:
            return None
        record = self.idempotency_record(new.requester_id, new.idempotency.key, now=now)
        if record is None:
            return None
        if record.request_hash != new.idempotency.request_hash:
            raise IdempotencyConflict(new.idempotency.key)
        return Enqueued(record.job_id, created=False, response=record.response)

    def _create(self, new: NewJob, now: int) -> None:
        run_at = now + new.delay_ms if new.run_at is None else new.run_at
        shared = {name: getattr(new, name) for name in Job._fields if name in NewJob._fields}
        blank = dict.fromkeys(Job._fields)
        zero = {"claim_version": 0, "attempt_count": 0, "lease_losses": 0, "refresh_count": 0, "blocked_by": 0}
        job = Job(**blank | shared | zero)._replace(  # type: ignore[arg-type]
            status=Status.QUEUED,
            stage="",
            progress=0.0,
            run_at=run_at,
            max_attempts=max_attempts_of(new),
            created_at=now,
            updated_at=now,
            event_seq=1,
            event_ms=now,
        )
        self._put(job._replace(held=apply.held_after(job, run_at - now)))
        self._place(new.job_id)
        self._record(job, NewEvent("queued", "gateway.enqueue"))

    def _wait_for(self, new: NewJob) -> None:
        blocked_by, broken_by = 0, None
        for parent_id in dict.fromkeys(new.depends_on):
            parent = self.state.jobs.get(parent_id)
            if parent is None:
                raise DependencyNotFound(parent_id)
            failed = parent.status.terminal and parent.status is not Status.SUCCEEDED
            if parent.status is Status.SUCCEEDED or (failed and new.on_dependency_failure is OnDependencyFailure.RUN):
                continue
            broken_by = broken_by or (parent_id if failed else None)
            self.state.dependents.setdefault(parent_id, []).append(new.job_id)
            blocked_by += 1
        if blocked_by:
            job = self.state.jobs[new.job_id]
            self._put(job._replace(held=HoldReason.DEPENDENCY, blocked_by=blocked_by, broken_by=broken_by))

    def _take(self, request: ClaimRequest, queue: str, now: int, limit: int) -> list[Job]:
        line = [j for j in self._queued() if j.queue == queue and j.held is None]
        line = [j for j in line if request.tenants is None or j.requester_id in request.tenants]
        line.sort(key=lambda j: (-j.priority, self.state.position[j.job_id]))
        frames = []
        for job in line[:limit]:
            mine = self._put(
                apply.after_claim(
                    job, worker_id=request.worker_id, now=now, lease_ms=request.lease_ms, start=request.start
                )
            )
            if request.start:
                self._record(mine, NewEvent("running", mine.stage))
            frames.append(mine)
        return frames

    def _line_up_due(self, queue: str, now: int) -> int:
        due = [j for j in self._queued() if j.queue == queue and j.held is HoldReason.DELAY and j.run_at <= now]
        due.sort(key=lambda j: j.run_at)
        for job in due:
            if job.concurrency_key is None:
                self._put(job._replace(held=None))
                self._place(job.job_id)
            else:
                self._put(job._replace(held=HoldReason.SLOT))
        for key in dict.fromkeys(j.concurrency_key for j in due):
            if key is not None:
                self._admit(key)
        return len(due)

    def _admit(self, key: str) -> int:
        jobs = [j for j in self.state.jobs.values() if j.concurrency_key == key]
        inside = [j for j in jobs if j.status is Status.RUNNING or (j.status is Status.QUEUED and j.held is None)]
        waiting = [j for j in jobs if j.status is Status.QUEUED and j.held is HoldReason.SLOT]
        waiting.sort(key=lambda j: -j.priority)
        admitted = waiting[: max(0, self.state.limits[key] - len(inside))]
        for job in admitted:
            self._put(job._replace(held=None))
            self._place(job.job_id)
        return len(admitted)

    def _settle(self, s: Settlement, now: int) -> Settled:
        job = self.state.jobs.get(s.job_id)
        if (
            job is None
            or (job.claim_version, job.status) != (s.claim_version, s.from_status)
            or (s.expired_only and (job.lease_expires_at or now) >= now)
        ):
            return self._repeated(s)
        after = apply.after_settlement(job, s, now)
        self._check_unique(job, after)
        if s.outcome is not None:
            attempt = apply.begin(job, after.updated_at)
            self.state.attempts.setdefault(s.job_id, []).append(
                running_attempt(attempt)._replace(ended_at=after.updated_at, outcome=s.outcome, error=s.error)
            )
        self._put(after)
        if s.status in DELETES_CREDENTIALS:
            self.state.credentials.pop(s.job_id, None)
        if s.event is not None:
            self._record(after, s.event)
        if s.checkpoint is not None:
            self.state.checkpoints.setdefault(s.job_id, {})[s.checkpoint[0]] = s.checkpoint[1]
        for out in s.outbox:
            self.state.outbox[out.event_id] = OutboxEvent(
                out.event_id, s.job_id, job.requester_id, out.endpoint, out.body, Delivery.PENDING,
                now, 0, None, 0, None, None, now, None, None, out.destination,
            )  # fmt: skip
        self._move_on(after, s, now)
        return Settled.APPLIED

    def _move_on(self, after: Job, s: Settlement, now: int) -> None:
        if after.status is Status.RUNNING:
            return
        if after.status is Status.QUEUED:
            self._place(after.job_id)
        if s.follow_ups:
            self._enqueue(s.follow_ups, now)
        if after.status.terminal:
            self._release_dependents(after, now)
        if after.concurrency_key is not None:
            self._admit(after.concurrency_key)

    def _check_unique(self, before: Job, after: Job) -> None:
        if not before.status.terminal or after.unique_key is None:
            return
        others = [j for j in self.state.jobs.values() if j.job_id != after.job_id and not j.status.terminal]
        if any(j.unique_key == after.unique_key for j in others):
            raise DuplicateJob(after.job_id)

    def _release_dependents(self, parent: Job, now: int) -> None:
        waiting = self.state.dependents.get(parent.job_id, [])
        order = list(self.state.jobs)
        for child_id in sorted((c for c in waiting if c in self.state.jobs), key=order.index):
            child = self.state.jobs[child_id]
            if child.status is not Status.QUEUED or child.held is not HoldReason.DEPENDENCY:
                continue
            if parent.status is not Status.SUCCEEDED and child.on_dependency_failure is OnDependencyFailure.CANCEL:
                self._put(child._replace(broken_by=child.broken_by or parent.job_id))
                continue
            waiting.remove(child_id)
            free = child.blocked_by == 1
            held = apply.held_after(child, child.run_at - now) if free else HoldReason.DEPENDENCY
            self._put(child._replace(blocked_by=child.blocked_by - 1, held=held))
            self._place(child_id)
            if held is HoldReason.SLOT and child.concurrency_key is not None:
                self._admit(child.concurrency_key)

    def _repeated(self, s: Settlement) -> Settled:
        jobs = [a for a in self.state.attempts.get(s.job_id, []) if a.claim_version == s.claim_version]
        same = s.outcome is not None and any(a.outcome is s.outcome for a in jobs)
        return Settled.REPEATED if same else Settled.STALE


def _moved(row: Leased, by_ms: int) -> Leased:
    """Return a row whose lease and last beat are moved by a step of the clock."""
    beat = row.heartbeat_at + by_ms if row.heartbeat_at is not None else None
    return row._replace(lease_expires_at=(row.lease_expires_at or 0) + by_ms, heartbeat_at=beat)


def _is_old(row: Job | OutboxEvent, step: ClockStep) -> bool:
    """Whether a lease was alive before a step forward and not renewed since it, or was renewed before a step back."""
    if row.lease_expires_at is None:
        return False
    if step.shift_ms > 0:
        return row.lease_expires_at >= step.before and (row.heartbeat_at or 0) <= step.before
    return (row.heartbeat_at or row.lease_expires_at) > step.after + TOLERANCE_MS


class _Atomic:
    """Puts the state back when the block raises."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._before = copy.deepcopy(self._model.state)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._model.state = self._before
