"""Records of enrolments, workers and tokens, and their conversion to store documents."""

from __future__ import annotations

from typing import Any, NamedTuple

LIFE_S = 3600  # default lifetime of a worker's token
ROTATE_AT = 0.75


class Enrolment(NamedTuple):
    """Permission to enrol `uses_left` workers. `queues` and `tenants` None mean all of them."""

    enrolment_id: str
    queues: tuple[str, ...] | None
    tenants: tuple[str, ...] | None
    uses_left: int
    token_life_s: int
    created_at: int
    expires_at: int


class Worker(NamedTuple):
    """A worker. Times are milliseconds of the store's clock. `last_seen_at` None: no sign of life yet."""

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
    """A worker's event for operators, such as `token_reused`. `tenants` None means all tenants."""

    name: str
    worker_id: str
    tenants: tuple[str, ...] | None
    at: int
    detail: str


class Token(NamedTuple):
    """A worker's new token; its text is stored nowhere."""

    text: str
    worker: Worker

    @property
    def rotate_after_s(self) -> float:
        """Seconds after which the worker should request its next token."""
        return self.worker.token_life_s * ROTATE_AT


def body_of(worker: Worker) -> dict[str, Any]:
    """Return the fields for the worker's own document: all except its last sign of life."""
    return {name: value for name, value in worker._asdict().items() if name not in ("last_seen_at", "running")}


def worker_from(body: dict[str, Any]) -> Worker:
    """Return the Worker of a stored document."""
    return Worker(**fields_of(Worker._fields, body))


def fields_of(names: tuple[str, ...], body: dict[str, Any]) -> dict[str, Any]:
    """Return a record's fields from a document, converting lists to tuples."""
    fields = {name: body[name] for name in names if name in body}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def with_sign(worker: Worker, sign: dict[str, Any]) -> Worker:
    """Return a worker updated with its last sign of life."""
    return worker._replace(
        last_seen_at=sign["at"],
        running=sign["running"],
        labels=tuple(sign["labels"]) or worker.labels,
        version=sign["version"] or worker.version,
    )
