"""`callsheet serve` runs the HTTP server without a worker, `callsheet up` runs both in one process."""

from __future__ import annotations

import os
from typing import Any

import click

from callsheet.app import Callsheet
from callsheet.app.builtin import add_builtin
from callsheet.settings import PIPELINE_LOGS, SERVE, UP
from callsheet.worker.options import WorkerOptions

from . import logs
from .apps import load_app
from .errors import check_url
from .options import settings
from .server_process import Flags, serve, serve_with_worker
from .worker_process import check_chosen_ffmpeg, run_on_fast_loop


@click.command(
    "serve",
    epilog="""\b
Examples:
  callsheet serve
  callsheet serve --host 0.0.0.0 --database-url postgresql://app@db.example.org/app
  CALLSHEET_API_KEY=… callsheet serve --log-format json

Clients send `Authorization: Bearer KEY`; `callsheet keys create` makes keys. The OpenAPI document is at /openapi.json,
health at /healthz and /readyz, metrics at /metrics. SIGTERM ends the server within two seconds; clients of event
streams reconnect to another process and miss no event.""",
)
@settings(SERVE)
def serve_command(**arguments: Any) -> None:
    """Serve the HTTP API on a store, without a worker."""
    flags = Flags(**arguments)
    logs.set_up(flags.log_format, flags.log_level)
    flags.check()
    check_url(flags.database_url)
    app = flags.places().apply_to(Callsheet())
    app.objects_url = app.objects_url or app.default_objects_url()
    run_on_fast_loop(serve(app, flags))


@click.command(
    "up",
    epilog="""\b
Examples:
  callsheet up
  callsheet up shop:app --concurrency 4
  CALLSHEET_LLM_URL=http://localhost:11434/v1 callsheet up   # then: callsheet ask "…"

The first start creates the store and an API key, which it prints once. The first Ctrl-C refuses new requests and waits
for running jobs, the second puts running jobs back into the queue.""",
)
@click.argument("target", metavar="[MODULE:APP]", required=False)
@settings(UP)
def up_command(target: str | None, max_source: int, **arguments: Any) -> None:
    """Serve the HTTP API and run jobs, in one process, on one store.

    MODULE:APP names an app with your own tasks. The built-in tasks are always there: chat, plan, code, tool, rag,
    embed and transcode; with the extra media also compose and video search.
    """
    if arguments.pop("pipeline_logs"):
        os.environ[PIPELINE_LOGS.variable] = "on"  # where the tasks look
    worker: WorkerOptions = {name: arguments.pop(name) for name in ("concurrency", "drain", "task_patience")}  # type: ignore[assignment]
    flags = Flags(**arguments)
    logs.set_up(flags.log_format, flags.log_level)
    flags.check()
    check_url(flags.database_url)
    check_chosen_ffmpeg()
    places = flags.places()
    app = load_app(target, places) if target else places.apply_to(Callsheet())
    storage, max_bytes = flags.storage_rules(), max_source * 1_000_000
    add_builtin(app, flags.webhook_rules(), storage=storage, max_source_bytes=max_bytes)
    app.objects_url = app.objects_url or app.default_objects_url()
    run_on_fast_loop(serve_with_worker(app, flags, app.worker(**worker)))
