"""Dead letters: jobs whose attempts are spent. Found by filter, explained, brought back, or deleted.

A contract in which an end is final has no way back for a job: then a copy of it runs, whose id is made from the dead
letter, so that however often it is asked for there is one copy.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel import commands
from callsheet.kernel.errors import CallsheetError, DuplicateJob, IllegalMove, StoreError
from callsheet.kernel.handing_on import UNKNOWN_TASK
from callsheet.kernel.job import Claim, Job, Status
from callsheet.kernel.lifecycle import illegal
from callsheet.kernel.retry import JobError, Verdict
from callsheet.kernel.wire import decode
from callsheet.store.protocol import JobPage, JobQuery

from .quotas import slot_of
from .resuming import resuming_job

if TYPE_CHECKING:
    from callsheet.engine import Engine

    from .quotas import Quotas

DEAD = (Status.DEAD_LETTER,)
ENDED_BADLY = (Status.DEAD_LETTER, Status.FAILED)
STATUSES = {"dead_letter": DEAD, "failed": (Status.FAILED,), "both": ENDED_BADLY}
PAGES = 20  # of the store, until one has something that fits
_COPIES = uuid.UUID("b0a5a0de-8f43-4a2e-9c70-4f2d3f5d3c4e")
__all__ = ["Diagnosis", "Done", "Wanted", "bring_back", "can_replay", "diagnose", "find", "purge", "replay"]


class Wanted(NamedTuple):
    """Which dead letters. `requester_id` None is for operators only; ranges are from (with) to (without)."""

    requester_id: str | None = None
    status: str = "dead_letter"
    kind: str | None = None
    queue: str | None = None
    contract: str | None = None
    error_code: str | None = None
    created_from: int | None = None
    created_to: int | None = None
    ended_from: int | None = None
    ended_to: int | None = None

    def fits(self, job: Job) -> bool:
        """What a store cannot ask for."""
        ended_at = job.ended_at or 0
        return (
            (self.error_code is None or error_of(job).code == self.error_code)
            and (self.ended_from is None or ended_at >= self.ended_from)
            and (self.ended_to is None or ended_at < self.ended_to)
        )


class Diagnosis(NamedTuple):
    """The class of an error, and what to do about it."""

    error_class: str
    advice: str


class Done(NamedTuple):
    """What became of a batch. `why` is the reason of the last refusal."""

    done: int = 0
    refused: int = 0
    why: str = ""


async def find(engine: Engine, wanted: Wanted, limit: int, cursor: str | None = None) -> JobPage:
    """A page, newest first. It may hold fewer than `limit` and still have a cursor; only without one it is the last."""
    w = wanted
    query = JobQuery(
        w.requester_id, STATUSES[w.status], w.kind, w.queue, w.contract, w.created_from, w.created_to, limit, cursor
    )
    for _ in range(PAGES):
        page = await engine.find(query)
        fitting = [job for job in page.jobs if w.fits(job)]
        if fitting or page.cursor is None:
            return JobPage(fitting, page.cursor)
        query = query._replace(cursor=page.cursor)
    return JobPage([], query.cursor)


def error_of(job: Job) -> JobError:
    """The error that a job ended with; a foreign worker may have written anything."""
    try:
        told = decode(job.error) if job.error else {}
    except (ValueError, RecursionError):
        told = job.error
    if not isinstance(told, Mapping):
        return JobError("error", str(told))
    retryable = told.get("retryable")
    known = retryable if isinstance(retryable, bool) else None
    return JobError(str(told.get("code", "error")), str(told.get("message", "")), known)


def diagnose(job: Job) -> Diagnosis:
    """The class of a dead letter's error by the job's own policy, and what to do next."""
    error, policy = error_of(job), commands.policy_of(job)
    if error.code == "worker_lost":
        told = f"its worker went silent {job.lease_losses} times: look for crashes and memory limits, then replay it"
        return Diagnosis("worker_lost", told)
    if error.code == UNKNOWN_TASK:
        told = f"no worker has the task {job.kind!r}: start one of the queue {job.queue!r} that has it, then replay it"
        return Diagnosis(UNKNOWN_TASK, told)
    verdict = policy.decide(error, attempt=1, refreshes=0, rand=0).verdict
    if verdict is Verdict.REFRESH:
        return Diagnosis("credentials", "its credentials were refused: give it fresh ones, then replay it")
    if verdict is Verdict.FAIL:
        return Diagnosis("fatal", "it will fail in the same way: mend the task or send a new job with another payload")
    if error.code in policy.throttled:
        return Diagnosis("throttled", "the other side asked for less: replay with a rate, later")
    tries = "1 attempt" if job.attempt_count == 1 else f"{job.attempt_count} attempts"
    told = f"{tries} failed in a way that may pass: mend the cause, then replay it"
    return Diagnosis("retryable", told)


def copy_id(job: Job) -> str:
    """The id of the copy that a replay makes where a contract has no way back."""
    return str(uuid.uuid5(_COPIES, f"{job.job_id}:{job.claim_version}"))


def comes_back(job: Job) -> bool:
    """Whether the job itself runs again; raises IllegalMove where neither it nor a copy may."""
    try:
        commands.requeue(job)
    except IllegalMove:
        if job.status not in ENDED_BADLY:
            raise
        if job.concurrency_key not in (None, slot_of(job.requester_id)):
            raise illegal(
                job, "replay", "a way back, and a copy would not know the limit of its concurrency key"
            ) from None
        return False
    return True


async def can_replay(engine: Engine, job: Job) -> bool:
    """Whether a replay would bring it, or a copy of it, back to work."""
    try:
        return job.status in ENDED_BADLY and (comes_back(job) or not await _has_credentials(engine, job))
    except IllegalMove:
        return False


async def bring_back(engine: Engine, job_id: str) -> Job:
    """Bring an ended job back by an operator's hand; returns the job that runs, which is a copy where an end is final.

    Raises IllegalMove where neither it nor a copy may.
    """
    job = await engine.get(job_id)
    if job.status not in ENDED_BADLY or comes_back(job):
        return await engine.requeue(job.job_id)
    await _copy(engine, job, None)
    return await engine.get(copy_id(job))


async def replay(engine: Engine, claims: Sequence[Claim], quotas: Quotas | None = None) -> Done:
    """Bring jobs back that ended with these claims. One that somebody has brought back meanwhile counts as done.

    Copies are held to the tenants' `quotas` of running jobs; without them to none.
    """
    found = [
        job
        for claim, job in zip(claims, await engine.store.get([claim.job_id for claim in claims]), strict=True)
        if job is not None and job.status in ENDED_BADLY and job.claim == claim
    ]
    back, refused, why = [], 0, ""
    for job in found:
        try:
            if comes_back(job):
                back.append(commands.requeue(job))
            else:
                await _copy(engine, job, quotas)
        except StoreError:
            raise
        except CallsheetError as error:
            refused, why = refused + 1, str(error)
    if back:
        await engine.settle(back)
    return Done(len(claims) - refused, refused, why)


async def purge(engine: Engine, claims: Sequence[Claim], quotas: Quotas | None = None) -> Done:  # noqa: ARG001
    """Delete jobs that ended with these claims; one that is gone already counts as done."""
    await engine.store.delete(claims)
    left = [job for job in await engine.store.get([claim.job_id for claim in claims]) if job is not None]
    why = f"job {left[-1].job_id} was brought back meanwhile" if left else ""
    return Done(len(claims) - len(left), len(left), why)


async def _has_credentials(engine: Engine, job: Job) -> bool:
    (credentials,) = await engine.store.credentials([job.job_id])
    return credentials is not None


async def _copy(engine: Engine, job: Job, quotas: Quotas | None) -> None:
    if await _has_credentials(engine, job):
        raise illegal(job, "replay", "a copy to use its credentials, which are sealed for it alone; send it again")
    running = quotas.known(job.requester_id).running if quotas is not None and job.concurrency_key is not None else 0
    copy = resuming_job(job)._replace(
        job_id=copy_id(job),
        correlation_id=job.correlation_id or f"replay:{job.job_id}",
        concurrency_key=slot_of(job.requester_id) if running else None,
        concurrency_limit=running or 1,
    )
    try:
        await engine.enqueue([copy])
    except DuplicateJob:
        return  # it was asked for before
