"""What a chat, plan or code job is asked and how it answers: its payload, its tokens, its whole text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TOKEN = "token"  # noqa: S105 - the type of an event
VOID = frozenset(
    {"restart", "retrying", "lease_lost", "released", "waiting", "requeued"}
)  # after these all is said anew
Messages = Sequence[Mapping[str, Any]]


def question(messages: str | Messages, *, system: str = "", model: str | None = None) -> dict[str, Any]:
    """The payload for one text or a conversation."""
    asked: dict[str, Any] = (
        {"prompt": messages} if isinstance(messages, str) else {"messages": list(map(dict, messages))}
    )
    return asked | {name: value for name, value in (("system", system), ("model", model)) if value}


def token(data: Mapping[str, Any]) -> str:
    """The text of a token event."""
    return str(data.get("text") or "")


def answer(result: Any) -> str:
    """The text of a result, for tasks that do not send tokens."""
    text = result.get("text") if isinstance(result, Mapping) else result
    return text if isinstance(text, str) else json.dumps(result, ensure_ascii=False)
