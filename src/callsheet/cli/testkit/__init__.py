"""`callsheet testkit`: whether a control plane, or a worker of one, keeps the contract."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from json import dumps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callsheet.cli.command_settings import TESTKIT_SERVER, TESTKIT_WORKER
from callsheet.cli.errors import WrongInput
from callsheet.cli.options import settings

from .report import Check, Found, Verdict, as_json, judge, show, skipped

if TYPE_CHECKING:
    from .client import Peer
    from .harness import Stage

S = TypeVar("S", "Stage", "Peer")


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
def worker(program: tuple[str, ...], **arguments: Any) -> None:
    """Run a worker against a small control plane, with jobs and faults, and tell what held."""
    from .harness import staged  # noqa: PLC0415
    from .worker_checks import CHECKS  # noqa: PLC0415 - a server's checks need none of it

    async def run() -> list[Found]:
        async with staged(program) as stage:
            return await run_checks(CHECKS, stage, arguments, stage.begin)

    logging.getLogger("callsheet").setLevel(logging.CRITICAL)  # what the faults do to the server is meant
    _finish(asyncio.run(run()), f"the worker {' '.join(program)}", arguments)


@command.command(
    "server",
    epilog="""\b
Examples:
  CALLSHEET_TOKEN=… callsheet testkit server --url https://jobs.example.org
  callsheet testkit server --url http://127.0.0.1:9000 --enqueue ./enqueue.sh

Jobs for the checks are made by POST /v1/jobs and as follow-ups of these, in streams of their own. Another server needs
--enqueue, a command that reads {"stream", "task", "payload", "max_attempts"} on its standard input and puts such a job
in line. The token needs the scopes jobs:write and worker. Ends with 0 when everything held, with 1 when something did
not.""",
)
@settings(TESTKIT_SERVER)
def server(url: str, token: str | None, enqueue: str | None, **arguments: Any) -> None:
    """Check a control plane: ours, or another one that follows the contract."""
    from .client import Peer  # noqa: PLC0415
    from .server_checks import CHECKS  # noqa: PLC0415 - a worker's checks need none of it

    if not token:
        raise WrongInput("a token is needed: CALLSHEET_TOKEN=… callsheet testkit server")

    async def run() -> list[Found]:
        async with Peer(url, token, enqueue) as peer:
            return await run_checks(CHECKS, peer, arguments, peer.begin)

    _finish(asyncio.run(run()), f"the control plane at {url}", arguments)


async def run_checks(
    checks: list[Check[S]], subject: S, arguments: dict[str, Any], begin: Callable[[Check[S]], Awaitable[str]]
) -> list[Found]:
    """Make the checks that are asked for; `begin` says why one cannot be made."""
    found, only = [], (arguments["only"] or "").lower()
    for check in checks:
        if only not in f"{check.clause} {check.claim}".lower():
            continue
        why_not = "only with --slow" if check.slow and not arguments["slow"] else await begin(check)
        found.append(skipped(check, why_not) if why_not else await judge(check, subject))
    return found


def _finish(found: list[Found], title: str, arguments: dict[str, Any]) -> None:
    """Tell what was found; exit code 1 when something did not hold."""
    if arguments["json"]:
        click.echo(dumps(as_json(found), indent=2))
    else:
        show(found, title)
    if any(one.verdict is Verdict.BROKEN for one in found) or not found:
        sys.exit(1)
