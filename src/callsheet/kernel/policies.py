"""Retry policies as text: a job carries the name of its policy, or the policy's JSON if the policy has no name."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

from .contracts import RETRY_POLICIES
from .errors import InvalidJob
from .retry import DEFAULT, OUTBOX, Backoff, RetryPolicy
from .wire import encode

POLICIES = {"default": DEFAULT, **RETRY_POLICIES, "outbox": OUTBOX}


def write_policy(policy: RetryPolicy) -> str:
    """Return a policy as text that a job can carry: the policy's name, or JSON if the policy has no name."""
    for name, known in POLICIES.items():
        if known == policy:
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
        known = ", ".join(POLICIES)
        raise InvalidJob(f"retry policy {text!r} is neither {known} nor the JSON of a RetryPolicy ({error})") from None
