"""Prints jobs, attempts and events: as tables for people, as JSON for programs (`--json`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from callsheet.kernel.job import Attempt, Event, Job, Json, Status
from callsheet.kernel.wire import decode

from .drawing import Console, Table, escape

JSON_FIELDS = frozenset({"payload", "result", "error", "data"})
TIMES = frozenset({"run_at", "lease_expires_at", "heartbeat_at", "ms"})
UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
BAR_CELLS = 10
PIPED_WIDTH = 200
MAX_EVENTS = 100
STYLES = {
    Status.QUEUED: "cyan",
    Status.RUNNING: "blue",
    Status.SUCCEEDED: "green",
    Status.FAILED: "red",
    Status.DEAD_LETTER: "red",
    Status.CANCELED: "yellow",
}


def as_json(record: Job | Attempt | Event) -> dict[str, Any]:
    """Return a record with its JSON texts decoded and its times in RFC 3339."""
    fields: dict[str, Any] = {}
    for name, value in record._asdict().items():
        if name in JSON_FIELDS:
            fields[name] = None if value is None else decode(value)
        elif value is not None and (name.endswith("_at") or name in TIMES):
            fields["at" if name == "ms" else name] = moment(value)
        else:
            fields[name] = value
    return fields


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def moment(ms: int) -> str:
    """Return a time of the store in RFC 3339, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(ms: int) -> str:
    """Return a duration in one or two units: `45s`, `3m 20s`, `2d 4h`."""
    rest = max(0, ms) // 1000
    parts = []
    for size, unit in UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def bar(percent: float) -> str:
    """Return progress as text: `█████░░░░░ 50%`."""
    full = round(percent / 100 * BAR_CELLS)
    return f"{'█' * full}{'░' * (BAR_CELLS - full)} {percent:3.0f}%"


def reason(error: Json | None) -> str:
    """Return an error's code and message on one line; '' without an error."""
    if error is None:
        return ""
    fields = decode(error)
    if not isinstance(fields, Mapping):
        return str(fields)
    return " ".join(f"{fields.get('code', 'error')}: {fields.get('message', '')}".split())


def trace(error: Json | None) -> str:
    """Return the traceback in an error; '' without one."""
    fields = decode(error) if error is not None else {}
    details = fields.get("details") if isinstance(fields, Mapping) else None
    traceback = details.get("traceback") if isinstance(details, Mapping) else None
    return str(traceback or "").rstrip()


def message(event: Event) -> str:
    """Return the message or reason in an event's data; '' without one."""
    data = decode(event.data)
    if not isinstance(data, Mapping):
        return ""
    return str(data.get("message") or data.get("reason") or "")


def console(*, stderr: bool = False) -> Console:
    """Return a console; without a terminal it is wide enough for whole rows."""
    terminal = Console(stderr=stderr)
    return terminal if terminal.is_terminal else Console(stderr=stderr, width=PIPED_WIDTH)


def show_jobs(jobs: Sequence[Job], now: int) -> None:
    """Print a table with one row for each job."""
    rows = table("id", "task", "queue", "status", "progress", "tries", "age")
    for job in jobs:
        tries = f"{job.attempt_count}/{job.max_attempts}"
        age = span(now - job.created_at)
        rows.add_row(job.job_id, escape(job.kind), escape(job.queue), _status(job), bar(job.progress), tries, age)
    console().print(rows)


def show_dead(jobs: Sequence[Job], now: int) -> None:
    """Print a table of dead letters with the reasons of their failures."""
    rows = table("id", "task", "queue", "tries", "ended", "reason")
    for job in jobs:
        age = f"{span(now - (job.ended_at or now))} ago"
        why = escape(reason(job.error))
        rows.add_row(job.job_id, escape(job.kind), escape(job.queue), str(job.attempt_count), age, why)
    console().print(rows)


def show_job(job: Job, attempts: Sequence[Attempt], events: Sequence[Event]) -> None:
    """Print all fields of a job, its attempts, its last events and its error."""
    out = console()
    fields = Table(show_header=False)
    fields.add_column(style="bold")
    fields.add_column()
    for name, value in as_json(job).items():
        if name not in ("error", "event_ms") and value not in (None, ""):
            fields.add_row(name, _status(job) if name == "status" else escape(_text(name, value, job)))
    out.print(fields)
    if attempts:
        out.print("\n[bold]attempts[/]")
        out.print(_attempts(attempts))
    out.print(f"\n[bold]events[/]{_earlier(len(events))}")
    out.print(_events(events[-MAX_EVENTS:]))
    if job.error is not None:
        out.print(f"\n[bold red]error[/] {escape(reason(job.error))}")
        if traceback := trace(job.error):
            out.print(escape(traceback), soft_wrap=True)


def table(*columns: str) -> Table:
    """Return an empty table of these columns; ids are never folded."""
    empty = Table()
    for name in columns:
        whole = name in ("id", "status", "progress", "tries", "age", "ended")
        empty.add_column(name, no_wrap=whole, min_width=36 if name == "id" else None)
    return empty


def _status(job: Job) -> str:
    waits = f" ({job.held.value})" if job.held is not None else ""
    ends = " (cancel requested)" if job.cancel_requested_at is not None and not job.status.terminal else ""
    return f"[{STYLES[job.status]}]{job.status.value}[/]{waits}{ends}"


def _text(name: str, value: object, job: Job) -> str:
    if name == "progress":
        return bar(job.progress)
    if name in ("payload", "result"):
        return job.payload if name == "payload" else job.result or ""
    return str(value)


def _attempts(attempts: Sequence[Attempt]) -> Table:
    rows = table("attempt", "worker", "started", "took", "outcome", "error")
    for attempt in attempts:
        took = "" if attempt.ended_at is None else f"{(attempt.ended_at - attempt.started_at) / 1000:.3f} s"
        outcome = attempt.outcome.value if attempt.outcome is not None else "running"
        worker, why = escape(attempt.worker_id), escape(reason(attempt.error))
        rows.add_row(str(attempt.attempt), worker, moment(attempt.started_at), took, outcome, why)
    return rows


def _events(events: Sequence[Event]) -> Table:
    rows = table("id", "at", "type", "step", "progress", "message")
    rows.columns[0].min_width = None
    for event in events:
        text = message(event) or ("" if event.data == "{}" else str(decode(event.data).get("code", "")))
        step, kind = escape(event.step), escape(event.type)
        rows.add_row(event.id, moment(event.ms), kind, step, f"{event.progress:g}%", escape(text))
    return rows


def _earlier(count: int) -> str:
    return f" (the last {MAX_EVENTS} of {count})" if count > MAX_EVENTS else ""
