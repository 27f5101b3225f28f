"""JSON text at the edge of the kernel, and the text form of event ids.

Stores carry JSON as text and never parse it; values are encoded once on entry and decoded by their readers.
"""

from __future__ import annotations

import json
from typing import Any

from .errors import InvalidInput, NotJson, PayloadTooLarge

PAYLOAD_LIMIT_BYTES = 200 * 1024


def encode(value: Any, *, limit_bytes: int = PAYLOAD_LIMIT_BYTES) -> str:
    """Return a value as compact JSON; raises NotJson or PayloadTooLarge, never casts."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        message = f"value is not JSON ({error}); pass only dict, list, str, int, finite float, bool and None"
        raise NotJson(message) from error
    _check_size(size, limit_bytes)
    return text


def check_json(text: str, *, limit_bytes: int = PAYLOAD_LIMIT_BYTES) -> None:
    """Raise NotJson if the text is not JSON, PayloadTooLarge if the text is over the limit."""
    try:
        size = len(text) if text.isascii() else len(text.encode())
        if size <= limit_bytes:
            _check_text(text)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"payload is not JSON text ({error}); make it with callsheet.kernel.wire.encode") from error
    _check_size(size, limit_bytes)


def clean(text: str, limit: int = 4_000) -> str:
    """Return text of any origin (an error's message, a reason) cut to `limit` and valid for every store."""
    return text[:limit].encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


_STRICT = json.JSONDecoder(parse_constant=_no_constant)


def _check_text(text: str) -> None:
    try:
        _, end = _STRICT.scan_once(text, 0)  # type: ignore[attr-defined] # what decode() does, without its white space
    except StopIteration:
        end = -1
    if end != len(text):
        _STRICT.decode(text)


def _check_size(size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        advice = "put large data in the object store and pass its key"
        raise PayloadTooLarge(f"payload has {size} bytes, the limit is {limit_bytes}; {advice}")


def decode(text: str) -> Any:
    """Parse JSON text that `encode` wrote."""
    return json.loads(text)


def event_id(ms: int, seq: int) -> str:
    """Return an event's id as text, the same on every store: `{ms}-{seq}`."""
    return f"{ms}-{seq}"


def parse_event_id(text: str) -> tuple[int, int]:
    """Parse `{ms}-{seq}`; raises InvalidInput for any other text."""
    ms, dash, seq = text.partition("-")
    if dash and len(text) <= 40 and ms.isascii() and seq.isascii() and ms.isdigit() and seq.isdigit():  # noqa: PLR2004
        return int(ms), int(seq)
    message = "an event id looks like 1704067200000-5: milliseconds, a dash, the job's event number"
    raise InvalidInput(message)
