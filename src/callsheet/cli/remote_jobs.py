"""`callsheet ask` and `callsheet watch`: follow a job on a server over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Any

import click

from callsheet.client import ApiError, Client, Conflict, JobEvent, Patience, RemoteJob
from callsheet.client.client import TOKEN, VOID, answer, question, token
from callsheet.kernel.errors import CallsheetError

from . import logs
from .command_settings import ASK, WATCH
from .errors import WrongInput
from .open_store import INTERRUPTED, run
from .options import settings
from .output import print_json

SOON = Patience(retry_for_s=5.0)  # a user waits at the terminal, so an unreachable server is reported soon
EXIT_CODES = {"done": 0, "error": 1, "canceled": INTERRUPTED}
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CONTROLS_AND_LINES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


@click.command(
    "watch",
    epilog="""\b
Examples:
  callsheet watch 0198c1f2-7b3e-7cc0-a1a5-0d52b5f0f5b1
  callsheet watch 0198c1f2-7b3e-7cc0-a1a5-0d52b5f0f5b1 --after 1704067200000-5
  callsheet watch 0198c1f2-7b3e-7cc0-a1a5-0d52b5f0f5b1 --json | jq .type

After a lost connection the command reconnects: no event is missing and none is printed twice. Ctrl-C stops watching;
the job goes on. CALLSHEET_API_KEY holds the key. The exit code is 0 if the job is done, 1 if it failed, 130 if it was
canceled. `callsheet jobs watch` does the same for a store that can be reached without a server.""",
)
@click.argument("job_id", metavar="ID")
@settings(WATCH)
def watch_command(job_id: str, after: str | None, url: str, *, json: bool) -> None:
    """Show a job's events, past and live, until its end."""
    logs.set_up("human", "warning")
    raise SystemExit(run(_watch(url, job_id, after, as_json=json)))


async def _watch(url: str, job_id: str, after: str | None, *, as_json: bool) -> int:
    async with _client(url) as client:
        with suppress(ApiError):  # the stream reports them, but waits minutes for a server that was never there
            await client.get(job_id)
        async with aclosing(client.events(job_id, after)) as events:
            async for event in events:
                click.echo(_as_json(event) if as_json else _as_line(event))
        job = await client.get(job_id)
    if not as_json:
        click.echo(f"callsheet: {_outcome(job)}", err=True)
    return _exit_code(job)


def _as_json(event: JobEvent) -> str:
    return json.dumps(event._asdict(), ensure_ascii=False)


def _as_line(event: JobEvent) -> str:
    """`12:03:44.120 progress  40% decoding: half way`, local time."""
    at = datetime.fromtimestamp(event.ts / 1000).astimezone()
    text = ": ".join(word for word in (event.step, _words(event)) if word)
    line = f"{at:%H:%M:%S}.{event.ts % 1000:03} {event.type:<9} {event.progress:3.0f}% {text}"
    return _CONTROLS_AND_LINES.sub(" ", line).rstrip()


def _words(event: JobEvent) -> str:
    if event.type == TOKEN:
        return json.dumps(token(event.data), ensure_ascii=False)
    code, message = event.data.get("code"), event.data.get("message") or event.data.get("reason")
    return ": ".join(str(word) for word in (code, message) if word)


def _client(url: str) -> Client:
    return Client(url, patience=SOON)


def _exit_code(job: RemoteJob) -> int:
    return EXIT_CODES.get(job.status, 1)


def _outcome(job: RemoteJob) -> str:
    error = job.error or {}
    why = ": ".join(str(word) for word in (error.get("code"), error.get("message")) if word)
    return _CONTROLS_AND_LINES.sub(" ", f"job {job.job_id} {job.status}{f': {why}' if why else ''}")


def printable(text: str) -> str:
    """Return a model's text; for a terminal, without control characters, which could command the terminal."""
    return _CONTROLS.sub("", text) if sys.stdout.isatty() else text


@click.command(
    "ask",
    epilog="""\b
Examples:
  callsheet ask "Why is the sky blue?"
  callsheet ask --task code "A function that reads a CSV file"
  git diff | callsheet ask - --system "Review this change." --model small
  callsheet ask "Three names for a cat" --json --url https://jobs.example.org

The answer is printed while the model writes it. After a lost connection the command reconnects and goes on. Ctrl-C
cancels the job; a second Ctrl-C does not wait for that. CALLSHEET_API_KEY holds the key; there is no flag for it,
because other users could see it. The exit code is 0 if the job is done, 1 if it failed, 130 if it was canceled.""",
)
@click.argument("text", metavar="TEXT")
@settings(ASK)
def ask_command(text: str, url: str, **arguments: Any) -> None:
    """Ask a model on a server and stream its answer. TEXT is the question, or - for standard input."""
    logs.set_up("human", "warning")
    prompt = sys.stdin.read() if text == "-" else text
    if not prompt.strip():
        raise WrongInput('the question is empty; write callsheet ask "Why is the sky blue?"')
    payload = question(prompt, system=arguments["system"] or "", model=arguments["model"])
    raise SystemExit(run(_ask(url, arguments["task"], payload, as_json=arguments["json"])))


async def _ask(url: str, task: str, payload: dict[str, Any], *, as_json: bool) -> int:
    """Return the exit code. Ctrl-C cancels the job, even if the server's answer with its id has not arrived yet."""
    async with _client(url) as client:
        creation = asyncio.ensure_future(client.create(task, payload))
        try:
            job_id = (await asyncio.shield(creation)).job_id
            has_text = await _stream(client, job_id, quiet=as_json)
            job = await client.get(job_id)
        except asyncio.CancelledError:
            _clear_cancellation()
            return await _cancel(client, (await creation).job_id)
    if as_json:
        print_json(job._asdict())
    elif job.status == "done" and not has_text:
        click.echo(printable(answer(job.result)))
    if job.status != "done":
        click.echo(f"callsheet: {_outcome(job)}", err=True)
    return _exit_code(job)


async def _stream(client: Client, job_id: str, *, quiet: bool) -> bool:
    """Print tokens as they arrive; return whether there were any."""
    open_line = has_text = False
    async with aclosing(client.events(job_id)) as events:
        async for event in events:
            if quiet or (event.type != TOKEN and event.type not in VOID):
                continue
            if event.type == TOKEN:
                click.echo(printable(token(event.data)), nl=False)
                open_line = has_text = True
            elif has_text:
                click.echo("\n" if open_line else "", nl=False)
                click.echo("callsheet: the attempt was interrupted; the answer starts again", err=True)
                open_line = has_text = False
    if open_line:
        click.echo()
    return has_text


def _clear_cancellation() -> None:
    """Let the current task go on after Ctrl-C cancelled it: the job must be canceled, too."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


async def _cancel(client: Client, job_id: str) -> int:
    try:
        job = await client.cancel(job_id, "Ctrl-C")
        outcome = "is canceled" if job.ended else "will be canceled"
    except Conflict:
        outcome = "had ended already"
    except CallsheetError as error:
        outcome = f"could not be canceled: {error}"
    click.echo(f"\ncallsheet: job {job_id} {outcome}", err=True)
    return INTERRUPTED
