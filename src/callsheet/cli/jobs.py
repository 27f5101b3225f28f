"""`callsheet jobs`: look at jobs, watch them, and change their fate by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypedDict, Unpack

import click

from callsheet.engine import Engine, dead_letters
from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.job import Event, Job, Status
from callsheet.settings import JOBS_CANCEL, JOBS_DEAD, JOBS_LIST, JOBS_SHOW, STORE_ONLY
from callsheet.store.protocol import JobQuery

from .acts import note
from .board import follow_each, follow_running, shown
from .failures import told
from .options import settings
from .records import as_json, print_json, reason
from .stores import job_ids, opened, run
from .tables import console, show_dead, show_job, show_jobs

PAGE = 500
EPILOG = """\b
Examples:
  callsheet jobs list --status running --status queued
  callsheet jobs show 0198c1f2-7b3e
  callsheet jobs watch                  # all that runs, until Ctrl-C
  callsheet jobs dead --retry-all
  callsheet jobs pause media

An id may be shortened to its beginning, of at least 8 characters, where that is unique."""


class Filter(TypedDict, total=False):
    """Which jobs, and how they are shown."""

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
def list_(database_url: str, **given: Unpack[Filter]) -> None:
    """Show the newest jobs as a table, or all their fields as JSON."""

    async def work() -> None:
        async with opened(database_url) as engine:
            page = await engine.find(_query(given, tuple(Status(status) for status in given["status"])))
            if given["json"]:
                print_json([as_json(job) for job in page.jobs])
            elif page.jobs:
                show_jobs(page.jobs, await engine.store.now())
                _tell_of_more(page.cursor, given["limit"])
            else:
                click.echo("no such jobs" if _is_filtered(given) else "no jobs yet")

    run(work())


@command.command("show", epilog="\b\nExample:\n  callsheet jobs show 0198c1f2-7b3e --json")
@click.argument("job_id", metavar="ID")
@settings(JOBS_SHOW)
def show(job_id: str, database_url: str, *, json: bool) -> None:
    """Show all of one job: fields, attempts, events, and its error with the traceback."""

    async def work() -> None:
        async with opened(database_url) as engine:
            (whole_id,) = await job_ids(engine, [job_id])
            job = await engine.get(whole_id)
            attempts, events = await engine.store.attempts(whole_id), await _events(engine, job)
            if not json:
                show_job(job, attempts, events)
                return
            parts = {"attempts": [as_json(a) for a in attempts], "events": [as_json(e) for e in events]}
            print_json({**as_json(job), **parts})

    run(work())


@command.command("watch", epilog="\b\nExamples:\n  callsheet jobs watch 0198c1f2-7b3e\n  callsheet jobs watch")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@settings(STORE_ONLY)
def watch(ids: tuple[str, ...], database_url: str) -> None:
    """Show progress as it is made, until the jobs end; without an ID all that runs, until Ctrl-C.

    Ends with 1 when one of the jobs did not succeed.
    """

    async def work() -> list[Job]:
        async with opened(database_url) as engine:
            wanted = list(dict.fromkeys(await job_ids(engine, ids)))
            for job_id in wanted:
                await engine.get(job_id)
            with shown(console(), keep=bool(ids)) as board:
                if ids:
                    return await follow_each(engine, wanted, board)
                with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C is how this ends
                    await follow_running(engine, board)
                return []

    if any(job.status is not Status.SUCCEEDED for job in run(work())):
        raise SystemExit(1)


@command.command("cancel", epilog='\b\nExample:\n  callsheet jobs cancel 0198c1f2-7b3e --reason "wrong file"')
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@settings(JOBS_CANCEL)
def cancel(ids: tuple[str, ...], reason: str | None, database_url: str) -> None:
    """End jobs: at once those that wait, soon those that run."""

    async def one(engine: Engine, job_id: str) -> str:
        job = await engine.cancel(job_id, reason or "")
        return "canceled" if job.status.terminal else "is asked to stop"

    run(_each(database_url, ids, one))


@command.command("retry", epilog="\b\nExample:\n  callsheet jobs retry 0198c1f2-7b3e")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@settings(STORE_ONLY)
def retry(ids: tuple[str, ...], database_url: str) -> None:
    """Bring back jobs that failed, were canceled, or became dead letters.

    Where a contract has no way back, a copy that names the old job runs: one, however often it is asked for.
    """
    run(_each(database_url, ids, _requeue))


@command.command("dead", epilog="\b\nExamples:\n  callsheet jobs dead\n  callsheet jobs dead --task resize --retry-all")
@settings(JOBS_DEAD)
def dead(database_url: str, **given: Unpack[Filter]) -> None:
    """Show the dead letters with their reasons: jobs whose attempts are spent.

    --retry-all brings all of them back, also those beyond --limit; it asks before it does.
    """

    async def work() -> None:
        async with opened(database_url) as engine:
            page = await engine.find(_query(given, (Status.DEAD_LETTER,)))
            if given["json"]:
                print_json([{**as_json(job), "reason": reason(job.error)} for job in page.jobs])
            elif page.jobs:
                show_dead(page.jobs, await engine.store.now())
                _tell_of_more(page.cursor, given["limit"])
            else:
                click.echo("no dead letters")

    run(work())
    if given["retry_all"]:
        _retry_all(database_url, given)


@command.command("pause", epilog="\b\nExample:\n  callsheet jobs pause media")
@click.argument("queue")
@settings(STORE_ONLY)
def pause(queue: str, database_url: str) -> None:
    """Hand out no more jobs of a queue; those that run go on."""
    run(_pause(database_url, queue, paused=True))


@command.command("resume", epilog="\b\nExample:\n  callsheet jobs resume media")
@click.argument("queue")
@settings(STORE_ONLY)
def resume(queue: str, database_url: str) -> None:
    """Hand out the jobs of a paused queue again."""
    run(_pause(database_url, queue, paused=False))


def _query(given: Filter, statuses: tuple[Status, ...]) -> JobQuery:
    return JobQuery(statuses=statuses, kind=given["task"], queue=given["queue"], limit=given["limit"])


def _is_filtered(given: Filter) -> bool:
    return bool(given["status"] or given["queue"] or given["task"])


def _tell_of_more(cursor: str | None, limit: int) -> None:
    if cursor is not None:
        click.echo(f"there are more than {limit}; ask for them with --limit", err=True)


async def _events(engine: Engine, job: Job) -> list[Event]:
    found: list[Event] = []
    while page := await engine.store.events({job.job_id: len(found)}, PAGE):
        found += page
        if len(page) < PAGE:
            break
    return found


async def _each(database_url: str, asked: tuple[str, ...], act: Callable[[Engine, str], Awaitable[str]]) -> None:
    """Do something to each job; one that refuses does not keep the others from it, but ends the command with 1."""
    refused = 0
    async with opened(database_url) as engine:
        for job_id in await job_ids(engine, asked):
            try:
                click.echo(f"{job_id} {await act(engine, job_id)}")
            except CallsheetError as error:
                refused += 1
                told(error).show()
    if refused:
        raise SystemExit(1)


async def _requeue(engine: Engine, job_id: str) -> str:
    job = await dead_letters.bring_back(engine, job_id)
    await note(engine.store, "dead_letters.replayed", target=job_id, requester_id=job.requester_id)
    return job.status.value if job.job_id == job_id else f"runs again as {job.job_id}, {job.status.value}"


def _retry_all(database_url: str, given: Filter) -> None:
    wanted = run(_dead_ids(database_url, given))
    if wanted and (given["yes"] or click.confirm(f"retry {len(wanted)} jobs?", abort=True, err=True)):
        run(_each(database_url, tuple(wanted), _requeue))


async def _dead_ids(database_url: str, given: Filter) -> list[str]:
    query = _query(given, (Status.DEAD_LETTER,))._replace(limit=PAGE)
    found: list[str] = []
    async with opened(database_url) as engine:
        while True:
            page = await engine.find(query)
            found += [job.job_id for job in page.jobs]
            if page.cursor is None:
                return found
            query = query._replace(cursor=page.cursor)


async def _pause(database_url: str, queue: str, *, paused: bool) -> None:
    async with opened(database_url) as engine:
        await engine.store.pause(queue, paused=paused)
        await note(engine.store, "queue.paused" if paused else "queue.resumed", target=queue)
        queues = ", ".join(sorted(await engine.store.paused_queues())) or "none"
    click.echo(f"queue {queue} is {'paused' if paused else 'handed out'}; paused queues: {queues}")
