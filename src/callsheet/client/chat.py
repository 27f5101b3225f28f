"""Payload, token events and result text of chat, plan and code jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TOKEN = "token"  # noqa: S105 - the type of an event
VOID = frozenset(
    {"restart", "retrying", "lease_lost", "released", "waiting", "requeued"}
)  # after these the answer starts again
Messages = Sequence[Mapping[str, Any]]


def question(messages: str | Messages, *, system: str = "", model: str | None = None) -> dict[str, Any]:
    """Return the payload for one prompt or for a conversation."""
    asked: dict[str, Any] = (
        {"prompt": messages} if isinstance(messages, str) else {"messages": list(map(dict, messages))}
    )
    return asked | {name: value for name, value in (("system", system), ("model", model)) if value}


def token(data: Mapping[str, Any]) -> str:
    """Return the text of a token event."""
    return str(data.get("text") or "")


def answer(result: Any) -> str:
    """Return the text of a result, for tasks that send no token events."""
    text = result.get("text") if isinstance(result, Mapping) else result
    return text if isinstance(text, str) else json.dumps(result, ensure_ascii=False)
