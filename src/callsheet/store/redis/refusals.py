"""Refusals of scripts that may reject a whole call, and the errors that these refusals raise."""

from __future__ import annotations

from typing import Any

from callsheet.kernel.errors import DependencyNotFound, DuplicateJob, IdempotencyConflict, QueueFull, QuotaExceeded


def checked(reply: list[Any]) -> list[Any]:
    """Return a script's answers, or raise the error of its refusal."""
    verdict, *rest = reply
    if verdict == "ok":
        return rest
    kind, name, *more = rest
    if kind == "conflict":
        raise IdempotencyConflict(
            f"idempotency key {name.partition(':')[2]!r} was used with another request; use a new key"
        )
    if kind == "dependency":
        raise DependencyNotFound(f"job {name} depends on {more[0]}, which does not exist; enqueue that first")
    if kind == "full":
        raise QueueFull(name, int(more[0]))
    if kind == "quota":
        raise QuotaExceeded("queued", name, limit=int(more[0]), used=int(more[1]))
    if kind == "duplicate":
        raise DuplicateJob(f"a job with one of these ids exists already ({name}); use new ids")
    raise DuplicateJob(f"a key of these jobs is in use by an active one ({name})")
