"""Send one question to a chat model and stream the answer, piece by piece.

`Tokens` groups an answer's text pieces, so that at most twenty events a second are written.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from callsheet.kernel.errors import CallsheetError
from callsheet.net.sse import Parser

from .errors import AnswerTooLong, Away, CutOff, Garbled, LlmError, RequestRefused, Unavailable
from .post import AWAY, chunks_of, clip, open_post
from .settings import Endpoint

Message = dict[str, Any]
Hear = Callable[[str], object]
ANSWER_CHARS = 900_000  # a result may have 1 MiB
END = "[DONE]"

PAUSE_S = 0.05
PIECE_CHARS = 16_000  # an event may have 200 KB


@dataclass(frozen=True)
class Question:
    """A request to a chat model. `options` are passed to the server unchanged; the named fields override them."""

    messages: list[Message]
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def body(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the request body in the form of OpenAI's API."""
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
        """Return the same conversation with more messages at its end."""
        return replace(self, messages=[*self.messages, *more])


@dataclass
class Answer:
    """The model's answer. `usage` is the server's own token count."""

    text: str = ""
    model: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None

    def json(self) -> dict[str, Any]:
        """Return the answer as a job's result."""
        return asdict(self)


async def ask(endpoint: Endpoint, question: Question, hear: Hear) -> Answer:
    """Send a question, and call `hear` with each piece of text. Raises LlmError; cancelling closes the connection."""
    answer, pieces, length, is_complete = Answer(model=question.model or endpoint.model), [], 0, False
    async with open_post(endpoint, "chat/completions", question.body(endpoint)) as response:
        async for data in _data_of(chunks_of(response)):
            if data.strip() == END:
                is_complete = True
                break
            piece = _take(endpoint, data, answer)
            if piece:
                hear(piece)
                pieces.append(piece)
                length += len(piece)
            if length > ANSWER_CHARS:
                raise AnswerTooLong(f"the answer has more than {ANSWER_CHARS} characters; set max_tokens")
    if not is_complete and answer.finish_reason is None:
        raise CutOff("the model's answer broke off: the stream ended without its last event")
    answer.text = "".join(pieces)
    return answer


async def _data_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield the `data` of each event; the last event needs no blank line. Raises Garbled for any other format."""
    parser = Parser(Garbled, strict=True)
    async for chunk in chunks:
        for frame in parser.feed(chunk):
            yield frame.data
    if (last := parser.flush()) is not None:
        yield last.data


def _take(endpoint: Endpoint, data: str, answer: Answer) -> str:
    """Return the text of one event, and store the event's model, usage and finish reason in `answer`."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise Garbled(f"the server's stream has an event that is no JSON: {clip(endpoint, data[:200])!r}") from None
    if not isinstance(event, dict):
        raise Garbled("the server's stream has an event that is no JSON object")
    if event.get("error"):
        raise _stream_error(endpoint, event["error"])
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


def _stream_error(endpoint: Endpoint, error: Any) -> LlmError:
    """Convert an error event: 429 and 502 to 504 mean retry later, other 4xx are final, the rest may pass."""
    details = error if isinstance(error, dict) else {"message": str(error)}
    message = f"the model gave up: {clip(endpoint, str(details.get('message') or details))}"
    code = details.get("code")
    if isinstance(code, int) and code in AWAY:
        return Away(message)
    is_refusal = isinstance(code, int) and 400 <= code < 500  # noqa: PLR2004 - HTTP's own numbers
    return RequestRefused(message) if is_refusal else Unavailable(message)


class Tokens:
    """Collect text pieces and emit them in groups. Leaving the block without an error emits the rest."""

    def __init__(self, emit: Callable[[str], object], pause_s: float = PAUSE_S) -> None:
        self._emit = emit
        self._pause_s = pause_s
        self._waiting: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if kind is None:
            self.flush()

    def __call__(self, text: str) -> None:
        """Add a piece of text; the first piece is emitted at once."""
        self._waiting.append(text)
        if self._timer is None:
            if self._loop.time() >= self._next_at:
                self.flush()
            else:  # the model may fall silent: collected text must not wait for the next piece
                self._timer = self._loop.call_at(self._next_at, self._flush_later)

    def flush(self) -> None:
        """Emit all collected text now."""
        text = "".join(self._waiting)
        self._waiting.clear()
        self._next_at = self._loop.time() + self._pause_s
        for start in range(0, len(text), PIECE_CHARS):
            self._emit(text[start : start + PIECE_CHARS])

    def _flush_later(self) -> None:
        self._timer = None
        with contextlib.suppress(CallsheetError):  # the claim is lost: the task learns of that by itself
            self.flush()
