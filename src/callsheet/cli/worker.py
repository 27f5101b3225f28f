"""`callsheet worker`: the flags, and the choice between working here and supervising processes that do."""

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
from callsheet.settings import PIPELINE_LOGS, WORKER

from . import logs
from .failures import DRAINED, WRONG_INPUT, WrongInput
from .options import Address, settings
from .parent import follow_to_death, take_place
from .supervisor import Supervisor


@dataclass(frozen=True)
class Flags:
    """What the flags and the environment say; the URLs only when a flag says them."""

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
    webhook_http: bool
    webhook_networks: tuple[str, ...] | None
    webhook_ports: tuple[str, ...] | None
    storage_http: bool
    storage_networks: tuple[str, ...] | None
    storage_ports: tuple[str, ...] | None
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
  callsheet worker shop:app --burst                     # do what there is, then end
  callsheet worker shop:app --reload --log-level debug  # while you write tasks
  CALLSHEET_CONCURRENCY=20 callsheet worker shop:app --log-format json --health :8080
  callsheet worker shop:app --url https://jobs.example.org --token-file /etc/callsheet/token --labels gpu

The first SIGTERM or Ctrl-C takes no more jobs and waits for the running ones (--drain); the second hands them back at
once. With --url the jobs come from a server, over nothing but outbound HTTP, and the app's store is not opened. Exit
codes: 0 after a stop, 1 when the store fails at the start, 2 for a wrong flag, an app that cannot be imported, or a
server that does not want this worker.""",
)
@click.argument("target", metavar="[MODULE[:APP]]", required=False)
@settings(WORKER)
@click.pass_context
def command(ctx: click.Context, /, target: str | None, **given: Any) -> None:
    """Run the tasks of an app until stopped.

    MODULE:APP names a Callsheet in a module that can be imported from the current folder; without :APP the only one
    in the module is taken. Without any, the tasks that come along are run: those that `callsheet up` has.
    """
    for url in ("database_url", "redis_url", "objects_url", "catalog_url"):
        if ctx.get_parameter_source(url) is not ParameterSource.COMMANDLINE:
            given[url] = None  # an app that names no store has read the variable itself
    if not _is_remote(ctx, given):
        given["url"] = None
    flags = Flags(**given)
    logs.set_up(flags.log_format, flags.log_level)
    if flags.pipeline_logs:
        os.environ[PIPELINE_LOGS.variable] = "on"  # where the tasks look, those of an app that declares them itself too
    place = take_place(os.environ)
    if place is None and (flags.reload or flags.processes > 1):
        sys.exit(_supervise(flags))
    if place is not None and not follow_to_death(place):
        return
    from .serving import serve  # noqa: PLC0415 - a supervisor needs neither the app nor an engine

    try:
        drained = serve(target, flags, place)
    except (WrongInput, InvalidInput):
        if place is not None and place.number:
            sys.exit(WRONG_INPUT)  # the first child tells it
        raise
    if drained and place is not None:
        sys.exit(DRAINED)


def _is_remote(ctx: click.Context, given: dict[str, Any]) -> bool:
    """Whether jobs come from a server; raises WrongInput for a server and a store at once.

    CALLSHEET_URL alone does not say so: it is there for clients, and a worker would leave its store because of it.
    """
    if ctx.get_parameter_source("url") is ParameterSource.COMMANDLINE:
        if given["database_url"] is not None:
            raise WrongInput("--url and --database-url exclude one another: jobs come from a server or from a store")
        return True
    return bool(given["url"] and (given["token"] or given["token_file"]) and given["database_url"] is None)


def _supervise(flags: Flags) -> int:
    if flags.reload:
        try:
            import watchfiles  # noqa: F401, PLC0415 - an extra
        except ModuleNotFoundError:
            raise WrongInput("--reload needs watchfiles: pip install 'callsheet[reload]'") from None
    supervisor = Supervisor(flags.processes, burst=flags.burst, reload=flags.reload)
    return asyncio.run(supervisor.run())
