"""The store protocol: verbs for batches, with numbered guarantees. A store applies writes and owns the clock.

Every verb takes `now` (milliseconds) for tests; None means the store's own clock. Guarantees are numbered S1…;
`tests/conformance` has a test for each on every store, and `docs/guarantees.md` names the tests. `outbox.py`,
`audit.py` and `clock.py` have the other parts of the protocol.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from callsheet.kernel.job import Attempt, Claim, Credentials, Event, Job, Json, NewJob, Status
from callsheet.kernel.settlement import Settlement

from .audit import AuditVerbs
from .clock import ClockVerbs
from .outbox import OutboxVerbs

if TYPE_CHECKING:
    from .hints import Door


class Enqueued(NamedTuple):
    """The result of one new job. `created` is False if a key belongs to an earlier job; `job_id` is that job's id."""

    job_id: str
    created: bool
    response: Json | None = None


class ClaimRequest(NamedTuple):
    """A worker's request for up to `limit` jobs, with queues in order of preference.

    `tenants` limits the claim to jobs of these requesters, None takes all; `""` is a job without a requester. A
    `thorough` request sees every due job; other requests may see a job up to a tenth of a second later.
    """

    worker_id: str
    queues: tuple[str, ...] = ("default",)
    limit: int = 1
    lease_ms: int = 30_000
    start: bool = True
    tenants: frozenset[str] | None = None
    thorough: bool = False


class HeartbeatResult(NamedTuple):
    """The result of one heartbeat: whether the worker holds the claim, and whether to cancel the job."""

    held: bool
    cancel_requested: bool = False


class Settled(StrEnum):
    """The result of a settlement. `REPEATED`: this claim's attempt had already ended with the same outcome."""

    APPLIED = "applied"
    REPEATED = "repeated"
    STALE = "stale"


class JobQuery(NamedTuple):
    """A filter over jobs, newest first. `requester_id` None is for operators only."""

    requester_id: str | None = None
    statuses: tuple[Status, ...] = ()
    kind: str | None = None
    queue: str | None = None
    contract: str | None = None
    created_from: int | None = None
    created_to: int | None = None
    limit: int = 50
    cursor: str | None = None
    text: str | None = None
    """Text to find in a job's id, kind, correlation id, payload or error, ignoring the case of ASCII letters."""
    scan_limit: int | None = None
    """About how many jobs to scan for a page, which may then hold fewer than `limit` and still have a cursor. A
    store may scan more jobs if an index finds them."""
    has_begun: bool | None = None
    """Of open jobs, keep those with an attempt ever begun (True) or without one (False); ended jobs pass."""

    @property
    def needle(self) -> str | None:
        """The search text in ASCII lower case; other letters stay, since the stores lower them differently."""
        return "".join(c.lower() if c.isascii() else c for c in self.text) if self.text else None

    @property
    def ended_badly(self) -> bool:
        """Whether the query is for failed jobs and dead letters alone, which stores list separately."""
        return bool(self.statuses) and set(self.statuses) <= {Status.FAILED, Status.DEAD_LETTER}


class Backlog(NamedTuple):
    """A queue's waiting and running work: jobs ready to be claimed, jobs held back, and running jobs.

    `oldest_ms` is the longest wait, from `max(created_at, run_at)`, among the next jobs (the first ready job of each
    priority, the first due job); None if no job is ready.
    """

    ready: int = 0
    held: int = 0
    running: int = 0
    oldest_ms: int | None = None


class EndedCount(NamedTuple):
    """How many jobs of a kind ended with this status within the time span that begins at `since`."""

    since: int
    kind: str
    status: Status
    jobs: int


class WorkerLoad(NamedTuple):
    """A worker with running jobs: the number of jobs, and the time of the worker's latest heartbeat."""

    worker_id: str
    running: int
    heartbeat_at: int | None


class ReadyJob(NamedTuple):
    """A job that a claim could take now, with the `claim_version` of its last claim; 0 if it was never claimed."""

    job_id: str
    queue: str
    claim_version: int


class ReadyPage(NamedTuple):
    """A page of ready jobs and the cursor of the next page, None at the end."""

    jobs: list[ReadyJob]
    cursor: str | None


class JobPage(NamedTuple):
    """A page of jobs and the cursor of the next page, None at the end."""

    jobs: list[Job]
    cursor: str | None


class IdempotencyRecord(NamedTuple):
    """The stored record of an idempotency key."""

    request_hash: str
    job_id: str
    response: Json
    expires_at: int


class Document(NamedTuple):
    """A small JSON record of the system itself: an API key, a schedule, an endpoint. `version` guards changes."""

    kind: str
    id: str
    body: Json
    version: int


class Hint(NamedTuple):
    """A lossy wake-up after a possible change. Empty sets mean anything; `*` among the jobs means any job."""

    queues: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()


class Store(OutboxVerbs, AuditVerbs, ClockVerbs, Protocol):
    """The verbs that SQLite, PostgreSQL and Redis all serve. No verb is optional."""

    durability: str
    """One line for the log: how durable an acknowledged write is."""
    batch: int
    """The best number of jobs to claim or to settle at once; larger batches are no faster."""
    streams: bool
    """True if the store's ready jobs already are in a Redis stream, so that no second stream is needed."""

    async def open(self) -> Self:
        """Connect and check the schema version; raises SchemaMismatch or StoreUnavailable."""

    async def close(self) -> None:
        """Release all connections and tasks. May be called twice."""

    async def migrate(self) -> list[str]:
        """Migrate the schema to this program's version; return the names of the migrations that ran.

        Many processes may migrate a database at once.
        """

    async def now(self) -> int:
        """Return the store's time. S1: the store's clock decides leases and schedules, never the caller's."""

    async def enqueue(
        self,
        batch: Sequence[NewJob],
        *,
        depth_limit: int | None = None,
        quotas: Mapping[str, int] | None = None,
        now: int | None = None,
    ) -> list[Enqueued]:
        """Create jobs, their first event and their idempotency rows, all or none; answers after commit.

        S2: an acknowledged job is never lost, and a refused batch leaves nothing.
        S3: one job per `(requester_id, idempotency key)`; the same hash answers with the first response, another hash
            raises IdempotencyConflict; an expired key is free.
        S4: at most one queued or running job per unique key; a second enqueue answers with the first job's id.
        S5: a job with `depends_on` is not claimable until each dependency succeeded (or ended, by the job's policy); an
            unknown dependency raises DependencyNotFound. An id in use raises DuplicateJob.
        S42: `resumed_from` is written with its job or neither is; reads show it as the checkpoint `~resumed_from`. A
            requested `run_at` likewise, as `~run_at`: a step of the clock leaves `run_at` as it is.
        S26: with `depth_limit`, a batch that would leave a queue with more queued jobs than the limit raises QueueFull;
            jobs found by a key do not count. Simultaneous batches may pass the limit together on PostgreSQL.
        S37: with `quotas`, a batch that would leave a requester with more queued jobs than its quota raises
            QuotaExceeded; jobs found by a key do not count. Exact on every store, also for simultaneous batches of
            several processes; jobs that return to the queue by themselves (a retry) are counted, not refused.
        """

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        """Take up to `limit` jobs, in one round trip if the queues have that many.

        S6: of many claimers, one gets a job; each claim has a new `claim_version` and a lease on the store's clock.
        S7: queues in the request's order; within a queue, higher priority first, then in order of becoming ready.
        S8: no job from a paused queue, no job before its `run_at`.
        S9: never more running jobs of a concurrency key than its limit.
        S43: with `tenants`, exactly the jobs of these requesters, in the same order, however many other jobs precede
            them; other requesters' jobs stay unchanged. The claim reads no ended job.
        """

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, silence_ms: int | None = None, now: int | None = None
    ) -> list[HeartbeatResult]:
        """Extend many leases in one write.

        S10: a stale claim extends nothing, and its answer says so.
        S45: the lease of a job that is to be cancelled ends after `silence_ms`: by default two heartbeats, two thirds
            of a lease. A cancellation shortens the lease to that time after the last heartbeat.
        """

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """Apply moves in order, each whole or not at all.

        S11: a settlement whose fence does not match changes nothing: no row, no event, no outbox, no follow-up.
        S12: state, event, attempt, outbox rows, checkpoint and follow-up jobs are one write.
        S13: events of a job have no gaps and rise in commit order; their time never falls.
        S14: progress never falls; timestamps are in order.
        S15: `expired_only` requires an expired lease; a heartbeat in between wins.
        S16: repeating an applied settlement answers REPEATED and changes nothing. The store recognises a repeat by its
            attempt's outcome, or by its outbox rows: existing events are not written again.
        """

    async def with_expired_lease(self, limit: int, *, now: int | None = None) -> list[Job]:
        """Return running jobs whose lease is over, longest first. S17: only `lease_expires_at` decides."""

    async def running_of(self, worker_id: str, limit: int) -> list[Job]:
        """Return a worker's running jobs. S30: a job with an expired lease is listed until housekeeping takes it."""

    async def ready_jobs(self, limit: int, *, cursor: str | None = None) -> ReadyPage:
        """Return ready jobs, by queue and in claim order, without their payloads; reads no other jobs.

        S31: a job that is ready during a whole walk is listed once; held, running and ended jobs are not listed.
        """

    async def with_failed_dependency(self, limit: int) -> list[Job]:
        """Return queued jobs with a failed dependency. S18: each job is listed until a settlement moves it."""

    async def promote(self, *, now: int | None = None) -> int:
        """Make due and unblocked jobs ready, also jobs that a crash left behind; return how many."""

    async def prune(self, *, ended_before: int, limit: int, now: int | None = None) -> int:
        """Delete ended jobs with all their rows, expired keys and delivered outbox rows; return how many jobs.

        S19: only jobs that ended before `ended_before`, or ended longer ago than their own `ttl_s`.
        """

    async def delete(self, claims: Sequence[Claim]) -> int:
        """Delete ended jobs with all their rows, except undelivered callbacks; return how many jobs.

        S32: a job that has not ended, or was claimed again after the caller's read, stays unchanged.
        """

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """Return jobs by id, in the order of `job_ids`; None for an unknown id."""

    async def find(self, query: JobQuery) -> JobPage:
        """Return jobs by filter, newest first, in stable pages; the last page has no cursor.

        S20: a requester sees only its own jobs.
        """

    async def counts(self) -> dict[str, dict[Status, int]]:
        """Return how many jobs of each status each queue has."""

    async def queued_of(self, requester_ids: Sequence[str], *, most: int) -> list[int]:
        """Return how many queued jobs each requester has, held jobs too, in the same order; each count stops at `most`.

        S38: the number that `enqueue` compares with its quotas.
        """

    async def backlog(self, *, now: int | None = None) -> dict[str, Backlog]:
        """Return waiting and running work by queue, without queues that have neither. Reads no ended job.

        S25: a queued job is ready if a claim would take it (in the queue's line, or delayed and due; a pause does not
            matter), else held; the age is by the store's clock and never below 0.
        """

    async def ended_counts(self, *, since: int, span_ms: int, requester_id: str | None = None) -> list[EndedCount]:
        """Return counts of jobs that ended since a moment, by span (of `span_ms`), kind and status; reads no others.

        S36: with a requester, only the requester's jobs; `dead_letters` and `worker_loads` likewise. A job that
            returned to the queue has not ended.
        """

    async def dead_letters(self, requester_id: str | None = None) -> dict[str, int]:
        """Return the number of dead letters of each kind; reads only jobs that ended badly."""

    async def worker_loads(self, requester_id: str | None = None) -> list[WorkerLoad]:
        """Return the workers that have running jobs, ordered by worker id; reads no other jobs."""

    async def attempts(self, job_id: str) -> list[Attempt]:
        """Return all executions of a job, oldest first, the running attempt included."""

    async def checkpoints(self, job_id: str) -> dict[str, Json]:
        """Return the results of a job's completed steps, by name."""

    async def events(self, after: Mapping[str, int], limit: int) -> list[Event]:
        """Return events of many jobs, each after a `seq`, in order within a job, at most `limit` of each job.

        S21: a reader can resume from any event for as long as the job is kept.
        """

    def hints(self) -> AsyncIterator[Hint]:
        """Yield wake-ups from this and other processes; hints may be lost, doubled or late."""

    async def listen_for(self, job_ids: Collection[str]) -> None:
        """From now on give hints for these jobs alone when another program writes their events.

        Such hints may be lost. Stores without foreign writers do nothing.
        """

    async def door(self, worker_id: str, queues: Sequence[str]) -> Door:
        """Return the door where this worker waits for jobs that other programs enqueue in these queues."""

    async def idempotency_record(
        self, requester_id: str, key: str, *, now: int | None = None
    ) -> IdempotencyRecord | None:
        """Return the stored record of an idempotency key, None if the key is unknown or expired."""

    async def pause(self, queue: str, *, paused: bool) -> None:
        """Pause or resume claims from a queue; running jobs continue. The queue need not exist yet."""

    async def paused_queues(self) -> frozenset[str]:
        """Return the paused queues."""

    async def credentials(self, job_ids: Sequence[str]) -> list[Credentials | None]:
        """Return the encrypted credentials of jobs, in the same order; no other verb returns credentials.

        S27: credentials are written with their job, in the same transaction, or neither is. They are deleted in the
            write that ends the job as succeeded or canceled, else when the job is pruned.
        """

    async def replace_credentials(self, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
        """Replace the first of each pair by the second unless the stored ones changed; return which were replaced.

        S28: of two writers one wins (version and wrapped key are compared), the other changes nothing; deleted
            credentials are not created again.
        """

    async def credentials_under(self, kek_id: str, *, after: str = "", limit: int = 100) -> list[Credentials]:
        """Return credentials whose key this KEK wraps. S29: ordered by job id, after `after`, so that a walk ends."""

    async def credential_keks(self) -> dict[str, int]:
        """Return how many credentials each KEK wraps, without KEKs that wrap none."""

    async def put_document(self, document: Document) -> Document:
        """Write a document whose stored version is `document.version`, 0 for a new document.

        S24: of two writers with the same version one wins, the other gets DocumentConflict.
        """

    async def documents(self, kind: str, id: str | None = None) -> list[Document]:
        """Return documents of a kind, ordered by id; an id that contains a NUL matches no document."""

    async def delete_document(self, kind: str, id: str) -> bool:
        """Delete a document; return False if there was none."""
