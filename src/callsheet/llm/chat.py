"""One question to a chat model, its answer heard piece by piece."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .errors import AnswerTooLong, Away, CutOff, Garbled, LlmError, RequestRefused, Unavailable
from .post import AWAY, chunks_of, clipped, posted
from .settings import Endpoint
from .sse import data_of

Message = dict[str, Any]
Hear = Callable[[str], object]
ANSWER_CHARS = 900_000  # a result may have 1 MiB
END = "[DONE]"


@dataclass(frozen=True)
class Question:
    """What is asked. `options` go to the server as they are; the named fields overrule them."""

    messages: list[Message]
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def body(self, endpoint: Endpoint) -> dict[str, Any]:
        """The request as the server reads it."""
        named = {
            "model": self.model or endpoint.model or None,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "stop": self.stop,
            "messages": self.messages,
            "stream": True,
        }
        body = {"stream_options": {"include_usage": True}, **self.options}
        body |= {name: value for name, value in named.items() if value is not None}
        return {name: value for name, value in body.items() if value is not None}

    def after(self, *more: Message) -> Question:
        """The same conversation, some messages later."""
        return replace(self, messages=[*self.messages, *more])


@dataclass
class Answer:
    """What came back. `usage` is the server's own count of tokens."""

    text: str = ""
    model: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None

    def json(self) -> dict[str, Any]:
        """As a job's result."""
        return asdict(self)


async def ask(endpoint: Endpoint, question: Question, hear: Hear) -> Answer:
    """Ask, and hear each piece of text as it comes. Raises LlmError; leaving early closes the connection."""
    answer, pieces, length, ended = Answer(model=question.model or endpoint.model), [], 0, False
    async with posted(endpoint, "chat/completions", question.body(endpoint)) as response:
        async for data in data_of(chunks_of(response)):
            if data.strip() == END:
                ended = True
                break
            piece = _take(endpoint, data, answer)
            if piece:
                hear(piece)
                pieces.append(piece)
                length += len(piece)
            if length > ANSWER_CHARS:
                raise AnswerTooLong(f"the answer has more than {ANSWER_CHARS} characters; set max_tokens")
    if not ended and answer.finish_reason is None:
        raise CutOff("the model's answer broke off: the stream ended without its last event")
    answer.text = "".join(pieces)
    return answer


def _take(endpoint: Endpoint, data: str, answer: Answer) -> str:
    """The text of one event; what else it tells goes into the answer."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise Garbled(f"the server's stream has an event that is no JSON: {clipped(endpoint, data[:200])!r}") from None
    if not isinstance(event, dict):
        raise Garbled("the server's stream has an event that is no JSON object")
    if event.get("error"):
        raise _told(endpoint, event["error"])
    if isinstance(event.get("model"), str):
        answer.model = event["model"]
    if isinstance(event.get("usage"), dict):
        answer.usage = event["usage"]
    return _text(event, answer)


def _text(event: dict[str, Any], answer: Answer) -> str:
    try:
        choice = next((choice for choice in event.get("choices") or () if choice.get("index", 0) == 0), None)
        if choice is None:
            return ""
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        text = (choice.get("delta") or {}).get("content") or ""
    except (AttributeError, TypeError):
        raise Garbled("the server's stream has an event whose choices cannot be read") from None
    if not isinstance(text, str):
        raise Garbled("the server's stream has a piece that is no text")
    return text


def _told(endpoint: Endpoint, error: Any) -> LlmError:
    """An error in the middle of a stream: 429 and 502 to 504 are waited for, 4xx is for good, all else may pass."""
    details = error if isinstance(error, dict) else {"message": str(error)}
    said = f"the model gave up: {clipped(endpoint, str(details.get('message') or details))}"
    code = details.get("code")
    if isinstance(code, int) and code in AWAY:
        return Away(said)
    refused = isinstance(code, int) and 400 <= code < 500  # noqa: PLR2004 - HTTP's own numbers
    return RequestRefused(said) if refused else Unavailable(said)
