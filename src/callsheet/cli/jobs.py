"""`callsheet jobs`: show, watch, cancel and retry jobs; pause queues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypedDict, Unpack

import click

from callsheet.engine import Engine, dead_letters
from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.job import Event, Job, Status
from callsheet.store.protocol import JobQuery

from .command_settings import JOBS_CANCEL, JOBS_DEAD, JOBS_LIST, STORE_JSON, STORE_ONLY
from .errors import as_command_error
from .open_store import find_job_ids, record_audit, with_engine
from .options import settings
from .output import as_json, console, print_json, reason, show_dead, show_job, show_jobs
from .progress_view import follow_each, follow_running, job_view

PAGE = 500
EPILOG = """\b
Examples:
  callsheet jobs list --status running --status queued
  callsheet jobs show 0198c1f2-7b3e
  callsheet jobs watch                  # all running jobs, until Ctrl-C
  callsheet jobs dead --retry-all
  callsheet jobs pause media

An id may be shortened to its first 8 characters or more, if these are unique."""


class Filter(TypedDict, total=False):
    """The filters and options of the commands."""

    status: tuple[str, ...]
    queue: str | None
    task: str | None
    limit: int
    json: bool
    retry_all: bool
    yes: bool


@click.group("jobs", epilog=EPILOG)
def command() -> None:
    """List, show, watch, cancel and retry jobs; pause queues."""


@command.command("list", epilog="\b\nExample:\n  callsheet jobs list --queue media --status failed --json")
@settings(JOBS_LIST)
@with_engine()
async def list_(engine: Engine, **arguments: Unpack[Filter]) -> None:
    """Show the newest jobs as a table, or all their fields as JSON."""
    page = await engine.find(_query(arguments, tuple(Status(status) for status in arguments["status"])))
    if arguments["json"]:
        print_json([as_json(job) for job in page.jobs])
    elif page.jobs:
        show_jobs(page.jobs, await engine.store.now())
        _mention_more(page.cursor, arguments["limit"])
    else:
        click.echo("no such jobs" if _is_filtered(arguments) else "no jobs yet")


@command.command("show", epilog="\b\nExample:\n  callsheet jobs show 0198c1f2-7b3e --json")
@click.argument("job_id", metavar="ID")
@settings(STORE_JSON)
@with_engine()
async def show(engine: Engine, job_id: str, *, json: bool) -> None:
    """Show one job: its fields, attempts, events, and its error with the traceback."""
    (whole_id,) = await find_job_ids(engine, [job_id])
    job = await engine.get(whole_id)
    attempts, events = await engine.store.attempts(whole_id), await _events(engine, job)
    if not json:
        show_job(job, attempts, events)
        return
    parts = {"attempts": [as_json(a) for a in attempts], "events": [as_json(e) for e in events]}
    print_json({**as_json(job), **parts})


@command.command("watch", epilog="\b\nExamples:\n  callsheet jobs watch 0198c1f2-7b3e\n  callsheet jobs watch")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@settings(STORE_ONLY)
@with_engine()
async def watch(engine: Engine, ids: tuple[str, ...]) -> None:
    """Show the progress of jobs until they end; without an ID, of all running jobs until Ctrl-C.

    The exit code is 1 if a job did not succeed.
    """
    job_ids = list(dict.fromkeys(await find_job_ids(engine, ids)))
    for job_id in job_ids:
        await engine.get(job_id)
    with job_view(console(), keep=bool(ids)) as view:
        if not ids:
            with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C is the normal end
                await follow_running(engine, view)
            return
        ended_jobs = await follow_each(engine, job_ids, view)
    if any(job.status is not Status.SUCCEEDED for job in ended_jobs):
        raise SystemExit(1)


@command.command("cancel", epilog='\b\nExample:\n  callsheet jobs cancel 0198c1f2-7b3e --reason "wrong file"')
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@settings(JOBS_CANCEL)
@with_engine()
async def cancel(engine: Engine, ids: tuple[str, ...], reason: str | None) -> None:
    """Cancel jobs: queued jobs end at once, running jobs soon."""

    async def cancel_one(engine: Engine, job_id: str) -> str:
        job = await engine.cancel(job_id, reason or "")
        return "canceled" if job.status.terminal else "is asked to stop"

    await _for_each(engine, ids, cancel_one)


@command.command("retry", epilog="\b\nExample:\n  callsheet jobs retry 0198c1f2-7b3e")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@settings(STORE_ONLY)
@with_engine()
async def retry(engine: Engine, ids: tuple[str, ...]) -> None:
    """Put jobs that failed, were canceled or became dead letters back into their queues.

    If the job's contract does not allow that, a copy runs that names the old job: one copy, even if repeated.
    """
    await _for_each(engine, ids, _requeue)


@command.command("dead", epilog="\b\nExamples:\n  callsheet jobs dead\n  callsheet jobs dead --task resize --retry-all")
@settings(JOBS_DEAD)
@with_engine()
async def dead(engine: Engine, **arguments: Unpack[Filter]) -> None:
    """Show the dead letters, which are jobs that failed in all their attempts, with the reasons.

    --retry-all puts all of them back into their queues, also those beyond --limit; it asks for confirmation.
    """
    page = await engine.find(_query(arguments, (Status.DEAD_LETTER,)))
    if arguments["json"]:
        print_json([{**as_json(job), "reason": reason(job.error)} for job in page.jobs])
    elif page.jobs:
        show_dead(page.jobs, await engine.store.now())
        _mention_more(page.cursor, arguments["limit"])
    else:
        click.echo("no dead letters")
    if arguments["retry_all"]:
        job_ids = await _dead_ids(engine, arguments)
        if job_ids and (arguments["yes"] or click.confirm(f"retry {len(job_ids)} jobs?", abort=True, err=True)):
            await _for_each(engine, job_ids, _requeue)


@command.command("pause", epilog="\b\nExample:\n  callsheet jobs pause media")
@click.argument("queue")
@settings(STORE_ONLY)
@with_engine()
async def pause(engine: Engine, queue: str) -> None:
    """Start no more jobs of a queue; running jobs go on."""
    await _pause(engine, queue, paused=True)


@command.command("resume", epilog="\b\nExample:\n  callsheet jobs resume media")
@click.argument("queue")
@settings(STORE_ONLY)
@with_engine()
async def resume(engine: Engine, queue: str) -> None:
    """Start the jobs of a paused queue again."""
    await _pause(engine, queue, paused=False)


def _query(arguments: Filter, statuses: tuple[Status, ...]) -> JobQuery:
    return JobQuery(statuses=statuses, kind=arguments["task"], queue=arguments["queue"], limit=arguments["limit"])


def _is_filtered(arguments: Filter) -> bool:
    return bool(arguments["status"] or arguments["queue"] or arguments["task"])


def _mention_more(cursor: str | None, limit: int) -> None:
    if cursor is not None:
        click.echo(f"there are more than {limit}; ask for them with --limit", err=True)


async def _events(engine: Engine, job: Job) -> list[Event]:
    events: list[Event] = []
    while page := await engine.store.events({job.job_id: len(events)}, PAGE):
        events += page
        if len(page) < PAGE:
            break
    return events


async def _for_each(engine: Engine, ids: Sequence[str], act: Callable[[Engine, str], Awaitable[str]]) -> None:
    """Apply `act` to each job and print the outcome. A refusal does not stop the others, but the exit code is 1."""
    refusals = 0
    for job_id in await find_job_ids(engine, ids):
        try:
            click.echo(f"{job_id} {await act(engine, job_id)}")
        except CallsheetError as error:
            refusals += 1
            as_command_error(error).show()
    if refusals:
        raise SystemExit(1)


async def _requeue(engine: Engine, job_id: str) -> str:
    job = await dead_letters.bring_back(engine, job_id)
    await record_audit(engine.store, "dead_letters.replayed", target=job_id, requester_id=job.requester_id)
    return job.status.value if job.job_id == job_id else f"runs again as {job.job_id}, {job.status.value}"


async def _dead_ids(engine: Engine, arguments: Filter) -> list[str]:
    query = _query(arguments, (Status.DEAD_LETTER,))._replace(limit=PAGE)
    ids: list[str] = []
    while True:
        page = await engine.find(query)
        ids += [job.job_id for job in page.jobs]
        if page.cursor is None:
            return ids
        query = query._replace(cursor=page.cursor)


async def _pause(engine: Engine, queue: str, *, paused: bool) -> None:
    await engine.store.pause(queue, paused=paused)
    await record_audit(engine.store, "queue.paused" if paused else "queue.resumed", target=queue)
    queues = ", ".join(sorted(await engine.store.paused_queues())) or "none"
    click.echo(f"queue {queue} is {'paused' if paused else 'handed out'}; paused queues: {queues}")
