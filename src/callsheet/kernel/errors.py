"""Every error the engine can raise, as one tree. Each error has a stable `code`, and its text names the next step.

CallsheetError
├── InvalidInput            the request itself is wrong, in any state
│   ├── InvalidJob
│   │   ├── PayloadTooLarge
│   │   ├── NotJson
│   │   ├── InvalidPayload
│   │   ├── DependencyNotFound
│   │   └── DependencyCycle
│   ├── InvalidTask
│   ├── UnknownTask
│   └── UnknownStore
├── Refused                 the request is well formed, but the state does not allow it
│   ├── IllegalMove
│   ├── StaleClaim
│   ├── DuplicateJob
│   ├── QueueFull
│   ├── QuotaExceeded
│   ├── IdempotencyConflict
│   └── DocumentConflict
├── JobNotFound
├── JobFailed               raised while a caller waits for a result
│   └── JobCanceled
├── ResultTimeout
├── StoreError              the store itself
│   ├── SchemaMismatch
│   └── StoreUnavailable    also an Outage
├── MissingExtra            a feature needs a package that is not installed
└── Outage                  a service that a job needs cannot be reached now: the job waits and spends no attempt
    └── DiskFull
"""

from __future__ import annotations

OURS = __name__.partition(".")[0]
ADVICE = {  # what a tenant can do once a quota is used up
    "queued": "wait until some of its jobs have run, or ask the operator for more",
    "bytes": "delete what is not needed any more, or ask the operator for more",
    "streams": "close some; one stream can watch many jobs: /v1/events?jobs=…",
    "rate": "send fewer requests in a second",
    "uploads": "complete or drop some of them: POST /v1/uploads/…/complete, DELETE /v1/uploads/…",
}


class CallsheetError(Exception):
    """Root of all errors; `code` is stable and safe to match on.

    If `public` is set, the error's text is for operators only: it may name a path of this machine or quote a driver.
    """

    code = "error"
    public: str | None = None

    @property
    def for_clients(self) -> str:
        """Return the text that clients may read, in HTTP responses and in job records."""
        return str(self) if self.public is None else self.public


class InvalidInput(CallsheetError):
    """The request itself is wrong, and fails again if sent again."""

    code = "invalid_input"


class InvalidJob(InvalidInput):
    """A new job breaks a rule of its fields."""

    code = "invalid_job"


class PayloadTooLarge(InvalidJob):
    """A payload exceeds the limit in bytes."""

    code = "payload_too_large"


class NotJson(InvalidJob):
    """A value cannot be written as JSON; no value is cast silently."""

    code = "not_json"


class InvalidPayload(InvalidJob):
    """Arguments do not fit the task's signature; no argument is cast silently."""

    code = "invalid_payload"


class DependencyNotFound(InvalidJob):
    """`depends_on` names an unknown job: neither the store nor the batch has it."""

    code = "dependency_not_found"


class DependencyCycle(InvalidJob):
    """Jobs of one batch depend on one another in a circle."""

    code = "dependency_cycle"


class InvalidTask(InvalidInput):
    """A function's declaration does not allow its use as a task."""

    code = "invalid_task"


class UnknownTask(InvalidInput):
    """No task of this name is declared."""

    code = "unknown_task"


class UnknownStore(InvalidInput):
    """A store URL has an unknown scheme or option, or cannot be parsed."""

    code = "unknown_store"
    public = "a store that this server needs is not set up; its operator finds out more in the log"


class Refused(CallsheetError):
    """The request is well formed, but the present state does not allow it."""

    code = "refused"


class IllegalMove(Refused):
    """The job's contract has no such move from the job's present status."""

    code = "illegal_move"


class StaleClaim(Refused):
    """The worker no longer holds this claim: abort the work, because its writes change nothing."""

    code = "stale_claim"


class DuplicateJob(Refused):
    """A job with this id exists already."""

    code = "duplicate_job"


class QueueFull(Refused):
    """A queue holds its maximum number of jobs; no job of the batch was written."""

    code = "queue_full"

    def __init__(self, queue: str, limit: int) -> None:
        super().__init__(f"queue {queue!r} holds {limit} jobs already, as many as it may; try again later")
        self.queue = queue
        self.limit = limit


class QuotaExceeded(Refused):
    """A tenant's quota is used up; the request wrote nothing."""

    code = "quota_exceeded"

    def __init__(self, quota: str, requester_id: str, *, limit: int, used: int) -> None:
        super().__init__(f"the quota {quota} of this tenant is {limit}, and {used} are in use; {ADVICE[quota]}")
        self.quota = quota
        self.requester_id = requester_id
        self.limit = limit
        self.used = used


class IdempotencyConflict(Refused):
    """The idempotency key belongs to an earlier, different request."""

    code = "idempotency_conflict"


class DocumentConflict(Refused):
    """A document changed after the caller read it."""

    code = "document_conflict"


class JobNotFound(CallsheetError):
    """The requester has no job with this id."""

    code = "job_not_found"


class JobFailed(CallsheetError):
    """A job ended without success. `job_error` is the worker's error: code, message, perhaps details."""

    code = "job_failed"

    def __init__(self, message: str, job_error: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.job_error = job_error or {}


class JobCanceled(JobFailed):
    """A job was canceled before it could succeed."""

    code = "job_canceled"


class ResultTimeout(CallsheetError):
    """A job did not end within the caller's time limit; the job continues."""

    code = "result_timeout"


class MissingExtra(CallsheetError):
    """A required package is not installed; the message names the extra that installs the package."""

    code = "missing_extra"


class StoreError(CallsheetError):
    """The store cannot serve."""

    code = "store_error"
    public = "the store cannot be reached now; try again"


class SchemaMismatch(StoreError):
    """The database's schema version differs from the version that this program needs."""

    code = "schema_mismatch"


class Outage(CallsheetError):
    """A service that a job needs cannot be reached now. A task that raises Outage waits and spends no attempt.

    `waits_for` names the service in the job's events: "storage", "model server", or a service of yours. `after_s` is
    the pause in seconds that the service asked for; the job rests at least as long.
    """

    code = "outage"
    waits_for = "a service"
    after_s: float | None = None

    def __init__(self, message: str, *, waits_for: str | None = None, after_s: float | None = None) -> None:
        super().__init__(message)
        if waits_for is not None:
            self.waits_for = waits_for
        if after_s is not None:
            self.after_s = after_s


class DiskFull(Outage):
    """A disk of this machine is full."""

    code = "disk_full"
    waits_for = "room on the disk"


class StoreUnavailable(StoreError, Outage):
    """The store cannot be reached now; try again later."""

    code = "store_unavailable"
    waits_for = "the store"


class StoreRefused(StoreUnavailable):
    """The store is reachable and refuses access: a wrong password, a folder that does not exist.

    A running worker treats the refusal as an outage. A starting program fails at once instead of waiting.
    """

    code = "store_refused"


def is_from_driver(error: BaseException, *drivers: str) -> bool:
    """Return whether the last call from our code, before this exception was raised, went into one of these packages.

    Each adapter treats every exception from its driver as an outage, for a driver's error classes do not tell: a
    connection that is reset under uvloop reaches callers of redis-py as RuntimeError and callers of httpcore as
    AttributeError. Exceptions from our own code, from code that uses us, or from other libraries are bugs and must
    surface as bugs.
    """
    trace, package_below = error.__traceback__, ""
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        package_below = "" if package == OURS else package_below or package
        trace = trace.tb_next
    return package_below in drivers
