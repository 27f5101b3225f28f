"""Tables of jobs for people. Programs take `--json`."""

from __future__ import annotations

from collections.abc import Sequence

from callsheet.kernel.job import Attempt, Event, Job, Status
from callsheet.kernel.wire import decode

from .drawing import Console, Table, escape
from .records import as_json, bar, message, moment, reason, span, trace

PIPED_WIDTH = 200
SHOWN_EVENTS = 100
STYLES = {
    Status.QUEUED: "cyan",
    Status.RUNNING: "blue",
    Status.SUCCEEDED: "green",
    Status.FAILED: "red",
    Status.DEAD_LETTER: "red",
    Status.CANCELED: "yellow",
}


def console(*, stderr: bool = False) -> Console:
    """Where to draw; wide enough for whole rows where no terminal sets the width."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=PIPED_WIDTH)


def show_jobs(jobs: Sequence[Job], now: int) -> None:
    """One row for each job."""
    rows = table("id", "task", "queue", "status", "progress", "tries", "age")
    for job in jobs:
        tries = f"{job.attempt_count}/{job.max_attempts}"
        age = span(now - job.created_at)
        rows.add_row(job.job_id, escape(job.kind), escape(job.queue), _status(job), bar(job.progress), tries, age)
    console().print(rows)


def show_dead(jobs: Sequence[Job], now: int) -> None:
    """Dead letters with their reasons."""
    rows = table("id", "task", "queue", "tries", "ended", "reason")
    for job in jobs:
        ended = f"{span(now - (job.ended_at or now))} ago"
        why = escape(reason(job.error))
        rows.add_row(job.job_id, escape(job.kind), escape(job.queue), str(job.attempt_count), ended, why)
    console().print(rows)


def show_job(job: Job, attempts: Sequence[Attempt], events: Sequence[Event]) -> None:
    """All of one job."""
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
    out.print(_events(events[-SHOWN_EVENTS:]))
    if job.error is not None:
        out.print(f"\n[bold red]error[/] {escape(reason(job.error))}")
        if traceback := trace(job.error):
            out.print(escape(traceback), soft_wrap=True)


def table(*columns: str) -> Table:
    """A table without lines; ids are never folded."""
    made = Table()
    for name in columns:
        whole = name in ("id", "status", "progress", "tries", "age", "ended")
        made.add_column(name, no_wrap=whole, min_width=36 if name == "id" else None)
    return made


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
    rows = table("id", "at", "type", "step", "progress", "said")
    rows.columns[0].min_width = None
    for event in events:
        said = message(event) or ("" if event.data == "{}" else str(decode(event.data).get("code", "")))
        step, kind = escape(event.step), escape(event.type)
        rows.add_row(event.id, moment(event.ms), kind, step, f"{event.progress:g}%", escape(said))
    return rows


def _earlier(count: int) -> str:
    return f" (the last {SHOWN_EVENTS} of {count})" if count > SHOWN_EVENTS else ""
