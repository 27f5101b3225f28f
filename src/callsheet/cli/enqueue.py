"""`callsheet enqueue`: creates a job from a task and its arguments, and may wait for its result."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from callsheet.app import Callsheet
from callsheet.app.options import JOB_OPTIONS, JobOptions, job_of
from callsheet.kernel.contracts import TASKS
from callsheet.kernel.durations import Duration, seconds
from callsheet.kernel.errors import ResultTimeout
from callsheet.kernel.job import NewJob, Status
from callsheet.kernel.wire import encode
from callsheet.worker.definition import Definition

from . import logs
from .apps import Places, load_app
from .command_settings import ENQUEUE
from .errors import CommandFailed, WrongInput, check_url
from .open_store import find_job_ids, run
from .options import settings
from .output import console
from .progress_view import ending, follow, job_view


@click.command(
    "enqueue",
    epilog="""\b
Examples:
  callsheet enqueue shop:app resize '{"url": "https://example.org/cat.png"}'
  callsheet enqueue shop:app resize --arg url=https://example.org/cat.png --arg width=640 --delay 10m
  callsheet enqueue shop:app report @report.json --wait --timeout 5m
  cat order.json | callsheet enqueue shop:app order -
  callsheet enqueue resize '{"url": "…"}' --database-url postgresql://app@db/app

PAYLOAD is JSON text, @FILE, or - for standard input. The command prints the job's id; with --wait it prints the id to
standard error and the result to standard output, and the exit code is 1 unless the job succeeds.""",
)
@click.argument("target", metavar="[MODULE:APP] TASK [PAYLOAD]")
@click.argument("rest", metavar="", nargs=-1)
@settings(ENQUEUE)
@click.pass_context
def command(ctx: click.Context, /, target: str, rest: tuple[str, ...], **arguments: Any) -> None:
    """Create a job. The job is in the store before its id is printed.

    With MODULE:APP the app must have the task, and the arguments are checked against the function's signature.
    Without it (if the first argument has no colon) the job gets the task's name and the arguments unchecked.
    """
    logs.set_up("human", arguments["log_level"])
    url: str | None = arguments["database_url"]
    if ":" in target:
        flag = ctx.get_parameter_source("database_url") is ParameterSource.COMMANDLINE
        app = load_app(target, Places(url if flag else None), debug=arguments["log_level"] == "debug")
        task, payload = _task_and_payload(rest)
        definition = app.task_named(task).definition
    else:
        app = Callsheet(url)
        check_url(app.database_url)
        task, payload = _task_and_payload((target, *rest))
        definition = Definition(task, _placeholder, contract=TASKS.get(task, ""))
    values = _values(payload, arguments["arg"])
    text = encode(values)
    if ":" in target:
        text = definition.payload((), definition.arguments(text))
    run(_enqueue(app, definition, text, arguments))


def _placeholder() -> None:
    """Stand for the function of a task that cannot be imported here."""


def _task_and_payload(words: tuple[str, ...]) -> tuple[str, str]:
    if not words:
        raise WrongInput("which task? Write: callsheet enqueue MODULE:APP TASK [PAYLOAD]")
    if len(words) > 2:  # noqa: PLR2004 - a task and a payload
        raise WrongInput(f"{words[2]!r} is too much after TASK and PAYLOAD; quote the payload: '{{\"a\": 1}}'")
    return words[0], words[1] if len(words) > 1 else ""


def _values(payload: str, arguments: tuple[str, ...]) -> Any:
    """Return the payload with the arguments of `--arg` added."""
    values = read_payload(payload) if payload else {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or not name:
            raise WrongInput(f"--arg {argument}: write name=value")
        if not isinstance(values, dict):
            raise WrongInput("--arg adds to a payload that is a JSON object; this one is not")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def read_payload(payload: str) -> Any:
    """Return the value of JSON text, of `@FILE`, or of standard input for `-`; raises WrongInput."""
    try:
        if payload == "-":
            payload = sys.stdin.read()
        elif payload.startswith("@"):
            payload = Path(payload[1:]).read_text("utf-8")
        return json.loads(payload)
    except OSError as error:
        raise WrongInput(f"the payload cannot be read: {error.strerror}: {error.filename}") from None
    except ValueError as error:
        raise WrongInput(f'the payload is no JSON: {error}; write \'{{"name": "value"}}\', @file or -') from None


async def _enqueue(app: Callsheet, definition: Definition, payload: str, arguments: dict[str, Any]) -> None:
    async with app:
        new = await _new_job(app, definition, payload, arguments)
        (handle,) = await app.enqueue([new])
        click.echo(handle.job_id, err=arguments["wait"])
        if not handle.created:
            click.echo("callsheet: an earlier job has this key; no job was created", err=True)
        if arguments["wait"]:
            await _wait(app, handle.job_id, arguments["timeout"])


async def _new_job(app: Callsheet, definition: Definition, payload: str, arguments: dict[str, Any]) -> NewJob:
    options = {name: value for name, value in arguments.items() if name in JOB_OPTIONS and value not in (None, ())}
    if "depends_on" in options:
        options["depends_on"] = await find_job_ids(await app.engine(), options["depends_on"])
    return job_of(definition, payload, cast("JobOptions", options))


async def _wait(app: Callsheet, job_id: str, patience: Duration | None) -> None:
    """Show progress on stderr until the job ends; print the stored result."""
    engine = await app.engine()
    try:
        async with asyncio.timeout(None if patience is None else seconds(patience)):
            with job_view(console(stderr=True)) as view:
                job = await follow(engine, job_id, view)
    except TimeoutError:
        raise ResultTimeout(f"job {job_id} has not ended within {patience}; it goes on") from None
    if job.status is not Status.SUCCEEDED:
        raise CommandFailed(f"job {job_id} {ending(job)}")
    click.echo(job.result or "null")
