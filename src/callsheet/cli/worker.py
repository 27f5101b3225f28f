"""`callsheet worker`: the flags, and the choice between working here and supervising processes that do."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from callsheet.kernel.errors import InvalidInput
from callsheet.settings import WORKER

from . import logs
from .failures import WRONG_INPUT, WrongInput
from .options import Address, settings
from .parent import follow_to_death, take_place
from .supervisor import Supervisor


@dataclass(frozen=True)
class Flags:
    """What the flags and the environment say; `database_url` only when a flag says it."""

    queues: tuple[str, ...] | None
    concurrency: int
    processes: int
    lease: str
    prefetch: int
    drain: str
    grace: str
    poll: str
    burst: bool
    reload: bool
    workspaces: Path | None
    health: Address | None
    log_format: str
    log_level: str
    database_url: str | None


@click.command(
    "worker",
    epilog="""\b
Examples:
  callsheet worker shop:app
  callsheet worker shop:app --queues media,default --concurrency 4 --processes 2
  callsheet worker shop:app --burst                     # do what there is, then end
  callsheet worker shop:app --reload --log-level debug  # while you write tasks
  CALLSHEET_CONCURRENCY=20 callsheet worker shop:app --log-format json --health :8080

The first SIGTERM or Ctrl-C takes no more jobs and waits for the running ones (--drain); the second hands them back at
once. Exit codes: 0 after a stop, 1 when the store fails at the start, 2 for a wrong flag or an app that cannot be
imported.""",
)
@click.argument("target", metavar="MODULE[:APP]")
@settings(WORKER)
@click.pass_context
def command(ctx: click.Context, /, target: str, **given: Any) -> None:
    """Run the tasks of an app until stopped.

    MODULE:APP names a Callsheet in a module that can be imported from the current folder; without :APP the only one
    in the module is taken.
    """
    if ctx.get_parameter_source("database_url") is not ParameterSource.COMMANDLINE:
        given["database_url"] = None  # an app that names no store has read the variable itself
    flags = Flags(**given)
    logs.set_up(flags.log_format, flags.log_level)
    place = take_place(os.environ)
    if place is None and (flags.reload or flags.processes > 1):
        sys.exit(_supervise(flags))
    if place is not None and not follow_to_death(place):
        return
    from .serving import serve  # noqa: PLC0415 - a supervisor needs neither the app nor an engine

    try:
        serve(target, flags, place)
    except (WrongInput, InvalidInput):
        if place is not None and place.number:
            sys.exit(WRONG_INPUT)  # the first child tells it
        raise


def _supervise(flags: Flags) -> int:
    if flags.reload:
        try:
            import watchfiles  # noqa: F401, PLC0415 - an extra
        except ModuleNotFoundError:
            raise WrongInput("--reload needs watchfiles: pip install 'callsheet[reload]'") from None
    supervisor = Supervisor(flags.processes, burst=flags.burst, reload=flags.reload)
    return asyncio.run(supervisor.run())
