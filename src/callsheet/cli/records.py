"""Jobs, attempts and events as the command line shows them: as JSON, and as the words in its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from callsheet.kernel.job import Attempt, Event, Job, Json
from callsheet.kernel.wire import decode

TEXTS_OF_JSON = frozenset({"payload", "result", "error", "data"})
TIMES = frozenset({"run_at", "lease_expires_at", "heartbeat_at", "ms"})
UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
BAR = 10


def as_json(record: Job | Attempt | Event) -> dict[str, Any]:
    """A record with its JSON read and its times in RFC 3339."""
    told: dict[str, Any] = {}
    for name, value in record._asdict().items():
        if name in TEXTS_OF_JSON:
            told[name] = None if value is None else decode(value)
        elif value is not None and (name.endswith("_at") or name in TIMES):
            told["at" if name == "ms" else name] = moment(value)
        else:
            told[name] = value
    return told


def print_json(value: Any) -> None:
    """Print a value as JSON, for people and programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def moment(ms: int) -> str:
    """A time of the store in RFC 3339, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(ms: int) -> str:
    """A length of time in one or two units: `45s`, `3m 20s`, `2d 4h`."""
    rest = max(0, ms) // 1000
    parts = []
    for size, unit in UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def bar(percent: float) -> str:
    """Progress as text: `█████░░░░░ 50%`."""
    full = round(percent / 100 * BAR)
    return f"{'█' * full}{'░' * (BAR - full)} {percent:3.0f}%"


def reason(error: Json | None) -> str:
    """An error's code and message on one line."""
    if error is None:
        return ""
    told = decode(error)
    if not isinstance(told, Mapping):
        return str(told)
    return " ".join(f"{told.get('code', 'error')}: {told.get('message', '')}".split())


def trace(error: Json | None) -> str:
    """The traceback that an error carries, else nothing."""
    told = decode(error) if error is not None else {}
    details = told.get("details") if isinstance(told, Mapping) else None
    found = details.get("traceback") if isinstance(details, Mapping) else None
    return str(found or "").rstrip()


def message(event: Event) -> str:
    """What an event says in words, if it does."""
    data = decode(event.data)
    if not isinstance(data, Mapping):
        return ""
    return str(data.get("message") or data.get("reason") or "")
