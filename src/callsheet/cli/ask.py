"""`callsheet ask`: put a question to a server and print the answer as it is made."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from typing import Any

import click

from callsheet.client import Client, Conflict, JobEvent
from callsheet.client.client import TOKEN, VOID, answer, question, token
from callsheet.kernel.errors import CallsheetError
from callsheet.settings import ASK

from . import logs
from .failures import WrongInput
from .options import settings
from .records import print_json
from .stores import INTERRUPTED, run
from .watch import exit_code, opened, printable, told_end


@click.command(
    "ask",
    epilog="""\b
Examples:
  callsheet ask "Why is the sky blue?"
  callsheet ask --task code "A function that reads a CSV file"
  git diff | callsheet ask - --system "Review this change." --model small
  callsheet ask "Three names for a cat" --json --url https://jobs.example.org

The answer goes to standard output as it is made. A lost connection is taken up again where it broke off. Ctrl-C cancels
the job; a second Ctrl-C does not wait for that. CALLSHEET_API_KEY holds the key, which no flag takes since others could
see it. Ends with 0 when the job is done, 1 when it failed, 130 when it was canceled.""",
)
@click.argument("text", metavar="TEXT")
@settings(ASK)
def command(text: str, url: str, **given: Any) -> None:
    """Ask a model on a server and stream its answer. TEXT is the question, or - for standard input."""
    logs.set_up("human", "warning")
    asked = sys.stdin.read() if text == "-" else text
    if not asked.strip():
        raise WrongInput('nothing is asked; write callsheet ask "Why is the sky blue?"')
    payload = question(asked, system=given["system"] or "", model=given["model"])
    raise SystemExit(run(_ask(url, given["task"], payload, as_json=given["json"])))


async def _ask(url: str, task: str, payload: dict[str, Any], *, as_json: bool) -> int:
    """The exit code. Ctrl-C cancels this coroutine; the job is canceled even when its id was still on its way."""
    async with opened(url) as client:
        making = asyncio.ensure_future(client.create(task, payload))
        try:
            taken = await asyncio.shield(making)
            said = await _stream(client, taken.job_id, quiet=as_json)
            job = await client.get(taken.job_id)
        except asyncio.CancelledError:
            _go_on()
            return await _cancel(client, (await making).job_id)
    if as_json:
        print_json(job._asdict())
    elif job.status == "done" and not said:
        click.echo(printable(answer(job.result)))
    if job.status != "done":
        click.echo(f"callsheet: {told_end(job)}", err=True)
    return exit_code(job)


async def _stream(client: Client, job_id: str, *, quiet: bool) -> bool:
    """Print tokens as they come; True when there were any."""
    open_line = said = False
    async with aclosing(client.events(job_id)) as events:
        async for event in events:
            if quiet or not _is_news(event):
                continue
            if event.type == TOKEN:
                click.echo(printable(token(event.data)), nl=False)
                open_line = said = True
            elif said:
                click.echo("\n" if open_line else "", nl=False)
                click.echo("callsheet: the attempt broke off; the answer begins anew", err=True)
                open_line = said = False
    if open_line:
        click.echo()
    return said


def _is_news(event: JobEvent) -> bool:
    return event.type == TOKEN or event.type in VOID


def _go_on() -> None:
    """This task was cancelled by Ctrl-C and has something left to do."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


async def _cancel(client: Client, job_id: str) -> int:
    try:
        job = await client.cancel(job_id, "Ctrl-C")
        told = "is canceled" if job.ended else "will be canceled"
    except Conflict:
        told = "had ended already"
    except CallsheetError as error:
        told = f"could not be canceled: {error}"
    click.echo(f"\ncallsheet: job {job_id} {told}", err=True)
    return INTERRUPTED
