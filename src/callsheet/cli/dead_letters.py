"""`callsheet dead-letters`: look at jobs whose attempts are spent, bring them back, or delete them."""

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
from callsheet.settings import DEAD_LIST, DEAD_PURGE, DEAD_REPLAY, JOBS_SHOW

from . import bars
from .acts import note
from .failures import Told
from .options import settings
from .records import as_json, print_json, reason
from .stores import job_ids, opened, run
from .tables import console, show_dead, show_job

PAGE = 500
BATCH = 100
Act = Callable[[Engine, Sequence[Claim]], Awaitable[Done]]
EPILOG = """\b
Examples:
  callsheet dead-letters list --error-code oom
  callsheet dead-letters show 0198c1f2-7b3e
  callsheet dead-letters replay 0198c1f2-7b3e
  callsheet dead-letters replay --task resize --rate 20 --yes
  callsheet dead-letters purge --ended-to 2026-01-01T00:00:00Z

An id may be shortened to its beginning, of at least 8 characters, where that is unique."""


class Filter(TypedDict, total=False):
    """Which dead letters, and what is done with them how."""

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
    """List, show, replay and purge jobs whose attempts are spent."""


@command.command("list", epilog="\b\nExample:\n  callsheet dead-letters list --task resize --error-code oom")
@settings(DEAD_LIST)
def list_(database_url: str, **given: Unpack[Filter]) -> None:
    """Show the newest as a table with their reasons, or all their fields as JSON."""

    async def work() -> None:
        async with opened(database_url) as engine:
            jobs, more = await _first(engine, _wanted(given), given["limit"] or PAGE)
            if given["json"]:
                print_json([_as_json(job) for job in jobs])
            elif jobs:
                show_dead(jobs, await engine.store.now())
                if more:
                    click.echo(f"there are more than {len(jobs)}; ask for them with --limit", err=True)
            else:
                click.echo("no dead letters")

    run(work())


@command.command("show", epilog="\b\nExample:\n  callsheet dead-letters show 0198c1f2-7b3e --json")
@click.argument("job_id", metavar="ID")
@settings(JOBS_SHOW)
def show(job_id: str, database_url: str, *, json: bool) -> None:
    """Show all of one: its error, what to do about it, and every attempt."""

    async def work() -> None:
        async with opened(database_url) as engine:
            job = await _one(engine, job_id)
            found = await engine.store.attempts(job.job_id)
            attempts = [a._replace(worker_id=name_of(a.worker_id)) for a in found]
            if json:
                print_json({**_as_json(job), "attempts": [as_json(attempt) for attempt in attempts]})
                return
            events = await engine.store.events({job.job_id: max(0, job.event_seq - PAGE)}, PAGE)
            show_job(job._replace(worker_id=name_of(job.worker_id or "")), attempts, events)
            told = dead_letters.diagnose(job)
            console().print(f"\n[bold]{told.error_class}[/]: {told.advice}", soft_wrap=True)

    run(work())


@command.command(
    "replay",
    epilog="\b\nExamples:\n  callsheet dead-letters replay 0198c1f2-7b3e\n"
    "  callsheet dead-letters replay --error-code oom --rate 20",
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@settings(DEAD_REPLAY)
def replay(ids: tuple[str, ...], database_url: str, **given: Unpack[Filter]) -> None:
    """Bring jobs back with fresh attempts: those named, else all that the filters leave; then it asks before.

    Where a contract has no way back, a copy runs: one for each, however often it is asked for.
    Ends with 1 when one could not be brought back.
    """
    _do(database_url, ids, given, "replay", dead_letters.replay)


@command.command(
    "purge",
    epilog="\b\nExamples:\n  callsheet dead-letters purge 0198c1f2-7b3e\n"
    "  callsheet dead-letters purge --ended-to 2026-01-01T00:00:00Z --yes",
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@settings(DEAD_PURGE)
def purge(ids: tuple[str, ...], database_url: str, **given: Unpack[Filter]) -> None:
    """Delete jobs with their events and attempts: those named, else all that the filters leave. It asks before."""
    _do(database_url, ids, given, "purge", dead_letters.purge)


def _do(database_url: str, ids: tuple[str, ...], given: Filter, action: str, act: Act) -> None:
    """Choose, ask, and do it in batches under a bar."""
    claims = run(_chosen(database_url, ids, given))
    if claims and not given["yes"] and (action == "purge" or not ids):
        click.confirm(f"{action} {len(claims)} jobs?", abort=True, err=True)
    found = run(_worked_off(database_url, claims, action, act, given.get("rate")))
    if given["json"]:
        print_json(found._asdict())
    else:
        click.echo(f"{action}: {found.done} done, {found.refused} refused{f': {found.why}' if found.why else ''}")
    if found.refused:
        raise SystemExit(1)


async def _chosen(database_url: str, ids: tuple[str, ...], given: Filter) -> list[Claim]:
    async with opened(database_url) as engine:
        if ids:
            return [(await _one(engine, job_id)).claim for job_id in dict.fromkeys(ids)]
        jobs, _ = await _first(engine, _wanted(given), given["limit"])
        return [job.claim for job in jobs]


async def _worked_off(database_url: str, claims: Sequence[Claim], action: str, act: Act, rate: int | None) -> Done:
    total, size = Done(), BATCH if rate is None else max(1, min(BATCH, rate // 2))
    columns = (bars.text(action), bars.bar(), bars.count, bars.remaining)
    out = console(stderr=True)
    async with opened(database_url) as engine:
        with bars.Progress(*columns, console=out) as bar:
            task = bar.add_task(action, total=len(claims))
            for at in range(0, len(claims), size):
                batch = claims[at : at + size]
                found = await act(engine, batch)
                total = Done(total.done + found.done, total.refused + found.refused, found.why or total.why)
                bar.advance(task, len(batch))
                if rate is not None and at + size < len(claims):
                    await asyncio.sleep(len(batch) / rate)
        if claims:
            one = claims[0].job_id if len(claims) == 1 else "many"
            await note(engine.store, ACT_OF[action], target=one, jobs=total.done)
    return total


async def _first(engine: Engine, wanted: Wanted, limit: int | None) -> tuple[list[Job], bool]:
    """Those that fit, newest first, at most `limit`; and whether there are more."""
    jobs: list[Job] = []
    cursor: str | None = None
    while limit is None or len(jobs) <= limit:
        page = await dead_letters.find(engine, wanted, PAGE, cursor)
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None:
            break
    return jobs[:limit], limit is not None and len(jobs) > limit


async def _one(engine: Engine, job_id: str) -> Job:
    (whole_id,) = await job_ids(engine, [job_id])
    job = await engine.get(whole_id)
    if job.status not in dead_letters.ENDED_BADLY:
        raise Told(f"job {job.job_id} is {job.status.value}, and no dead letter")
    return job


def _wanted(given: Filter) -> Wanted:
    times = {name: given.get(name) for name in ("created_from", "created_to", "ended_from", "ended_to")}
    return Wanted(
        None,
        given["ended_as"],
        given["task"],
        given["queue"],
        given["contract"],
        given["error_code"],
        **{name: round(at.timestamp() * 1000) for name, at in times.items() if isinstance(at, datetime)},
    )


def _as_json(job: Job) -> dict[str, object]:
    told = dead_letters.diagnose(job)
    shown = as_json(job._replace(worker_id=name_of(job.worker_id or "")))
    return {**shown, "reason": reason(job.error), **told._asdict()}
