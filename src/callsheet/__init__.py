"""Callsheet: a durable job system for long, heavy work."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import Callsheet, JobHandle, Task
    from .engine.schedules import Schedule
    from .kernel.errors import CallsheetError, JobCanceled, JobFailed, Outage, ResultTimeout
    from .kernel.retry import Backoff, RetryPolicy
    from .worker import Worker
    from .worker.context import Context
    from .worker.pipeline import Pipeline
    from .worker.signals import Fatal, Retry, Snooze

__version__ = "0.1.0"
__all__ = [
    "Backoff",
    "Callsheet",
    "CallsheetError",
    "Context",
    "Fatal",
    "JobCanceled",
    "JobFailed",
    "JobHandle",
    "Outage",
    "Pipeline",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "Schedule",
    "Snooze",
    "Task",
    "Worker",
]
_HOMES = {
    "app": ("Callsheet", "JobHandle", "Task"),
    "engine.schedules": ("Schedule",),
    "kernel.errors": ("CallsheetError", "JobCanceled", "JobFailed", "Outage", "ResultTimeout"),
    "kernel.retry": ("Backoff", "RetryPolicy"),
    "worker": ("Worker",),
    "worker.context": ("Context",),
    "worker.pipeline": ("Pipeline",),
    "worker.signals": ("Fatal", "Retry", "Snooze"),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use: many programs need few modules."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"callsheet.{module}"), name)
    raise AttributeError(f"module 'callsheet' has no attribute {name!r}")
