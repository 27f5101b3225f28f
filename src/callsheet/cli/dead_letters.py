"""`callsheet dead-letters`: show jobs that failed in all their attempts, replay them, or delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypedDict, Unpack

import click

from callsheet.engine import Engine, dead_letters
from callsheet.engine.dead_letters import Done, Wanted
from callsheet.engine.operations import ACT_OF
from callsheet.kernel.job import Claim, Job
from callsheet.kernel.workers import name_of

from .command_settings import DEAD_LIST, DEAD_PURGE, DEAD_REPLAY, STORE_JSON
from .errors import CommandFailed
from .open_store import find_job_ids, record_audit, with_engine
from .options import settings
from .output import as_json, console, print_json, reason, show_dead, show_job
from .progress_view import Progress, bar, count, remaining, text

PAGE = 500
BATCH = 100
Change = Callable[[Engine, Sequence[Claim]], Awaitable[Done]]
EPILOG = """\b
Examples:
  callsheet dead-letters list --error-code oom
  callsheet dead-letters show 0198c1f2-7b3e
  callsheet dead-letters replay 0198c1f2-7b3e
  callsheet dead-letters replay --task resize --rate 20 --yes
  callsheet dead-letters purge --ended-to 2026-01-01T00:00:00Z

An id may be shortened to its first 8 characters or more, if these are unique."""


class Filter(TypedDict, total=False):
    """The filters and options of the commands."""

    ended_as: str
    queue: str | None
    task: str | None
    contract: str | None
    error_code: str | None
    created_from: datetime | None
    created_to: datetime | None
    ended_from: datetime | None
    ended_to: datetime | None
    limit: int | None
    rate: int | None
    json: bool
    yes: bool


@click.group("dead-letters", epilog=EPILOG)
def command() -> None:
    """List, show, replay and purge jobs that failed in all their attempts."""


@command.command("list", epilog="\b\nExample:\n  callsheet dead-letters list --task resize --error-code oom")
@settings(DEAD_LIST)
@with_engine()
async def list_(engine: Engine, **arguments: Unpack[Filter]) -> None:
    """Show the newest dead letters as a table with their reasons, or all their fields as JSON."""
    jobs, more = await _first(engine, _selection(arguments), arguments["limit"] or PAGE)
    if arguments["json"]:
        print_json([_as_json(job) for job in jobs])
    elif jobs:
        show_dead(jobs, await engine.store.now())
        if more:
            click.echo(f"there are more than {len(jobs)}; ask for them with --limit", err=True)
    else:
        click.echo("no dead letters")


@command.command("show", epilog="\b\nExample:\n  callsheet dead-letters show 0198c1f2-7b3e --json")
@click.argument("job_id", metavar="ID")
@settings(STORE_JSON)
@with_engine()
async def show(engine: Engine, job_id: str, *, json: bool) -> None:
    """Show one dead letter: its error, advice, and every attempt."""
    job = await _dead_letter(engine, job_id)
    attempts = [a._replace(worker_id=name_of(a.worker_id)) for a in await engine.store.attempts(job.job_id)]
    if json:
        print_json({**_as_json(job), "attempts": [as_json(attempt) for attempt in attempts]})
        return
    events = await engine.store.events({job.job_id: max(0, job.event_seq - PAGE)}, PAGE)
    show_job(job._replace(worker_id=name_of(job.worker_id or "")), attempts, events)
    diagnosis = dead_letters.diagnose(job)
    console().print(f"\n[bold]{diagnosis.error_class}[/]: {diagnosis.advice}", soft_wrap=True)


@command.command(
    "replay",
    epilog="\b\nExamples:\n  callsheet dead-letters replay 0198c1f2-7b3e\n"
    "  callsheet dead-letters replay --error-code oom --rate 20",
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@settings(DEAD_REPLAY)
@with_engine()
async def replay(engine: Engine, ids: tuple[str, ...], **arguments: Unpack[Filter]) -> None:
    """Put jobs back into their queues with fresh attempts: the named jobs, else all jobs that match the filters.

    Without an ID it asks for confirmation. If a job's contract does not allow that, a copy of it runs, one copy even
    if repeated. The exit code is 1 if a job could not be replayed.
    """
    await _change(engine, ids, arguments, "replay", dead_letters.replay)


@command.command(
    "purge",
    epilog="\b\nExamples:\n  callsheet dead-letters purge 0198c1f2-7b3e\n"
    "  callsheet dead-letters purge --ended-to 2026-01-01T00:00:00Z --yes",
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@settings(DEAD_PURGE)
@with_engine()
async def purge(engine: Engine, ids: tuple[str, ...], **arguments: Unpack[Filter]) -> None:
    """Delete jobs with their events and attempts: the named jobs, else all that match the filters. Asks first."""
    await _change(engine, ids, arguments, "purge", dead_letters.purge)


async def _change(engine: Engine, ids: tuple[str, ...], arguments: Filter, action: str, change: Change) -> None:
    """Choose the jobs, ask for confirmation, and change the jobs in batches below a progress bar."""
    if ids:
        claims = [(await _dead_letter(engine, job_id)).claim for job_id in dict.fromkeys(ids)]
    else:
        claims = [job.claim for job in (await _first(engine, _selection(arguments), arguments["limit"]))[0]]
    if claims and not arguments["yes"] and (action == "purge" or not ids):
        click.confirm(f"{action} {len(claims)} jobs?", abort=True, err=True)
    result = await _change_all(engine, claims, action, change, arguments.get("rate"))
    if claims:
        target = claims[0].job_id if len(claims) == 1 else "many"
        await record_audit(engine.store, ACT_OF[action], target=target, jobs=result.done)
    if arguments["json"]:
        print_json(result._asdict())
    else:
        click.echo(f"{action}: {result.done} done, {result.refused} refused{f': {result.why}' if result.why else ''}")
    if result.refused:
        raise SystemExit(1)


async def _change_all(engine: Engine, claims: Sequence[Claim], action: str, change: Change, rate: int | None) -> Done:
    total, size = Done(), BATCH if rate is None else max(1, min(BATCH, rate // 2))
    with Progress(text(action), bar(), count, remaining, console=console(stderr=True)) as progress:
        row = progress.add(action, total=len(claims))
        for start in range(0, len(claims), size):
            batch = claims[start : start + size]
            result = await change(engine, batch)
            total = Done(total.done + result.done, total.refused + result.refused, result.why or total.why)
            row.completed += len(batch)
            if rate is not None and start + size < len(claims):
                await asyncio.sleep(len(batch) / rate)
    return total


async def _first(engine: Engine, selection: Wanted, limit: int | None) -> tuple[list[Job], bool]:
    """Return the newest matching jobs, at most `limit`, and whether there are more."""
    jobs: list[Job] = []
    cursor: str | None = None
    while limit is None or len(jobs) <= limit:
        page = await dead_letters.find(engine, selection, PAGE, cursor)
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None:
            break
    return jobs[:limit], limit is not None and len(jobs) > limit


async def _dead_letter(engine: Engine, job_id: str) -> Job:
    (whole_id,) = await find_job_ids(engine, [job_id])
    job = await engine.get(whole_id)
    if job.status not in dead_letters.ENDED_BADLY:
        raise CommandFailed(f"job {job.job_id} is {job.status.value}, and no dead letter")
    return job


def _selection(arguments: Filter) -> Wanted:
    times = {name: arguments.get(name) for name in ("created_from", "created_to", "ended_from", "ended_to")}
    return Wanted(
        None,
        arguments["ended_as"],
        arguments["task"],
        arguments["queue"],
        arguments["contract"],
        arguments["error_code"],
        **{name: round(at.timestamp() * 1000) for name, at in times.items() if isinstance(at, datetime)},
    )


def _as_json(job: Job) -> dict[str, object]:
    fields = as_json(job._replace(worker_id=name_of(job.worker_id or "")))
    return {**fields, "reason": reason(job.error), **dead_letters.diagnose(job)._asdict()}
