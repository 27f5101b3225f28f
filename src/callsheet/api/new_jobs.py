"""The body of a new job, for any task: its options are checked here and become the engine's record."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from callsheet.engine.ids import new_id
from callsheet.http.batcher import reserved_task_problem
from callsheet.http.problems import Problem
from callsheet.kernel.contracts import ANY_TASK, CALLSHEET, OF_JOBS_ROUTE, POLICIES, TASKS, UNREGISTERED, write_policy
from callsheet.kernel.durations import milliseconds, seconds
from callsheet.kernel.errors import DependencyNotFound, InvalidInput
from callsheet.kernel.job import NewJob, OnDependencyFailure
from callsheet.kernel.new_jobs import IS_UUID, MAX_PRIORITY, MAX_TTL_S
from callsheet.kernel.retry import DEFAULT, Backoff, RetryPolicy
from callsheet.kernel.wire import encode

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.engine.task_register import TaskRecord
    from callsheet.http.keys import Principal

CONTRACTS = sorted({*ANY_TASK, *OF_JOBS_ROUTE.values()})
MAX_ATTEMPTS = 10_000
MAX_DEPENDENCIES = 100
MAX_DELAYS = 50
TENANT_PRIORITY = 100  # a tenant's jobs must not pass all others for ever
EPOCH_YEAR = 1970
LATEST_MS = 253_402_300_799_999  # the last millisecond of the year 9999
PRINTABLE = r"^[ -~]+$"
TEXT = r"^[^\x00-\x1f\x7f]+$"
QUEUE_NAME = r"^[ -?A-~]+$"  # printable, and no @: the server itself puts a job into its tenant's lane
DURATION = r"^(\d{1,9}(\.\d{1,3})?(ms|s|m|h|d|w))+$"


def _as_whole(value: object) -> object:
    """Return 3 for 3.0, which JSON Schema counts as an integer; other values stay unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _length(value: float | str) -> float | str:
    """Return a length of time unchanged if it is one of at most ten years; raises ValueError."""
    try:
        length_s = seconds(value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    if length_s > MAX_TTL_S:
        raise ValueError("must be at most ten years")
    return value


def _moment(value: int | str) -> int | str:
    """Return a moment unchanged if it is one; raises ValueError."""
    if isinstance(value, str):
        _epoch_ms(value)
    return value


def _epoch_ms(moment: int | str) -> int:
    if isinstance(moment, int):
        return moment
    text = "write ISO 8601 with a time zone (2026-11-20T09:00:00Z) or milliseconds since 1970"
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        raise ValueError(text) from None
    if at.tzinfo is None or at.year < EPOCH_YEAR:
        raise ValueError(text)
    return round(at.timestamp() * 1000)


AS_WHOLE = BeforeValidator(_as_whole)
Seconds = Annotated[float, Field(ge=0, le=MAX_TTL_S)]
Length = Annotated[
    Seconds | Annotated[str, Field(pattern=DURATION, max_length=40)],
    AfterValidator(_length),
    Field(description="Seconds, or text with units: `500ms`, `30s`, `10m`, `1h30m`, `2d`."),
]
Moment = Annotated[
    Annotated[int, Field(ge=0, le=LATEST_MS)]
    | Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})],
    AfterValidator(_moment),
]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=TEXT)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Concurrency(_Strict):
    """At most `limit` jobs with this key run at the same time."""

    key: Name
    limit: Annotated[Annotated[int, Field(ge=1, le=100_000)], AS_WHOLE] = 1


class Retry(_Strict):
    """Pauses before a failed attempt runs again: `delays`, or pauses that grow from `first` by `factor` to `most`."""

    delays: list[Length] | None = Field(default=None, min_length=1, max_length=MAX_DELAYS)
    first: Length = "1s"
    factor: float = Field(default=2.0, ge=1, le=100)
    most: Length = "1h"
    never: list[Name] = Field(default=[], max_length=100, description="Error codes that are final.")
    only: list[Name] | None = Field(default=None, max_length=100, description="Only these error codes are tried again.")

    def policy(self) -> RetryPolicy:
        """Return the engine's policy."""
        if self.delays is not None:
            table = tuple(milliseconds(delay) for delay in self.delays)
            policy = replace(DEFAULT, max_attempts=len(table) + 1, backoff=Backoff(table_ms=table))
        else:
            pauses = Backoff(base_ms=milliseconds(self.first), factor=self.factor, cap_ms=milliseconds(self.most))
            policy = replace(DEFAULT, backoff=pauses)
        retryable = frozenset(self.only) if self.only is not None else None
        return replace(policy, fatal=DEFAULT.fatal | set(self.never), retryable=retryable)


PolicyName = Annotated[str, Field(pattern=f"^({'|'.join(sorted(POLICIES))})$")]
Text = Annotated[str, Field(min_length=1, max_length=255, pattern=PRINTABLE)]


class JobOptions(_Strict):
    """The options of a new job, the same for every task."""

    queue: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        pattern=QUEUE_NAME,
        description="The task's own queue unless given, else `default`. An @ is for the server: it puts a job into the "
        "lane of its tenant.",
    )
    priority: Annotated[Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None, AS_WHOLE] = Field(
        default=None, description=f"Higher runs first. Beyond ±{TENANT_PRIORITY} for operators alone."
    )
    delay: Length | None = Field(default=None, description="The job starts no earlier: seconds, or text such as `10m`.")
    run_at: Moment | None = Field(
        default=None, description="In place of `delay`: ISO 8601 with a time zone, or milliseconds since 1970."
    )
    max_attempts: Annotated[Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)] | None, AS_WHOLE] = Field(
        default=None, description="Executions until it is a dead letter; the task's own number unless given."
    )
    retry: PolicyName | Retry | None = Field(default=None, description="The name of a policy, or a policy as data.")
    unique_key: Name | None = Field(
        default=None,
        description="While a job of this key is queued or running, the request answers with that job. Keys of one "
        "tenant do not meet those of another.",
    )
    concurrency: Concurrency | None = None
    depends_on: list[Annotated[str, Field(max_length=36)]] = Field(
        default=[], max_length=MAX_DEPENDENCIES, description="Ids of jobs of yours that must end first."
    )
    on_dependency_failure: Literal["cancel", "run"] = "cancel"
    ttl: Length | None = Field(default=None, description="How long the ended job is kept. In place of `ttl_s`.")
    ttl_s: Annotated[Annotated[int, Field(ge=1, le=366 * 86_400)] | None, AS_WHOLE] = Field(
        default=None, description="Seconds; the server's JOB_TTL_S unless given."
    )
    correlation_id: Text | None = Field(default=None, description="Your own id; the request's id unless given.")

    @model_validator(mode="after")
    def _one_of_two(self) -> JobOptions:
        """Refuse two options that say the same thing."""
        for one, other in (("delay", "run_at"), ("ttl", "ttl_s")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"{other}: give either {one} or {other}, not both")
        if self.ttl is not None and seconds(self.ttl) < 1:
            raise ValueError("ttl: must be at least one second")
        return self

    def fields(self) -> dict[str, Any]:
        """Return the options that were given, as fields of NewJob; keys are not yet the tenant's own."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in ("queue", "priority", "max_attempts")}
        fields |= {"correlation_id": self.correlation_id, "unique_key": self.unique_key}
        if self.delay is not None:
            fields["delay_ms"] = milliseconds(self.delay)
        if self.run_at is not None:
            fields["run_at"] = _epoch_ms(self.run_at)
        if self.retry is not None:
            fields["retry"] = _policy_text(self.retry)
            if isinstance(self.retry, Retry) and self.retry.delays and self.max_attempts is None:
                fields["max_attempts"] = len(self.retry.delays) + 1
        if self.ttl is not None:
            fields["ttl_s"] = round(seconds(self.ttl))
        if self.ttl_s is not None:
            fields["ttl_s"] = self.ttl_s
        if self.concurrency is not None:
            fields |= {"concurrency_key": self.concurrency.key, "concurrency_limit": self.concurrency.limit}
        if self.depends_on:
            fields["depends_on"] = tuple(dict.fromkeys(self.depends_on))
            fields["on_dependency_failure"] = OnDependencyFailure(self.on_dependency_failure)
        return {name: value for name, value in fields.items() if value is not None}


class CreateJob(JobOptions):
    """A new job of any task.

    The gateway's own tasks (`chat`, `plan`, `code`, `tool`, `rag`, `embed`) take an object as their payload. Any other
    task must be known to the server by a worker that serves it (`GET /v1/tasks`), and its payload is checked by the
    task's schema; `unchecked` skips both.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"task": "chat", "payload": {"prompt": "Say hello."}, "ttl_s": 3600},
                {"task": "shop.resize", "payload": {"url": "https://example.org/cat.png"}, "delay": "10m",
                 "unique_key": "cat.png", "unchecked": True},
            ]
        }
    )  # fmt: skip
    task: str = Field(min_length=1, max_length=255, pattern=PRINTABLE)
    payload: JsonValue = Field(default=None, description="The task's arguments: an object of at most about 200 KB.")
    contract: Annotated[str, Field(pattern=f"^({'|'.join(CONTRACTS)})$")] | None = Field(
        default=None, description="`control_plane` makes a job for workers of contract 003, with any task and payload."
    )
    unchecked: bool = Field(default=False, description="Accept a task that no worker has registered, unchecked.")

    @model_validator(mode="after")
    def _gateway_payload(self) -> CreateJob:
        """Refuse a payload of the gateway's own tasks that is no object."""
        if self.is_gateway and not isinstance(self.payload, dict):
            raise ValueError("payload: must be an object")
        return self

    @property
    def is_gateway(self) -> bool:
        """Whether this is a job of the contract whose own route this is."""
        own = OF_JOBS_ROUTE.get(self.task)
        return own is not None and (self.contract or own) == own

    @property
    def is_open(self) -> bool:
        """Whether the task needs no record in the register."""
        return self.is_gateway or self.unchecked or self.contract in UNREGISTERED

    def contract_with(self, record: TaskRecord | None) -> str:
        """Return the contract of the new job, given its task's record; raises Problem `task_reserved`."""
        if self.is_gateway:
            return OF_JOBS_ROUTE[self.task]
        task_owner = record.contract if record is not None else ""
        contract = self.contract or task_owner or CALLSHEET.name
        if contract not in ANY_TASK or task_owner not in ("", contract) or TASKS.get(self.task, contract) != contract:
            raise reserved_task_problem(self.task, task_owner)
        return contract


def new_job(body: CreateJob, who: Principal, record: TaskRecord | None, *, ttl_s: int, request_id: str) -> NewJob:
    """Return the engine's record of a new job: given options first, then the registered task's, then the server's."""
    fields = body.fields()
    _check_priority(who, fields.get("priority", 0))
    for name in ("unique_key", "concurrency_key"):
        if name in fields:
            fields[name] = own_key(who.requester_id, fields[name])
    own = {} if record is None else _options_of(record)
    contract = body.contract_with(record)
    fields = {"ttl_s": ttl_s, "correlation_id": request_id, "contract": contract, **own, **fields}
    payload = {} if body.payload is None and contract not in UNREGISTERED else body.payload
    return NewJob(new_id(), body.task, encode(payload), requester_id=who.requester_id, **fields)


def own_key(requester_id: str, key: str) -> str:
    """Return a key that no other tenant can spell; a requester without a name has the plain key."""
    if requester_id:
        return f"@{quote(requester_id, safe='')}:{key}"
    if key.startswith("@"):
        raise Problem(
            "validation_failed", "a key that begins with @ is a tenant's; let yours begin with something else"
        )
    return key


async def check_dependencies(engine: Engine, who: Principal, job_ids: tuple[str, ...]) -> None:
    """Raise DependencyNotFound for jobs that do not exist or belong to another tenant."""
    valid_ids = [job_id for job_id in job_ids if IS_UUID(job_id)]
    jobs = await engine.store.get(valid_ids) if valid_ids else []
    mine = {job.job_id for job in jobs if job is not None and who.sees in (None, job.requester_id)}
    if missing := [job_id for job_id in job_ids if job_id not in mine]:
        raise DependencyNotFound(f"depends_on: there is no job {missing[0]}; name jobs of your own that are still kept")


def _check_priority(who: Principal, priority: int) -> None:
    if who.sees is not None and abs(priority) > TENANT_PRIORITY:
        raise Problem("validation_failed", f"priority: must be within ±{TENANT_PRIORITY} with a tenant's key")


def _options_of(record: TaskRecord) -> dict[str, Any]:
    """Return the options that a registered task declares."""
    own = {"queue": record.queue, "priority": record.priority, "retry": record.retry}
    own |= {"max_attempts": record.max_attempts, "ttl_s": record.ttl_s}
    return {name: value for name, value in own.items() if value not in (None, "")}


def _policy_text(retry: str | Retry) -> str:
    return write_policy(retry.policy()) if isinstance(retry, Retry) else retry
