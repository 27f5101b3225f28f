"""`callsheet worker`: reads the flags, then runs a worker here or supervises worker processes."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from callsheet.kernel.errors import InvalidInput
from callsheet.net.guard import AddressSettings
from callsheet.settings import PIPELINE_LOGS, WORKER, Address

from . import logs
from .errors import DRAINED, WRONG_INPUT, WrongInput
from .options import settings
from .supervisor import Supervisor, end_with_parent, take_slot


@dataclass(frozen=True, kw_only=True)
class Flags(AddressSettings):
    """The settings of a worker process. A URL is None unless a flag gives it: the app has read the variable itself."""

    queues: tuple[str, ...] | None
    concurrency: int
    processes: int
    lease: str
    prefetch: int
    drain: str
    grace: str
    poll: str
    task_patience: str
    burst: bool
    reload: bool
    workspaces: Path | None
    health: Address | None
    log_format: str
    log_level: str
    url: str | None
    token: str | None = field(repr=False)
    token_file: Path | None
    labels: tuple[str, ...] | None
    fair_queues: tuple[str, ...] | None
    claim_wait: str
    wait: str
    max_source: int
    pipeline_logs: bool
    objects_url: str | None
    catalog_url: str | None
    database_url: str | None
    redis_url: str | None


@click.command(
    "worker",
    epilog="""\b
Examples:
  callsheet worker shop:app
  callsheet worker shop:app --queues media,default --concurrency 4 --processes 2
  callsheet worker --database-url postgresql://… --objects-url s3://media
  callsheet worker shop:app --burst                     # run the queued jobs, then end
  callsheet worker shop:app --reload --log-level debug  # while you write tasks
  CALLSHEET_CONCURRENCY=20 callsheet worker shop:app --log-format json --health :8080
  callsheet worker shop:app --url https://jobs.example.org --token-file /etc/callsheet/token --labels gpu

The first SIGTERM or Ctrl-C takes no more jobs and waits for the running ones (--drain); the second puts them back into
the queue at once. With --url the jobs come from a server over outbound HTTP, and the app's store is not opened. Exit
codes: 0 after a stop, 1 if the store fails at the start, 2 for a wrong flag, an app that cannot be imported, or a
server that refuses this worker.""",
)
@click.argument("target", metavar="[MODULE[:APP]]", required=False)
@settings(WORKER)
@click.pass_context
def command(ctx: click.Context, /, target: str | None, **arguments: Any) -> None:
    """Run the tasks of an app until stopped.

    MODULE:APP names a Callsheet in a module that can be imported from the current folder; without :APP the module must
    have only one. Without both, the worker runs the built-in tasks, as `callsheet up` does.
    """
    for url in ("database_url", "redis_url", "objects_url", "catalog_url"):
        if ctx.get_parameter_source(url) is not ParameterSource.COMMANDLINE:
            arguments[url] = None
    if not _is_remote(ctx, arguments):
        arguments["url"] = None
    flags = Flags(**arguments)
    logs.set_up(flags.log_format, flags.log_level)
    if flags.pipeline_logs:
        os.environ[PIPELINE_LOGS.variable] = "on"  # tasks read the variable, also in apps that declare them themselves
    slot = take_slot(os.environ)
    if slot is None and (flags.reload or flags.processes > 1):
        sys.exit(_supervise(flags))
    if slot is not None and not end_with_parent(slot):
        return
    from .worker_process import run_worker  # noqa: PLC0415 - a supervisor needs neither the app nor an engine

    try:
        is_drained = run_worker(target, flags, slot)
    except (WrongInput, InvalidInput):
        if slot is not None and slot.number:
            sys.exit(WRONG_INPUT)  # the first child reports it
        raise
    if is_drained and slot is not None:
        sys.exit(DRAINED)


def _is_remote(ctx: click.Context, arguments: dict[str, Any]) -> bool:
    """Return whether jobs come from a server; raises WrongInput if both a server and a store are named.

    CALLSHEET_URL alone does not count: it is meant for clients, and would make a worker leave its store.
    """
    if ctx.get_parameter_source("url") is ParameterSource.COMMANDLINE:
        if arguments["database_url"] is not None:
            raise WrongInput("--url and --database-url exclude one another: jobs come from a server or from a store")
        return True
    return bool(
        arguments["url"] and (arguments["token"] or arguments["token_file"]) and arguments["database_url"] is None
    )


def _supervise(flags: Flags) -> int:
    if flags.reload:
        try:
            import watchfiles  # noqa: F401, PLC0415 - an extra
        except ModuleNotFoundError:
            raise WrongInput("--reload needs watchfiles: pip install 'callsheet[reload]'") from None
    supervisor = Supervisor(flags.processes, burst=flags.burst, reload=flags.reload)
    return asyncio.run(supervisor.run())
