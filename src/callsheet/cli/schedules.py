"""`callsheet tasks` and `schedules`: the tasks that workers serve, and the jobs that are made at certain times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from callsheet.engine.ids import new_id
from callsheet.engine.schedules import (
    Schedule,
    Source,
    delete_schedule,
    note_run,
    pause_schedule,
    put_schedule,
    schedule_states,
)
from callsheet.engine.task_register import task_records
from callsheet.kernel.contracts import TASKS
from callsheet.kernel.durations import milliseconds
from callsheet.kernel.wire import decode, encode

from .command_settings import SCHEDULES_PUT, STORE_JSON, STORE_ONLY
from .drawing import escape
from .enqueue import read_payload
from .errors import CommandFailed, WrongInput
from .open_store import with_engine
from .options import settings
from .output import console, moment, print_json, span, table

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.engine.schedules import ScheduleState
    from callsheet.engine.task_register import TaskRecord

NEXT_RUNS = 5


@click.command("tasks", epilog="\b\nExamples:\n  callsheet tasks\n  callsheet tasks resize --json")
@click.argument("name", required=False)
@settings(STORE_JSON)
@with_engine()
async def tasks(engine: Engine, name: str | None, *, json: bool) -> None:
    """List the tasks that workers serve, with their arguments. Workers register their tasks when they start."""
    records = [record for record in await task_records(engine.store) if name in (None, record.name)]
    if name is not None and not records:
        raise CommandFailed(f"no worker has registered a task {name}; callsheet tasks lists the others")
    if json:
        print_json([record._asdict() for record in records])
    elif not records:
        click.echo("no tasks yet: start a worker, callsheet worker MODULE:APP")
    else:
        now = await engine.store.now()
        rows = table("task", "arguments", "queue", "tenant", "seen", "about")
        for record in records:
            about = escape(record.description.partition("\n")[0])
            seen = f"{span(now - record.seen_at)} ago"
            rows.add_row(
                escape(record.name),
                escape(_arguments(record)),
                escape(record.queue),
                escape(record.tenant),
                seen,
                about,
            )
        console().print(rows)


def _arguments(record: TaskRecord) -> str:
    """Return the names of a task's arguments; those that may be left out end with a question mark."""
    schema = record.arguments or {}
    required = schema.get("required", ())
    return ", ".join(name if name in required else f"{name}?" for name in schema.get("properties", {}))


@click.group(
    "schedules",
    epilog="""\b
Examples:
  callsheet schedules list
  callsheet schedules put nightly report '{"to": "ops"}' --cron '30 2 * * *' --timezone Europe/Berlin
  callsheet schedules pause nightly
  callsheet schedules run nightly""",
)
def schedules() -> None:
    """List, make, pause, run and delete schedules. Those that a program declares can be paused and run."""


@schedules.command("list", epilog="\b\nExample:\n  callsheet schedules list --json")
@settings(STORE_JSON)
@with_engine()
async def list_schedules(engine: Engine, *, json: bool) -> None:
    """Show all schedules with their next and last runs."""
    states = await schedule_states(engine.store)
    if json:
        print_json([_as_json(state) for state in states])
    elif not states:
        click.echo("no schedules yet; callsheet schedules put NAME TASK --every 10m")
    else:
        rows = table("name", "task", "when", "next run", "last run", "runs", "from")
        for state in states:
            schedule = state.schedule
            last = moment(state.history[-1][0]) if state.history else "–"
            following = "paused" if schedule.paused else moment(state.next_slot)
            names = (escape(schedule.name), escape(schedule.kind), escape(_times(schedule)))
            rows.add_row(*names, following, last, str(state.runs), schedule.source)
        console().print(rows)


@schedules.command("show", epilog="\b\nExample:\n  callsheet schedules show nightly")
@click.argument("name")
@settings(STORE_JSON)
@with_engine()
async def show(engine: Engine, name: str, *, json: bool) -> None:
    """Show a schedule with its next five runs and the jobs of its last ones."""
    state = await _state(engine, name)
    if json:
        print_json(_as_json(state))
        return
    schedule = state.schedule
    click.echo(
        f"{schedule.name}: {schedule.kind} {_times(schedule)}, missed {schedule.missed}, overlap {schedule.overlap}"
    )
    for slot in _next_runs(state):
        click.echo(f"  next {moment(slot)}")
    jobs = await engine.store.get([job_id for _, job_id in state.history])
    for (slot, job_id), job in reversed(list(zip(state.history, jobs, strict=True))):
        click.echo(f"  ran  {moment(slot)}  {job_id}  {job.status if job else 'no longer kept'}")


@schedules.command(
    "put", epilog='\b\nExample:\n  callsheet schedules put fetch fetch_mail \'{"folder": "inbox"}\' --every 10m'
)
@click.argument("name")
@click.argument("task")
@click.argument("payload", required=False, default="")
@settings(SCHEDULES_PUT)
@with_engine(create=True)
async def put(engine: Engine, name: str, task: str, payload: str, **arguments: Any) -> None:
    """Make a schedule, or replace the one of this name. PAYLOAD is JSON text, @FILE, or - for standard input."""
    if task in TASKS:
        raise WrongInput(f"{task} belongs to a published contract: only its own route makes its jobs")
    record = next((record for record in await task_records(engine.store) if record.name == task), None)
    schedule = Schedule(
        name,
        arguments["cron"] or "",
        task,
        encode(read_payload(payload) if payload else {}),
        arguments["queue"] or (record.queue if record else "default"),
        arguments["priority"] if arguments["priority"] is not None else (record.priority if record else 0),
        timezone=arguments["timezone"],
        every_ms=milliseconds(arguments["every"]) if arguments["every"] else 0,
        max_attempts=arguments["max_attempts"] or (record.max_attempts if record else None),
        retry=record.retry if record else "",
        ttl_s=record.ttl_s if record else None,
        missed=arguments["missed"],
        overlap=arguments["overlap"],
    )
    before = await schedule_states(engine.store, name)
    if before and before[0].schedule.source == Source.CODE:
        raise CommandFailed(f"schedule {name} is declared by a program; change it there, or pause it")
    await put_schedule(engine.store, schedule)
    state = await _state(engine, name)
    if arguments["json"]:
        print_json(_as_json(state))
    else:
        click.echo(f"{name} runs next at {moment(state.next_slot)}")


@schedules.command("pause", epilog="\b\nExample:\n  callsheet schedules pause nightly")
@click.argument("name")
@settings(STORE_ONLY)
@with_engine()
async def pause(engine: Engine, name: str) -> None:
    """Let no slot run until the schedule is resumed."""
    await _set_pause(engine, name, paused=True)


@schedules.command("resume", epilog="\b\nExample:\n  callsheet schedules resume nightly")
@click.argument("name")
@settings(STORE_ONLY)
@with_engine()
async def resume(engine: Engine, name: str) -> None:
    """Go on with the next slot; slots of the pause do not run."""
    await _set_pause(engine, name, paused=False)


@schedules.command("run", epilog="\b\nExample:\n  callsheet schedules run nightly")
@click.argument("name")
@settings(STORE_ONLY)
@with_engine()
async def run_now(engine: Engine, name: str) -> None:
    """Make the schedule's job at once, beside its slots, and print its id."""
    state, now = await _state(engine, name), await engine.store.now()
    new = state.schedule.job_at(now)._replace(job_id=new_id())
    await engine.enqueue([new])
    await note_run(engine.store, name, now, new.job_id)
    click.echo(new.job_id)


@schedules.command("delete", epilog="\b\nExample:\n  callsheet schedules delete nightly")
@click.argument("name")
@settings(STORE_ONLY)
@with_engine()
async def delete(engine: Engine, name: str) -> None:
    """Delete a schedule; jobs that it made stay."""
    state = await _state(engine, name)
    if state.schedule.source == Source.CODE:
        raise CommandFailed(f"schedule {name} is declared by a program; remove it there, or pause it")
    await delete_schedule(engine.store, name)
    click.echo(f"schedule {name} is deleted")


async def _state(engine: Engine, name: str) -> ScheduleState:
    states = await schedule_states(engine.store, name)
    if not states:
        raise CommandFailed(f"there is no schedule {name}; callsheet schedules list shows all")
    return states[0]


async def _set_pause(engine: Engine, name: str, *, paused: bool) -> None:
    state = await pause_schedule(engine.store, name, paused=paused)
    if state is None:
        raise CommandFailed(f"there is no schedule {name}; callsheet schedules list shows all")
    click.echo(f"schedule {name} is paused" if paused else f"{name} runs next at {moment(state.next_slot)}")


def _times(schedule: Schedule) -> str:
    return f"every {span(schedule.every_ms)}" if schedule.every_ms else f"{schedule.cron} {schedule.timezone}"


def _next_runs(state: ScheduleState) -> list[int]:
    if state.schedule.paused:
        return []
    slots = state.schedule.slots(state.next_slot - 1)
    return [slot for slot, _ in zip(slots, range(NEXT_RUNS), strict=False)]


def _as_json(state: ScheduleState) -> dict[str, Any]:
    schedule = state.schedule._asdict()
    task = schedule.pop("kind")
    runs = [{"slot": moment(slot), "job_id": job_id} for slot, job_id in reversed(state.history)]
    return {
        **schedule,
        "task": task,
        "payload": decode(state.schedule.payload),
        "next_runs": [moment(slot) for slot in _next_runs(state)],
        "last_runs": runs,
        "runs": state.runs,
        "skipped": state.skipped,
    }
