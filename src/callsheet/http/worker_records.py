"""Enrolled workers as records, and how they stand in the store's documents."""

from __future__ import annotations

from typing import Any, NamedTuple

LIFE_S = 3600  # of a worker's token, unless its enrolment says
ROTATE_AT = 0.75


class Enrolment(NamedTuple):
    """A right to become a worker, `uses_left` times. `queues` and `tenants` None are all."""

    enrolment_id: str
    queues: tuple[str, ...] | None
    tenants: tuple[str, ...] | None
    uses_left: int
    token_life_s: int
    created_at: int
    expires_at: int


class Worker(NamedTuple):
    """A worker as it is known; times are milliseconds of the store's clock. `last_seen_at` None: never since."""

    worker_id: str
    name: str
    queues: tuple[str, ...] | None = None
    tenants: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    version: str = ""
    protocol: int = 1
    token_life_s: int = LIFE_S
    created_at: int | None = None
    token_expires_at: int | None = None
    draining_at: int | None = None
    revoked_at: int | None = None
    last_seen_at: int | None = None
    running: int = 0
    token_reused_at: int | None = None


class WorkerEvent(NamedTuple):
    """Something that operators are to hear of, such as `token_reused`. `tenants` None are all."""

    name: str
    worker_id: str
    tenants: tuple[str, ...] | None
    at: int
    detail: str


class Token(NamedTuple):
    """A worker's new token, told once."""

    text: str
    worker: Worker

    @property
    def rotate_after_s(self) -> float:
        """When to ask for the next."""
        return self.worker.token_life_s * ROTATE_AT


def body_of(worker: Worker) -> dict[str, Any]:
    """What is kept in the worker's own document."""
    return {name: value for name, value in worker._asdict().items() if name not in ("last_seen_at", "running")}


def worker_from(body: dict[str, Any]) -> Worker:
    """A worker as its document tells of it."""
    return Worker(**fields_of(Worker._fields, body))


def fields_of(names: tuple[str, ...], body: dict[str, Any]) -> dict[str, Any]:
    """A record's fields from its document, where tuples stand as lists."""
    found = {name: body[name] for name in names if name in body}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def with_sign(worker: Worker, sign: dict[str, Any]) -> Worker:
    """A worker with its last sign of life."""
    return worker._replace(
        last_seen_at=sign["at"],
        running=sign["running"],
        labels=tuple(sign["labels"]) or worker.labels,
        version=sign["version"] or worker.version,
    )
