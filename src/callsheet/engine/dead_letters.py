"""Dead letters: jobs without attempts left. Functions to find, explain, replay and delete them.

If a contract makes an end final, a replay runs a copy of the job. The copy's id is derived from the dead letter, so
that repeated requests make one copy.
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

from .quotas import Quotas, slot_of
from .resuming import first_of, resuming_job

if TYPE_CHECKING:
    from callsheet.engine import Engine

DEAD = (Status.DEAD_LETTER,)
ENDED_BADLY = (Status.DEAD_LETTER, Status.FAILED)
STATUSES = {"dead_letter": DEAD, "failed": (Status.FAILED,), "both": ENDED_BADLY}
PAGES = 20  # pages read from the store until one has a fitting job
_COPIES = uuid.UUID("b0a5a0de-8f43-4a2e-9c70-4f2d3f5d3c4e")
__all__ = ["Diagnosis", "Done", "Wanted", "bring_back", "can_replay", "diagnose", "find", "purge", "replay"]


class Wanted(NamedTuple):
    """A filter over dead letters. `requester_id` None is for operators only; ranges include `from` and exclude `to`."""

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
        """Return whether a job passes the filters that a store query lacks: error code and time of end."""
        ended_at = job.ended_at or 0
        return (
            (self.error_code is None or error_of(job).code == self.error_code)
            and (self.ended_from is None or ended_at >= self.ended_from)
            and (self.ended_to is None or ended_at < self.ended_to)
        )


class Diagnosis(NamedTuple):
    """The class of an error, and advice for the next step."""

    error_class: str
    advice: str


class Done(NamedTuple):
    """The counts of a batch: handled and refused jobs. `why` is the reason of the last refusal."""

    done: int = 0
    refused: int = 0
    why: str = ""


async def find(engine: Engine, where: Wanted, limit: int, cursor: str | None = None) -> JobPage:
    """Return a page of dead letters, newest first.

    A page may hold fewer than `limit` jobs and still have a cursor; the last page has no cursor.
    """
    w = where
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
    """Return the error that a job ended with; a foreign worker may have written any text."""
    try:
        fields = decode(job.error) if job.error else {}
    except (ValueError, RecursionError):
        fields = job.error
    if not isinstance(fields, Mapping):
        return JobError("error", str(fields))
    retryable = fields.get("retryable")
    is_retryable = retryable if isinstance(retryable, bool) else None
    return JobError(str(fields.get("code", "error")), str(fields.get("message", "")), is_retryable)


def diagnose(job: Job) -> Diagnosis:
    """Return the class of a dead letter's error by the job's own policy, and advice for the next step."""
    error, policy = error_of(job), commands.policy_of(job)
    if error.code == "worker_lost":
        advice = f"its worker went silent {job.lease_losses} times: look for crashes and memory limits, then replay it"
        return Diagnosis("worker_lost", advice)
    if error.code == UNKNOWN_TASK:
        missing = f"no worker has the task {job.kind!r}"
        return Diagnosis(UNKNOWN_TASK, f"{missing}: start one of the queue {job.queue!r} that has it, then replay it")
    verdict = policy.decide(error, attempt=1, refreshes=0, rand=0).verdict
    if verdict is Verdict.REFRESH:
        return Diagnosis("credentials", "its credentials were refused: give it fresh ones, then replay it")
    if verdict is Verdict.FAIL:
        return Diagnosis("fatal", "it will fail in the same way: mend the task or send a new job with another payload")
    if error.code in policy.throttled:
        return Diagnosis("throttled", "the other side asked for less: replay with a rate, later")
    tries = "1 attempt" if job.attempt_count == 1 else f"{job.attempt_count} attempts"
    advice = f"{tries} failed in a way that may pass: mend the cause, then replay it"
    return Diagnosis("retryable", advice)


def copy_id(job: Job) -> str:
    """Return the id of the copy that a replay creates if the contract makes an end final."""
    return str(uuid.uuid5(_COPIES, f"{job.job_id}:{job.claim_version}"))


def comes_back(job: Job) -> bool:
    """Return whether the job itself can return to the queue; raises IllegalMove if a copy is not allowed either."""
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


def can_replay(job: Job) -> bool:
    """Return whether a replay would start the job, or a copy of the job."""
    try:
        comes_back(job)
    except IllegalMove:
        return False
    return job.status in ENDED_BADLY


async def bring_back(engine: Engine, job_id: str) -> Job:
    """Replay an ended job for an operator; return the job that runs, a copy if the contract makes an end final.

    Raises IllegalMove if neither the job nor a copy may run.
    """
    job = await engine.get(job_id)
    if job.status not in ENDED_BADLY or comes_back(job):
        return await engine.requeue(job.job_id)
    await _copy(engine, job, None)
    return await engine.get(copy_id(job))


async def replay(engine: Engine, claims: Sequence[Claim], quotas: Quotas | None = None) -> Done:
    """Replay jobs that ended with these claims; a job that someone else replayed meanwhile counts as done.

    Copies respect the tenants' `quotas` of running jobs, if given.
    """
    jobs = [
        job
        for claim, job in zip(claims, await engine.store.get([claim.job_id for claim in claims]), strict=True)
        if job is not None and job.status in ENDED_BADLY and job.claim == claim
    ]
    back, refusals, why = [], 0, ""
    for job in jobs:
        try:
            if comes_back(job):
                back.append(commands.requeue(job))
            else:
                await _copy(engine, job, quotas)
        except StoreError:
            raise
        except CallsheetError as error:
            refusals, why = refusals + 1, str(error)
    if back:
        await engine.settle(back)
    return Done(len(claims) - refusals, refusals, why)


async def purge(engine: Engine, claims: Sequence[Claim], quotas: Quotas | None = None) -> Done:  # noqa: ARG001
    """Delete jobs that ended with these claims; a job deleted earlier counts as done."""
    await engine.store.delete(claims)
    left = [job for job in await engine.store.get([claim.job_id for claim in claims]) if job is not None]
    why = f"job {left[-1].job_id} was brought back meanwhile" if left else ""
    return Done(len(claims) - len(left), len(left), why)


async def _copy(engine: Engine, job: Job, quotas: Quotas | None) -> None:
    """Enqueue the copy of a dead letter. Credentials are copied unchanged and stay bound to their original job."""
    (credentials,) = await engine.store.credentials([job.job_id])
    running = (
        quotas.limits_of(job.requester_id).running if quotas is not None and job.concurrency_key is not None else 0
    )
    copy = resuming_job(job)._replace(
        job_id=copy_id(job),
        correlation_id=job.correlation_id or f"replay:{job.job_id}",
        concurrency_key=slot_of(job.requester_id) if running else None,
        concurrency_limit=running or 1,
    )
    if credentials is not None:
        copy = copy._replace(credentials=credentials.envelope, resumed_from=await first_of(engine.store, job.job_id))
    try:
        await engine.enqueue([copy])
    except DuplicateJob:
        return  # an earlier request made the copy
