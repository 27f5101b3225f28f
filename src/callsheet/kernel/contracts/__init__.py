"""The five published contracts and our own, as tables. A new contract is a new table, not a new branch in code.

Each file here holds the data of one contract: words, moves, retry policy, stages and phases, callback body, tasks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from callsheet.kernel.errors import InvalidJob
from callsheet.kernel.retry import DEFAULT, OUTBOX, Backoff, RetryPolicy
from callsheet.kernel.wire import encode

from .aura import AURA
from .callsheet import CALLSHEET
from .control_plane import CONTROL_PLANE
from .cortana import CORTANA
from .euterpe import EUTERPE
from .redis_gateway import REDIS_GATEWAY

if TYPE_CHECKING:
    from callsheet.kernel.lifecycle import Lifecycle

__all__ = [
    "ANY_TASK",
    "AURA",
    "CALLSHEET",
    "CONTRACTS",
    "CONTROL_PLANE",
    "CORTANA",
    "EUTERPE",
    "EXPIRING",
    "FOREIGN",
    "OF_JOBS_ROUTE",
    "PAYLOAD_CHECKED",
    "POLICIES",
    "REDIS_GATEWAY",
    "RESUMABLE",
    "SHARED_CONTRACTS",
    "TASKS",
    "UNREGISTERED",
    "WITH_CALLBACKS",
    "lifecycle_of",
    "read_policy",
    "write_policy",
]  # fmt: skip

CONTRACTS = {c.name: c for c in (CALLSHEET, EUTERPE, REDIS_GATEWAY, CORTANA, CONTROL_PLANE, AURA)}

TASKS = {task: c.name for c in CONTRACTS.values() for task in c.tasks}
"""The built-in tasks, each with its contract: only the contract's own route creates jobs of the task."""

JOBS_ROUTE = "POST /v1/jobs"
OF_JOBS_ROUTE = {task: c.name for c in CONTRACTS.values() if c.route == JOBS_ROUTE for task in c.tasks}
"""The tasks of the contract whose own route is that of all jobs, each with the contract."""

ANY_TASK = frozenset(c.name for c in CONTRACTS.values() if c.any_task)
UNREGISTERED = frozenset(c.name for c in CONTRACTS.values() if c.unregistered)
WITH_CALLBACKS = frozenset(c.name for c in CONTRACTS.values() if c.callback)
RESUMABLE = frozenset(c.name for c in CONTRACTS.values() if c.resumable)
PAYLOAD_CHECKED = frozenset(c.name for c in CONTRACTS.values() if c.payload_checked)
EXPIRING = frozenset(c.name for c in CONTRACTS.values() if c.expires)
(FOREIGN,) = SHARED_CONTRACTS = frozenset(c.name for c in CONTRACTS.values() if c.is_shared)
"""The contract of a job that another program has written."""

POLICIES = {**{c.policy: c.retry for c in CONTRACTS.values()}, "outbox": OUTBOX}
"""The retry policies by the names that jobs carry; a job carries a policy without a name as JSON."""


def lifecycle_of(contract: str) -> Lifecycle:
    """Return the lifecycle of a contract by name; raises InvalidJob for an unknown contract."""
    try:
        return CONTRACTS[contract]
    except KeyError:
        message = f"unknown contract {contract!r}; known are {', '.join(sorted(CONTRACTS))}"
        raise InvalidJob(message) from None


def write_policy(policy: RetryPolicy) -> str:
    """Return a policy as text that a job can carry: the policy's name, or JSON if the policy has no name."""
    for name, candidate in POLICIES.items():
        if candidate == policy:
            return name
    return encode({k: sorted(v) if isinstance(v, frozenset) else v for k, v in asdict(policy).items()})


@lru_cache(maxsize=512)
def read_policy(text: str) -> RetryPolicy:
    """Parse the text of `write_policy`; raises InvalidJob for an unknown name or field."""
    if text in POLICIES:
        return POLICIES[text]
    try:
        fields: dict[str, Any] = json.loads(text)
        for name, value in fields.items():
            if name.endswith("backoff"):
                parts: dict[str, Any] = {k: tuple(v) if k == "table_ms" else v for k, v in value.items()}
                fields[name] = Backoff(**parts)
            elif isinstance(value, list):
                fields[name] = frozenset(value)
        return replace(DEFAULT, **fields)
    except (ValueError, TypeError, AttributeError) as error:
        names = ", ".join(POLICIES)
        raise InvalidJob(f"retry policy {text!r} is neither {names} nor the JSON of a RetryPolicy ({error})") from None
