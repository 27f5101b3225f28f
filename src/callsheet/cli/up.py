"""`callsheet up`: everything in one process."""

from __future__ import annotations

import logging
from typing import Any

import click

from callsheet.app import Callsheet
from callsheet.app.transcoding import add_transcoding
from callsheet.contracts.redis_gateway.tasks import add_tasks
from callsheet.settings import UP

from . import logs
from .apps import load_app
from .hosting import Flags, ensure_key, host
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

    MODULE:APP brings your own tasks; the tasks of the gateway (chat, plan, code, tool, rag, embed)
    and, with the extra media, compose are always there.
    """
    flags = Flags(**given)
    logs.set_up(flags.log_format, flags.log_level)
    flags.options()
    check_url(flags.database_url)
    if target:
        app = load_app(target, database_url=flags.database_url, redis_url=flags.redis_url)
    else:
        app = Callsheet(flags.database_url, redis_url=flags.redis_url)
    if "transcode" not in app.definitions:  # else the app has set it up itself
        rules = rules_of(flags.webhook_networks, flags.webhook_ports, http=flags.webhook_http)
        add_transcoding(app, rules, max_source_bytes=max_source * 1_000_000)
    app.objects_url = flags.objects_url or app.objects_url or beside(app.database_url)
    run_on_fast_loop(_up(app, flags, concurrency, drain))


async def _up(app: Callsheet, flags: Flags, concurrency: int, drain: str) -> None:
    add_tasks(app)
    _add_media_tasks(app)
    await app.migrate()
    async with app:
        engine = await app.engine()
        await ensure_key(engine, flags)
        kept = await app.objects() if app.objects_url else None
        await host(engine, flags, app.worker(concurrency=concurrency, drain=drain), kept)


def _add_media_tasks(app: Callsheet) -> None:
    try:
        from callsheet.contracts.aura.tasks import add_tasks as add_compose  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        log.info("no media tasks (%s is missing): pip install 'callsheet[media]'", error.name)
        return
    add_compose(app)
