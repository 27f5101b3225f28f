"""The store protocol: batch-first verbs with numbered guarantees. A store is dumb: it applies, and owns time.

Every verb takes `now` (milliseconds) for tests; None means the store's own clock. Guarantees are numbered S1…;
`tests/conformance` has a test for each on every store, and `docs/guarantees.md` names them. The rest is in `outbox.py`,
`audit.py` and `clock.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from callsheet.kernel.job import Json, Status

from .audit import AuditVerbs
from .clock import ClockVerbs
from .outbox import OutboxVerbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence
    from types import TracebackType

    from callsheet.kernel.job import Attempt, Claim, Credentials, Event, Job, NewJob
    from callsheet.kernel.settlement import Settlement


class Enqueued(NamedTuple):
    """What became of one new job. `created` is False when a key found an earlier job, whose id this is."""

    job_id: str
    created: bool
    response: Json | None = None


class ClaimRequest(NamedTuple):
    """What a worker asks for: up to `limit` jobs, queues in order of preference.

    `tenants` are the requesters whose jobs it may have, None for all; `""` is a job that belongs to nobody. A
    `thorough` one sees every job that is due; another may see one up to a tenth of a second later.
    """

    worker_id: str
    queues: tuple[str, ...] = ("default",)
    limit: int = 1
    lease_ms: int = 30_000
    start: bool = True
    tenants: frozenset[str] | None = None
    thorough: bool = False


class Beat(NamedTuple):
    """The answer to one heartbeat: whether the claim is held, and whether its job is to be cancelled."""

    held: bool
    cancel_requested: bool = False


class Settled(StrEnum):
    """What became of one settlement. `REPEATED`: this claim's attempt had ended with the same outcome before."""

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
    """Stands in a job's id, kind, correlation id, payload or error; the case of ASCII letters does not matter."""
    look: int | None = None
    """About so many jobs are looked at for a page, which may then hold fewer than `limit` and still have a cursor. What
    a store finds by an index may be more."""
    begun: bool | None = None
    """Of jobs that have not ended, those alone of which an attempt has ever begun, or (False) has not."""

    @property
    def needle(self) -> str | None:
        """The text as stores look for it: small letters, of ASCII alone, since their own ideas of others differ."""
        return "".join(c.lower() if c.isascii() else c for c in self.text) if self.text else None

    @property
    def ended_badly(self) -> bool:
        """Whether it is about failed jobs and dead letters alone, of which stores have a list of their own."""
        return bool(self.statuses) and set(self.statuses) <= {Status.FAILED, Status.DEAD_LETTER}


class Backlog(NamedTuple):
    """What a queue has before it: jobs that could be claimed now, jobs held back, and jobs that run.

    `oldest_ms` is how long the longest waiting of those that are next (the first in line of each priority, the first
    due) has waited, from `max(created_at, run_at)`; None when none is ready.
    """

    ready: int = 0
    held: int = 0
    running: int = 0
    oldest_ms: int | None = None


class Ending(NamedTuple):
    """How many jobs of a kind ended so within the span of time that begins at `since`."""

    since: int
    kind: str
    status: Status
    jobs: int


class Load(NamedTuple):
    """A worker that has jobs: how many, and when it was last heard of any of them."""

    worker_id: str
    running: int
    heartbeat_at: int | None


class InLine(NamedTuple):
    """A job that a claim could take now, with the `claim_version` of its last claim; 0 when it had none."""

    job_id: str
    queue: str
    claim_version: int


class LinePage(NamedTuple):
    """A part of the line and the cursor of the next, None at the end."""

    jobs: list[InLine]
    cursor: str | None


class JobPage(NamedTuple):
    """A page of jobs and the cursor of the next one, None at the end."""

    jobs: list[Job]
    cursor: str | None


class Remembered(NamedTuple):
    """An idempotency key as it is kept."""

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
    """A lossy wake-up: something may have changed. Empty sets mean anything; `*` among the jobs means any job."""

    queues: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()


class Door(Protocol):
    """Where an idle worker waits for a job that no hint tells of. `async with` it for as long as the worker claims."""

    @property
    def waiting(self) -> int:
        """How many jobs were handed to the worker already: its next claim has them, whatever its limit."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shut it, and put back in line what was handed to the worker."""
        ...

    def open(self) -> None:
        """Wait among others; a job that comes is told of by a hint. May be called again."""
        ...

    async def shut(self) -> None:
        """Wait no more; a job may have come in the last moment."""
        ...


class Store(OutboxVerbs, AuditVerbs, ClockVerbs, Protocol):
    """Three stores serve it: SQLite, PostgreSQL and Redis. No optional verbs."""

    durability: str
    """One line for the log: what an acknowledged write has survived."""
    batch: int
    """So many jobs to claim or to settle at once; more gain nothing."""
    streams: bool
    """True where the line of jobs is a Redis stream already, so that no other is put beside it."""

    async def open(self) -> Self:
        """Connect and check the schema version; raises SchemaMismatch or StoreUnavailable."""
        ...

    async def close(self) -> None:
        """Let go of everything. May be called twice."""
        ...

    async def migrate(self) -> list[str]:
        """Bring the schema to this program's version; the names of what ran. Safe from many processes at once."""
        ...

    async def now(self) -> int:
        """S1: the store's clock decides leases and schedules, never the caller's."""
        ...

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
        S3: one job per `(requester_id, idempotency key)`; the same hash answers with the first response,
            another raises IdempotencyConflict; an expired key is free.
        S4: at most one queued or running job per unique key; a second enqueue answers with the first's id.
        S5: a job with `depends_on` is not claimable until each of them succeeded (or ended, by its policy);
            an unknown one raises DependencyNotFound. A taken id raises DuplicateJob.
        S42: `resumed_from` is written with its job or neither is; it reads as the checkpoint `~resumed_from`. So is a
            `run_at` that was asked for, as `~run_at`: a step of the clock does not move it.
        S26: with `depth_limit`, a batch that would leave a queue with more queued jobs than this raises QueueFull;
            jobs that a key finds again take no place. Batches at the same moment may pass it together on PostgreSQL.
        S37: with `quotas`, a batch that would leave a requester with more queued jobs than its number in them raises
            QuotaExceeded; jobs that a key finds again take no place. Exact on every store, also for batches of several
            processes at the same moment; what comes back to the queue by itself (a retry) is counted, not refused.
        """
        ...

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        """Take up to `limit` jobs, all of them in one round trip where there are that many.

        S6: of many claimers, one gets a job; each claim has a new `claim_version` and a lease on the store's clock.
        S7: queues in the order asked; within one, higher priority first, then in order of becoming ready.
        S8: nothing from a paused queue, nothing before its `run_at`.
        S9: never more running jobs of a concurrency key than its limit.
        S43: with `tenants`, exactly the jobs of these requesters, in the same order and however many jobs of others
            stand before them; those stay as they are. It reads no job that has ended.
        """
        ...

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, silence_ms: int | None = None, now: int | None = None
    ) -> list[Beat]:
        """Extend many leases in one write. S10: a stale claim extends nothing, and sees that it is stale.

        S45: the lease of a job that is to be cancelled ends after `silence_ms`: two beats, two thirds of a lease unless
            given. A cancellation shortens it to as much after the last heartbeat.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """Apply moves in order, each whole or not at all.

        S11: a settlement whose fence does not match changes nothing: no row, no event, no outbox, no follow-up.
        S12: state, event, attempt, outbox rows, checkpoint and follow-up jobs are one write.
        S13: events of a job have no gaps and rise in commit order; their time never falls.
        S14: progress never falls; timestamps are in order.
        S15: `expired_only` applies only while the lease is over; a heartbeat in between wins.
        S16: repeating a settlement that was applied answers REPEATED and changes nothing. It is known by its attempt's
        outcome, or by its outbox rows: an event that the job has already is not written again.
        """
        ...

    async def expired(self, limit: int, *, now: int | None = None) -> list[Job]:
        """Running jobs whose lease is over, longest first. S17: only `lease_expires_at` decides."""
        ...

    async def held_by(self, worker_id: str, limit: int) -> list[Job]:
        """Running jobs that a worker has claimed. S30: one whose lease ran out is listed until it is reaped."""
        ...

    async def in_line(self, limit: int, *, cursor: str | None = None) -> LinePage:
        """Jobs in line, by queue and in the order of claims, without their payloads; reads no other jobs.

        S31: a job that is in line during a whole walk is listed once; one that is held, runs or has ended is not.
        """
        ...

    async def broken(self, limit: int) -> list[Job]:
        """Queued jobs that wait for one that did not succeed. S18: each is listed until it is settled."""
        ...

    async def promote(self, *, now: int | None = None) -> int:
        """Bring due and unblocked jobs into line, also where a crash left them behind; how many."""
        ...

    async def prune(self, *, ended_before: int, limit: int, now: int | None = None) -> int:
        """Delete ended jobs with all that hangs on them, expired keys and delivered outbox rows; how many jobs.

        S19: only jobs that ended before `ended_before`, or ended longer ago than their own `ttl_s`.
        """
        ...

    async def delete(self, claims: Sequence[Claim]) -> int:
        """Delete ended jobs with all that hangs on them, callbacks that are not yet delivered aside; how many.

        S32: a job that has not ended, or was claimed again since it was read, stays as it is.
        """
        ...

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """Jobs by id, in the order asked."""
        ...

    async def find(self, query: JobQuery) -> JobPage:
        """Jobs by filter, newest first, by pages that do not shift; without a cursor a page is the last.

        S20: only the requester's own.
        """
        ...

    async def counts(self) -> dict[str, dict[Status, int]]:
        """How many jobs of each status in each queue."""
        ...

    async def queued_of(self, requester_ids: Sequence[str], *, most: int) -> list[int]:
        """How many queued jobs requesters have, held ones too, in the order asked; counted no further than `most`.

        S38: the number that the quotas of `enqueue` are held against.
        """
        ...

    async def backlog(self, *, now: int | None = None) -> dict[str, Backlog]:
        """What waits and runs, by queue; a queue with nothing of either is left out. Reads no ended job.

        S25: a queued job is ready when a claim would take it (in line, or delayed and due; a pause does not matter),
            else held; the age is by the store's clock and never below 0.
        """
        ...

    async def endings(self, *, since: int, span_ms: int, requester_id: str | None = None) -> list[Ending]:
        """Jobs that have ended since a moment, by spans (multiples of `span_ms`), kinds and ends; reads no others.

        S36: of a requester, its own alone, as of the two verbs below. A job that was brought back has not ended.
        """
        ...

    async def dead_letters(self, requester_id: str | None = None) -> dict[str, int]:
        """How many dead letters there are of each kind; reads no other jobs but those that ended badly."""
        ...

    async def load(self, requester_id: str | None = None) -> list[Load]:
        """The workers that have running jobs, by id; reads no other jobs."""
        ...

    async def attempts(self, job_id: str) -> list[Attempt]:
        """All executions of a job, oldest first, the running one included."""
        ...

    async def checkpoints(self, job_id: str) -> dict[str, Json]:
        """Results of the steps that were completed, by name."""
        ...

    async def events(self, after: Mapping[str, int], limit: int) -> list[Event]:
        """Events of many jobs after a `seq` each, in order within a job, at most `limit` of each job.

        S21: a reader can resume from any event for as long as the job is kept.
        """
        ...

    def hints(self) -> AsyncIterator[Hint]:
        """Wake-ups from this and other processes; may be lost, doubled or late."""
        ...

    async def listen_for(self, job_ids: Collection[str]) -> None:
        """From now on give hints of these jobs, and of no others, when another program writes their events.

        As lossy as all hints. Where nobody but the store writes events there is nothing to do.
        """
        ...

    async def door(self, worker_id: str, queues: Sequence[str]) -> Door:
        """Where this worker waits for what other programs put into these queues."""
        ...

    async def remembered(self, requester_id: str, key: str, *, now: int | None = None) -> Remembered | None:
        """What an idempotency key stands for, None when it is unknown or expired."""
        ...

    async def pause(self, queue: str, *, paused: bool) -> None:
        """Stop or go on handing out a queue's jobs; running ones go on. A queue need not exist yet."""
        ...

    async def paused(self) -> frozenset[str]:
        """The queues that are paused."""
        ...

    async def credentials(self, job_ids: Sequence[str]) -> list[Credentials | None]:
        """The encrypted credentials of jobs, in the order asked; no other verb answers with them.

        S27: they are written with their job, in the same transaction, or neither is. They go in the write that ends
            it as succeeded or canceled, else when it is pruned.
        """
        ...

    async def replace_credentials(self, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
        """Put the second of each pair where the first still is as it was read; which were replaced.

        S28: of two writers one wins (version and wrapped key are compared), the other changes nothing; what is gone
            does not come back.
        """
        ...

    async def credentials_under(self, kek_id: str, *, after: str = "", limit: int = 100) -> list[Credentials]:
        """Credentials whose key is wrapped by this KEK. S29: in order of job id, after one, so that a walk ends."""
        ...

    async def credential_keks(self) -> dict[str, int]:
        """How many credentials each KEK wraps; one that wraps none is left out."""
        ...

    async def put_document(self, document: Document) -> Document:
        """Write a document whose stored version is `document.version` (0: it must not exist).

        S24: of two writers with the same version one wins, the other gets DocumentConflict.
        """
        ...

    async def documents(self, kind: str, id: str | None = None) -> list[Document]:
        """Documents of a kind, in order of id; an id that holds a NUL is that of none."""
        ...

    async def delete_document(self, kind: str, id: str) -> bool:
        """Remove a document; False when there was none."""
        ...
