"""`callsheet testkit`: does a control plane, or a worker of one, keep the contract?"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import click

from callsheet.cli.failures import WrongInput
from callsheet.cli.options import settings
from callsheet.settings import TESTKIT_SERVER, TESTKIT_WORKER

WARNED = "callsheet"


@click.group(
    "testkit", epilog="\b\nExamples:\n  callsheet testkit worker -- node worker.mjs\n  callsheet testkit server --help"
)
def command() -> None:
    """Check a worker, or a control plane, against the protocol."""


@command.command(
    "worker",
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  callsheet testkit worker -- python examples/http_worker.py
  callsheet testkit worker --slow -- node examples/http_worker.mjs
  callsheet testkit worker --json -- ./my-worker > report.json

The command is started with CALLSHEET_URL, CALLSHEET_TOKEN and CALLSHEET_STREAMS in its environment and must serve the
tasks echo, fail and sleep. Ends with 0 when everything held, with 1 when something did not.""",
)
@click.argument("program", metavar="-- COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@settings(TESTKIT_WORKER)
def worker(program: tuple[str, ...], *, only: str | None, slow: bool, json: bool) -> None:
    """Run a worker against a small control plane, with jobs and faults, and tell what held."""
    from .of_workers import CHECKS  # noqa: PLC0415 - a server's checks need none of it
    from .report import judge, skipped
    from .stage import staged

    async def run() -> list[Any]:
        found = []
        async with staged(program) as stage:
            for check in CHECKS:
                if only and only.lower() not in f"{check.clause} {check.claim}".lower():
                    continue
                if check.slow and not slow:
                    found.append(skipped(check, "only with --slow"))
                    continue
                await stage.begin()
                found.append(await judge(check, stage))
        return found

    logging.getLogger(WARNED).setLevel(logging.ERROR)
    _finish(asyncio.run(run()), f"the worker {program[0]}", as_text=not json)


@command.command(
    "server",
    epilog="""\b
Examples:
  CALLSHEET_TOKEN=… callsheet testkit server --url https://jobs.example.org
  callsheet testkit server --url http://127.0.0.1:9000 --enqueue './enqueue.sh'

Jobs for the checks are made by POST /v1/jobs and follow-ups of these, in streams of their own; another server needs
--enqueue, a command that reads {"stream", "task", "payload", "max_attempts"} on its standard input and puts such a job
in line. The token needs the scopes jobs:write and worker. Ends with 0 when everything held, with 1 when something did
not.""",
)
@settings(TESTKIT_SERVER)
def server(*, url: str, token: str | None, enqueue: str | None, only: str | None, slow: bool, json: bool) -> None:
    """Check a control plane: ours, or another one that follows the contract."""
    from .of_servers import CHECKS  # noqa: PLC0415 - a worker's checks need none of it
    from .peer import Peer
    from .report import judge, skipped

    if not token:
        raise WrongInput("a token is needed: CALLSHEET_TOKEN=… callsheet testkit server")

    async def run() -> list[Any]:
        found = []
        async with Peer(url, token, enqueue) as peer:
            for check in CHECKS:
                if only and only.lower() not in f"{check.clause} {check.claim}".lower():
                    continue
                if check.slow and not slow:
                    found.append(skipped(check, "only with --slow"))
                elif check.extension and not peer.extended:
                    found.append(skipped(check, "the server speaks protocol 1"))
                else:
                    found.append(await judge(check, peer))
        return found

    _finish(asyncio.run(run()), f"the control plane at {url}", as_text=not json)


def _finish(found: list[Any], title: str, *, as_text: bool) -> None:
    """Tell what was found; exit code 1 when something did not hold."""
    from .report import Verdict, as_json, show

    if as_text:
        show(found, title)
    else:
        click.echo(json.dumps(as_json(found), indent=2))
    if any(one.verdict is Verdict.BROKEN for one in found):
        sys.exit(1)
