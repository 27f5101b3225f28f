"""`callsheet up`: everything in one process."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

import click

from callsheet.app import Callsheet
from callsheet.app.builtin import add_builtin
from callsheet.catalog import OFF
from callsheet.settings import PIPELINE_LOGS, UP
from callsheet.worker.options import WorkerOptions

from . import logs
from .apps import Places, load_app
from .forced import check_forced_ffmpeg
from .hosting import Flags, Kept, ensure_key, host, listening
from .options import settings
from .outgoing import storage_rules, webhook_rules
from .passwords import check_url
from .patience import Patience, StopAsked, ended_by_signals
from .serving import run_on_fast_loop
from .stores import beside

log = logging.getLogger("callsheet.cli")


@click.command(
    "up",
    epilog="""\b
Examples:
  callsheet up
  callsheet up shop:app --concurrency 4
  CALLSHEET_LLM_URL=http://localhost:11434/v1 callsheet up   # then: callsheet ask "…"

The first start makes the store and an API key, which it prints once. The first Ctrl-C stops taking requests and waits
for running jobs, the second hands them back.""",
)
@click.argument("target", metavar="[MODULE:APP]", required=False)
@settings(UP)
def command(target: str | None, max_source: int, **given: Any) -> None:
    """Serve the HTTP API and run jobs, in one process, on one store.

    MODULE:APP brings your own tasks. The gateway's (chat, plan, code, tool, rag, embed) and transcode are
    always there; with the extra media compose and the search for what is on screen in videos, too.
    """
    if given.pop("pipeline_logs"):
        os.environ[PIPELINE_LOGS.variable] = "on"  # where the tasks look
    working: WorkerOptions = {name: given.pop(name) for name in ("concurrency", "drain", "task_patience")}  # type: ignore[assignment]
    flags = Flags(**given)
    logs.set_up(flags.log_format, flags.log_level)
    flags.options()
    check_url(flags.database_url)
    check_forced_ffmpeg()
    places = Places(flags.database_url, flags.redis_url, flags.objects_url or None, flags.catalog_url)
    app = load_app(target, places) if target else places.apply_to(Callsheet())
    add_builtin(app, webhook_rules(flags), storage=storage_rules(flags), max_source_bytes=max_source * 1_000_000)
    app.objects_url = app.objects_url or beside(app.database_url)
    run_on_fast_loop(_up(app, flags, working))


async def _up(app: Callsheet, flags: Flags, working: WorkerOptions) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.suppress(StopAsked):
            with ended_by_signals():
                kept = await _opened(stack, app, flags)
            await host(await app.engine(), flags, app.worker(**working), kept)


async def _opened(stack: contextlib.AsyncExitStack, app: Callsheet, flags: Flags) -> Kept:
    """All that the process needs, made and open; a store that is away is waited for."""
    patience = Patience(flags.wait)
    await patience.open(app.migrate)
    engine = await patience.open(app.engine)
    stack.push_async_callback(app.close)
    sock = listening(flags)  # before a key is shown that nothing would serve
    await ensure_key(engine, flags)
    objects = await app.objects() if app.objects_url else None
    return Kept(objects, await patience.open(app.catalog) if app.catalog_url != OFF else None, sock)
