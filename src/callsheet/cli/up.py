"""`callsheet up`: everything in one process."""

from __future__ import annotations

import logging
import os
from typing import Any

import click

from callsheet.app import Callsheet
from callsheet.app.builtin import add_builtin
from callsheet.catalog import OFF
from callsheet.settings import PIPELINE_LOGS, UP

from . import logs
from .apps import Places, load_app
from .forced import check_forced_ffmpeg
from .hosting import Flags, Kept, ensure_key, host, listening
from .options import settings
from .outgoing import rules_of
from .passwords import check_url
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
def command(target: str | None, concurrency: int, drain: str, max_source: int, **given: Any) -> None:
    """Serve the HTTP API and run jobs, in one process, on one store.

    MODULE:APP brings your own tasks. The gateway's (chat, plan, code, tool, rag, embed) and transcode are
    always there; with the extra media compose and the search for what is on screen in videos, too.
    """
    if given.pop("pipeline_logs"):
        os.environ[PIPELINE_LOGS.variable] = "on"  # where the tasks look
    flags = Flags(**given)
    logs.set_up(flags.log_format, flags.log_level)
    flags.options()
    check_url(flags.database_url)
    check_forced_ffmpeg()
    places = Places(flags.database_url, flags.redis_url, flags.objects_url or None, flags.catalog_url)
    app = load_app(target, places) if target else places.apply_to(Callsheet())
    rules = rules_of(flags.webhook_networks, flags.webhook_ports, http=flags.webhook_http)
    add_builtin(app, rules, max_source_bytes=max_source * 1_000_000)
    app.objects_url = app.objects_url or beside(app.database_url)
    run_on_fast_loop(_up(app, flags, concurrency, drain))


async def _up(app: Callsheet, flags: Flags, concurrency: int, drain: str) -> None:
    await app.migrate()
    async with app:
        engine = await app.engine()
        sock = listening(flags)  # before a key is shown that nothing would serve
        await ensure_key(engine, flags)
        objects = await app.objects() if app.objects_url else None
        kept = Kept(objects, await app.catalog() if app.catalog_url != OFF else None, sock)
        await host(engine, flags, app.worker(concurrency=concurrency, drain=drain), kept)
