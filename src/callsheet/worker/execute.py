"""Running one attempt: call the user's function, and turn its result or exception into a settlement.

The kernel's commands make the settlements; this module chooses the command.
"""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from callsheet.kernel import commands
from callsheet.kernel.contracts import lifecycle_of
from callsheet.kernel.errors import CallsheetError, InvalidPayload, QuotaExceeded, StoreUnavailable
from callsheet.kernel.handing_on import hand_on
from callsheet.kernel.job import Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import decode, encode

from .outages import outage_of, words_of
from .run import Run, Stop
from .signals import Fatal, Retry, Snooze

if TYPE_CHECKING:
    from callsheet.kernel.job import Job

    from .context import Context
    from .definition import Definition

log = logging.getLogger("callsheet.worker")
TRACE_LIMIT = 8_000
MESSAGE_LIMIT = 2_000
ID_LIMIT = 100
Call = Callable[["Definition", "Context | None", dict[str, Any]], Awaitable[Any]]


async def attempt(run: Run, context: Context | None, elsewhere: Call, patience_s: float) -> Settlement | None:
    """Run the function once and return the settlement, or None if the claim is lost and no write is allowed.

    A job whose task this worker lacks is handed on to other workers for `patience_s`.
    """
    definition = run.definition
    if definition is None:
        tell_lacking(run.job.kind)
        rand = random.random()  # noqa: S311 - jitter
        return hand_on(run.job, patience_ms=round(patience_s * 1000), rand=rand)
    if definition.contract and definition.contract != run.job.contract:
        return reserved_task(run.job, definition.contract)
    try:
        arguments = definition.arguments(run.job.payload)
        if definition.executor != "async":
            value = await elsewhere(definition, context, arguments)
        elif context is not None:
            value = await definition.function(context, **arguments)
        else:
            value = await definition.function(**arguments)
        return after_return(run, definition, value)
    except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome, sys.exit() and panics too
        return after_exception(run, error)


def after_return(run: Run, definition: Definition, value: object) -> Settlement | None:
    """Return the settlement for a function's result; raises NotJson or PayloadTooLarge."""
    if run.stop is not None and run.stop in (Stop.CANCEL, Stop.TIMEOUT):
        return after_stop(run)  # the function returned because of the stop request
    result = "null" if value is None else definition.write_result(value)
    if run.follow_ups is None:
        return commands.succeed(run.job, result)
    return commands.succeed(run.job, result, follow_ups=tuple(run.follow_ups))


def after_exception(run: Run, error: BaseException) -> Settlement | None:
    """Return the settlement for an exception of a function, a cancellation included; raises KeyboardInterrupt."""
    if isinstance(error, asyncio.CancelledError):
        return after_stop(run)
    if isinstance(error, KeyboardInterrupt):
        raise error
    return after_stop(run) if run.stop is not None else after_error(run.job, error)


@lru_cache(maxsize=1000)
def tell_lacking(kind: str) -> None:
    """Log, once for each name, that this worker got jobs of a task that it lacks."""
    log.warning("no task %r is declared here; its jobs are handed on to other workers", kind[:MESSAGE_LIMIT])


def reserved_task(job: Job, contract: str) -> Settlement:
    """Dead-letter a job outside the task's contract: its payload was never checked, so its function is not called."""
    message = f"{job.kind} is a task of the contract {contract}, and this job is of {job.contract}; create it there"
    return commands.dead_letter(job, JobError("task_reserved", message))


def after_error(job: Job, error: BaseException) -> Settlement:
    """Return the settlement for an exception of the function."""
    rand = random.random()  # noqa: S311 - jitter
    if (outage := outage_of(error)) is not None:
        after_ms, error_of_it = round((outage.after_s or 0) * 1000), JobError(outage.code, words_of(outage))
        return commands.wait(job, error_of_it, waits_for=outage.waits_for, rand=rand, after_ms=after_ms)
    match error:
        case Snooze():
            return commands.release(job, delay_ms=error.delay_ms)
        case Retry(after_ms=int() as delay_ms):
            return commands.retry(job, JobError(error.code, str(error)), delay_ms=delay_ms)
        case Retry():
            return commands.fail(job, JobError(error.code, str(error), retryable=True), rand=rand)
        case Fatal():
            return commands.fail(job, JobError(error.code, str(error), retryable=False), rand=rand)
        case InvalidPayload():
            tell_refused(job, str(error))
            return commands.fail(job, JobError("invalid_payload", str(error), retryable=False), rand=rand)
        case QuotaExceeded():
            return commands.fail(job, JobError(error.code, str(error), retryable=False), rand=rand)
        case CallsheetError() if error.code in ("not_json", "payload_too_large"):
            return commands.fail(job, JobError("invalid_result", str(error), retryable=False), rand=rand)
    trace = "".join(traceback.format_exception(error))[-TRACE_LIMIT:]
    details = encode({"traceback": trace.encode("utf-8", "replace").decode()})
    return commands.fail(job, JobError(type(error).__name__, str(error), details=details), rand=rand)


def tell_refused(job: Job, why: str) -> None:
    """Log that a job failed for an invalid payload before its function ran, with the ids in that payload."""
    about = decode(job.payload)
    ids = (
        {k: v for k, v in about.items() if k.endswith("_id") and isinstance(v, str)} if isinstance(about, dict) else {}
    )
    fields = {
        **{name: value[:ID_LIMIT] for name, value in list(ids.items())[:5]},
        "job_id": job.job_id,
        "correlation_id": job.correlation_id,
        "job_type": job.kind.rpartition(".")[2],
        "status": lifecycle_of(job.contract).word(Status.FAILED, has_started=True) or "failed",
        "error": {"type": "InvalidPayload", "message": why[:MESSAGE_LIMIT]},
    }
    log.warning("job %s (%s) was refused for its payload: %s", job.job_id, job.kind, why, extra={"fields": fields})


def after_cut(job: Job) -> Settlement:
    """Return a job to the queue whose lease ran out while the store was away, at no cost in attempts."""
    error = JobError(StoreUnavailable.code, "it could not be reached until the lease of the attempt ran out")
    return commands.wait(job, error, waits_for=StoreUnavailable.waits_for, rand=random.random())  # noqa: S311 - jitter


def after_stop(run: Run) -> Settlement | None:
    """Return the settlement of a stopped function by its stop reason; None if the claim is lost."""
    match run.stop:
        case Stop.LOST:
            return after_cut(run.job) if run.is_cut_off else None
        case Stop.CANCEL:
            return commands.cancel(run.job, run.job.cancel_reason or "")
        case Stop.SHUTDOWN:
            return commands.release(run.job)
        case Stop.TIMEOUT:
            limit_s = run.definition.timeout_s if run.definition is not None else None
            error = JobError("timeout", f"the attempt took longer than {limit_s or 0:g} s")
        case None:
            error = JobError("cancelled", "the task cancelled itself")
    return commands.fail(run.job, error, rand=random.random())  # noqa: S311 - jitter
