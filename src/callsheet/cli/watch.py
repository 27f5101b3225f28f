"""`callsheet watch`: show what happens to a job on a server, while it happens."""

from __future__ import annotations

import json
import re
import sys
from contextlib import aclosing, suppress
from datetime import datetime

import click

from callsheet.client import ApiError, Client, JobEvent, Patience, RemoteJob
from callsheet.client.client import TOKEN, token
from callsheet.settings import WATCH

from . import logs
from .options import settings
from .stores import INTERRUPTED, run

SOON = Patience(retry_for_s=5.0)  # somebody sits and waits: a server that is not there is told of soon
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

A lost connection is taken up again where it broke off: no event is missing and none comes twice. Ctrl-C stops watching;
the job goes on. CALLSHEET_API_KEY holds the key. Ends with 0 when the job is done, 1 when it failed, 130 when it was
canceled. `callsheet jobs watch` does the same for a store that can be reached without a server.""",
)
@click.argument("job_id", metavar="ID")
@settings(WATCH)
def command(job_id: str, after: str | None, url: str, *, json: bool) -> None:
    """Show a job's events, past and live, until its end."""
    logs.set_up("human", "warning")
    raise SystemExit(run(_watch(url, job_id, after, as_json=json)))


async def _watch(url: str, job_id: str, after: str | None, *, as_json: bool) -> int:
    async with opened(url) as client:
        with suppress(ApiError):  # the stream tells of those; it would wait minutes for a server that never was there
            await client.get(job_id)
        async with aclosing(client.events(job_id, after)) as events:
            async for event in events:
                click.echo(_as_json(event) if as_json else _as_line(event))
        job = await client.get(job_id)
    if not as_json:
        click.echo(f"callsheet: {told_end(job)}", err=True)
    return exit_code(job)


def _as_json(event: JobEvent) -> str:
    return json.dumps(event._asdict(), ensure_ascii=False)


def _as_line(event: JobEvent) -> str:
    """`12:03:44.120 progress  40% decoding: half way`, local time."""
    at = datetime.fromtimestamp(event.ts / 1000).astimezone()
    said = ": ".join(word for word in (event.step, _words(event)) if word)
    line = f"{at:%H:%M:%S}.{event.ts % 1000:03} {event.type:<9} {event.progress:3.0f}% {said}"
    return _CONTROLS_AND_LINES.sub(" ", line).rstrip()


def _words(event: JobEvent) -> str:
    if event.type == TOKEN:
        return json.dumps(token(event.data), ensure_ascii=False)
    code, message = event.data.get("code"), event.data.get("message") or event.data.get("reason")
    return ": ".join(str(word) for word in (code, message) if word)


def opened(url: str) -> Client:
    """A client for one command."""
    return Client(url, patience=SOON)


def exit_code(job: RemoteJob) -> int:
    """What a command ends with that waited for this job."""
    return EXIT_CODES.get(job.status, 1)


def told_end(job: RemoteJob) -> str:
    """How a job ended, in one line."""
    error = job.error or {}
    why = ": ".join(str(word) for word in (error.get("code"), error.get("message")) if word)
    return _CONTROLS_AND_LINES.sub(" ", f"job {job.job_id} {job.status}{f': {why}' if why else ''}")


def printable(text: str) -> str:
    """Text of a model for where it is shown: a terminal must not take orders from it."""
    return _CONTROLS.sub("", text) if sys.stdout.isatty() else text
