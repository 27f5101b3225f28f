"""Every error the engine can raise, as one tree. Each has a stable `code` and says what to do next.

CallsheetError
├── InvalidInput            the request cannot be right, whatever the state
│   ├── InvalidJob
│   │   ├── PayloadTooLarge
│   │   ├── NotJson
│   │   ├── InvalidPayload
│   │   ├── DependencyNotFound
│   │   └── DependencyCycle
│   ├── InvalidTask
│   ├── UnknownTask
│   └── UnknownStore
├── Refused                 right in itself, but not in this state
│   ├── IllegalMove
│   ├── StaleClaim
│   ├── DuplicateJob
│   ├── QueueFull
│   ├── QuotaExceeded
│   ├── IdempotencyConflict
│   └── DocumentConflict
├── JobNotFound
├── JobFailed               what waiting for a result raises
│   └── JobCanceled
├── ResultTimeout
├── StoreError              the store itself
│   ├── SchemaMismatch
│   └── StoreUnavailable    also an Outage
├── MissingExtra            a package is not installed that what was asked for needs
└── Outage                  something that a job needs cannot be reached now: the job waits, at no cost
    └── DiskFull
"""

from __future__ import annotations

ADVICE = {  # what a tenant can do once a quota is used up
    "queued": "wait until some of its jobs have run, or ask the operator for more",
    "bytes": "delete what is not needed any more, or ask the operator for more",
    "streams": "close some; one stream can watch many jobs: /v1/events?jobs=…",
    "rate": "send fewer requests in a second",
    "uploads": "complete or drop some of them: POST /v1/uploads/…/complete, DELETE /v1/uploads/…",
}


class CallsheetError(Exception):
    """Root of all errors; `code` is stable and safe to match on.

    Its text is for operators where `public` is set: it may name a path of this machine, or hold a driver's words.
    """

    code = "error"
    public: str | None = None

    @property
    def for_clients(self) -> str:
        """What a client may read of it: in answers over HTTP and in what is written about a job."""
        return str(self) if self.public is None else self.public


class InvalidInput(CallsheetError):
    """The request is wrong in itself; sending it again changes nothing."""

    code = "invalid_input"


class InvalidJob(InvalidInput):
    """A new job breaks a rule of its fields."""

    code = "invalid_job"


class PayloadTooLarge(InvalidJob):
    """A payload is over the limit in bytes."""

    code = "payload_too_large"


class NotJson(InvalidJob):
    """A value cannot be written as JSON, and is not cast silently."""

    code = "not_json"


class InvalidPayload(InvalidJob):
    """Arguments do not fit the task's signature, and are not cast silently."""

    code = "invalid_payload"


class DependencyNotFound(InvalidJob):
    """`depends_on` names a job that is neither in the store nor in the same batch."""

    code = "dependency_not_found"


class DependencyCycle(InvalidJob):
    """Jobs of one batch wait for one another in a circle."""

    code = "dependency_cycle"


class InvalidTask(InvalidInput):
    """A function cannot be a task as it is declared."""

    code = "invalid_task"


class UnknownTask(InvalidInput):
    """No task of this name is declared."""

    code = "unknown_task"


class UnknownStore(InvalidInput):
    """A store URL with a scheme that no store serves."""

    code = "unknown_store"
    public = "a store that this server needs is not set up; its operator finds out more in the log"


class Refused(CallsheetError):
    """The request is well formed, but the present state does not allow it."""

    code = "refused"


class IllegalMove(Refused):
    """The job's contract has no such move from its present status."""

    code = "illegal_move"


class StaleClaim(Refused):
    """The claim is no longer held: abort the work, its writes change nothing."""

    code = "stale_claim"


class DuplicateJob(Refused):
    """A job with this id exists already."""

    code = "duplicate_job"


class QueueFull(Refused):
    """A queue holds as many jobs as it may; nothing of the batch was written."""

    code = "queue_full"

    def __init__(self, queue: str, limit: int) -> None:
        super().__init__(f"queue {queue!r} holds {limit} jobs already, as many as it may; try again later")
        self.queue = queue
        self.limit = limit


class QuotaExceeded(Refused):
    """A tenant has as much of something as it may have; nothing of what was asked for was written."""

    code = "quota_exceeded"

    def __init__(self, quota: str, requester_id: str, *, limit: int, used: int) -> None:
        super().__init__(f"the quota {quota} of this tenant is {limit}, and {used} are in use; {ADVICE[quota]}")
        self.quota = quota
        self.requester_id = requester_id
        self.limit = limit
        self.used = used


class IdempotencyConflict(Refused):
    """The idempotency key was used before with another request."""

    code = "idempotency_conflict"


class DocumentConflict(Refused):
    """A document changed since it was read."""

    code = "document_conflict"


class JobNotFound(CallsheetError):
    """No such job for this requester."""

    code = "job_not_found"


class JobFailed(CallsheetError):
    """A job ended without success. `job_error` is what its worker said: code, message, perhaps details."""

    code = "job_failed"

    def __init__(self, message: str, job_error: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.job_error = job_error or {}


class JobCanceled(JobFailed):
    """A job was canceled before it could succeed."""

    code = "job_canceled"


class ResultTimeout(CallsheetError):
    """A job has not ended within the time that the caller gave it; it goes on."""

    code = "result_timeout"


class MissingExtra(CallsheetError):
    """A package is not installed; the message says which extra brings it."""

    code = "missing_extra"


class StoreError(CallsheetError):
    """The store cannot serve."""

    code = "store_error"
    public = "the store cannot be reached now; try again"


class SchemaMismatch(StoreError):
    """The database's schema version is not the one this program needs."""

    code = "schema_mismatch"


class Outage(CallsheetError):
    """Something that a job needs cannot be reached now. A task that raises it waits and spends no attempt.

    `waits_for` names that thing in the job's events: "storage", "model server", or a service of yours. `after_s` is how
    long that service asked to be left alone; the job rests for that long at least.
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
    """A disk of this machine has no room left."""

    code = "disk_full"
    waits_for = "room on the disk"


class StoreUnavailable(StoreError, Outage):
    """The store cannot be reached now; trying again later is right."""

    code = "store_unavailable"
    waits_for = "the store"


class StoreRefused(StoreUnavailable):
    """The store is there and does not let this program in: a wrong password, a folder that does not exist.

    For a worker that runs it is an outage as any other. A program that starts does not wait for its end.
    """

    code = "store_refused"
