"""The command `callsheet serve`: the HTTP server without a worker."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import click

from callsheet.engine import Engine
from callsheet.http.keys import ApiKeys
from callsheet.objects import open_objects
from callsheet.settings import SERVE, contract_objects_url

from . import logs
from .hosting import Flags, Kept, host, log
from .options import settings
from .patience import Patience, StopAsked, ended_by_signals
from .serving import run_on_fast_loop
from .stores import beside, opened, opened_catalog


@click.command(
    "serve",
    epilog="""\b
Examples:
  callsheet serve
  callsheet serve --host 0.0.0.0 --database-url postgresql://app@db.example.org/app
  CALLSHEET_API_KEY=… callsheet serve --log-format json

Clients send `Authorization: Bearer KEY`; `callsheet keys create` makes keys. The OpenAPI document is at /openapi.json,
health at /healthz and /readyz, numbers at /metrics. SIGTERM ends it within two seconds; event streams come back to
another process and miss nothing.""",
)
@settings(SERVE)
def command(**given: Any) -> None:
    """Serve the HTTP API on a store, without a worker."""
    flags = Flags(**given)
    logs.set_up(flags.log_format, flags.log_level)
    flags.options()  # what is wrong is told before anything begins
    run_on_fast_loop(_serve(flags))


async def _serve(flags: Flags) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.suppress(StopAsked):
            with ended_by_signals():
                engine, kept = await _opened(stack, flags)
            await host(engine, flags, kept=kept)


async def _opened(stack: contextlib.AsyncExitStack, flags: Flags) -> tuple[Engine, Kept]:
    """All that the server needs, open; a store that is away is waited for."""
    patience, url = Patience(flags.wait), flags.database_url
    engine = await patience.open(
        lambda: stack.enter_async_context(opened(url, must_exist=False, redis_url=flags.redis_url))
    )
    if flags.auth == "on" and not flags.api_key and not await ApiKeys(engine.store).list():
        log.warning("there is no API key yet, so nobody can get in: callsheet keys create NAME")
    catalog = await patience.open(lambda: stack.enter_async_context(opened_catalog(flags.catalog_url, url)))
    kept_in = flags.objects_url or contract_objects_url(os.environ) or beside(url)
    objects = None
    if kept_in:
        objects = await stack.enter_async_context(await open_objects(kept_in, engine.store, sealer=engine.sealer))
    return engine, Kept(objects, catalog)
