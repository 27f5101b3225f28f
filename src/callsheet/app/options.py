"""The keywords of `@app.task` and of `enqueue`, and their conversion to definitions and jobs."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from callsheet.engine.ids import new_id
from callsheet.engine.lanes import lane_name
from callsheet.kernel.contracts import lifecycle_of, read_policy, write_policy
from callsheet.kernel.durations import Duration, milliseconds, seconds
from callsheet.kernel.errors import InvalidInput, InvalidTask
from callsheet.kernel.job import Idempotency, Json, NewJob, OnDependencyFailure
from callsheet.kernel.retry import DEFAULT, Backoff, RetryPolicy
from callsheet.worker.definition import Definition, Executor

Retries = RetryPolicy | Backoff | str | Sequence[Duration] | bool


class TaskOptions(TypedDict, total=False):
    """`@app.task(…)`. `timeout` limits one attempt; `retry` is a policy, a backoff, or delays: `["1m", "5m"]`.

    `needs`: required labels of a worker, such as `["gpu"]`. `contract`: only jobs of this contract run the task; over
    HTTP only that contract's route creates such jobs.
    """

    name: str
    queue: str
    needs: Sequence[str]
    priority: int
    max_attempts: int
    timeout: Duration
    retry: Retries
    ttl: Duration
    executor: Executor
    contract: str


class JobOptions(TypedDict, total=False):
    """Keywords of `task.options(…)` and `task.enqueue(…)`. `ttl`: the time until an ended job is deleted."""

    queue: str
    needs: Sequence[str]
    priority: int
    delay: Duration
    run_at: datetime
    max_attempts: int
    unique_key: str
    idempotency_key: str
    concurrency_key: str
    concurrency_limit: int
    depends_on: Any
    on_dependency_failure: OnDependencyFailure
    ttl: Duration
    requester_id: str
    correlation_id: str
    job_id: str


LABEL = re.compile(r"[A-Za-z0-9_.-]{1,50}").fullmatch
JOB_OPTIONS = frozenset(JobOptions.__annotations__)
_SAME = (
    "queue",
    "priority",
    "max_attempts",
    "unique_key",
    "concurrency_key",
    "concurrency_limit",
    "requester_id",
    "correlation_id",
    "job_id",
)


def definition_of(function: Callable[..., Any], options: TaskOptions) -> Definition:
    """Return the definition of a function with its options; raises InvalidTask."""
    if unknown := options.keys() - TaskOptions.__annotations__.keys():
        raise InvalidTask(f"@app.task has no option {', '.join(sorted(unknown))}")
    name = options.get("name") or function.__name__
    reserved_names = JOB_OPTIONS & set(inspect.signature(function).parameters)
    if reserved_names:
        raise InvalidTask(
            f"task {name}: {', '.join(sorted(reserved_names))} is an option of enqueue; rename the parameter"
        )
    default: Executor = "async" if inspect.iscoroutinefunction(function) else "thread"
    policy, attempts = _policy(options.get("retry"))
    return Definition(
        name,
        function,
        queue=lane_name(options.get("queue", "default"), _labels(options.get("needs", ()))),
        priority=options.get("priority", 0),
        max_attempts=options.get("max_attempts", attempts),
        timeout_s=seconds(options["timeout"]) if "timeout" in options else None,
        retry=policy,
        ttl_s=_whole_seconds(options["ttl"]) if "ttl" in options else None,
        executor=options.get("executor", default),
        contract=lifecycle_of(options["contract"]).name if "contract" in options else "",
    )


def _policy(retry: Retries | None) -> tuple[str, int | None]:
    """Return a retry policy as text, and its number of attempts if given."""
    match retry:
        case None | True:
            return "", None
        case False:
            return "", 1
        case str():
            read_policy(retry)
            return retry, None
        case RetryPolicy():
            return write_policy(retry), retry.max_attempts
        case Backoff():
            return write_policy(replace(DEFAULT, backoff=retry)), None
    table = tuple(milliseconds(delay) for delay in retry)
    return write_policy(replace(DEFAULT, max_attempts=len(table) + 1, backoff=Backoff(table_ms=table))), len(table) + 1


def job_of(definition: Definition, payload: Json, options: JobOptions, job_id: str = "") -> NewJob:
    """Return a new job of a task; raises InvalidInput for unknown or invalid options."""
    new = definition.new_job(job_id or new_id(), payload)
    if not options:
        return new
    if unknown := options.keys() - JOB_OPTIONS:
        raise InvalidInput(f"no option {', '.join(sorted(unknown))}; there are {', '.join(sorted(JOB_OPTIONS))}")
    more: dict[str, Any] = {name: options[name] for name in _SAME if name in options}  # type: ignore[literal-required]
    if "needs" in options:
        more["queue"] = lane_name(more.get("queue", new.queue), _labels(options["needs"]))
    if "delay" in options:
        more["delay_ms"] = milliseconds(options["delay"])
    if "run_at" in options:
        more["run_at"] = _epoch_ms(options["run_at"])
    if "ttl" in options:
        more["ttl_s"] = _whole_seconds(options["ttl"])
    if "depends_on" in options:
        more["depends_on"] = _ids(options["depends_on"])
    if "on_dependency_failure" in options:
        more["on_dependency_failure"] = OnDependencyFailure(options["on_dependency_failure"])
    if "idempotency_key" in options:
        more["idempotency"] = Idempotency(options["idempotency_key"], _digest(definition.name, payload))
    return new._replace(**more)


def _labels(needs: Sequence[str]) -> Sequence[str]:
    if isinstance(needs, str) or not all(LABEL(label) for label in needs):
        raise InvalidInput('needs is a list of labels of letters, digits, "_", "." and "-", such as ["gpu"]')
    return needs


def _ids(jobs: Any) -> tuple[str, ...]:
    """Return the job ids of one or several ids, handles or new jobs."""
    if isinstance(jobs, str) or hasattr(jobs, "job_id"):
        jobs = (jobs,)
    return tuple(job if isinstance(job, str) else job.job_id for job in jobs)


def _epoch_ms(at: datetime) -> int:
    if at.tzinfo is None:
        raise InvalidInput("run_at has no time zone; use datetime.now(UTC) + timedelta(…), or delay=")
    return round(at.timestamp() * 1000)


def _whole_seconds(duration: Duration) -> int:
    return max(1, round(seconds(duration)))


def _digest(kind: str, payload: Json) -> str:
    return hashlib.sha256(f"{kind}\0{payload}".encode()).hexdigest()
