"""`callsheet demo`: runs a server, a worker and a webhook receiver in one process, and five steps as their client.

`home` is the demo's folder, `steps` are the steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import click
import httpx2

from callsheet.app import Callsheet
from callsheet.app.builtin import add_builtin
from callsheet.app.sealing import sealer_from
from callsheet.asgi import Parts
from callsheet.cli import logs
from callsheet.cli.command_settings import DEMO
from callsheet.cli.drawing import Table
from callsheet.cli.errors import CommandFailed, check_url, without_password
from callsheet.cli.options import settings
from callsheet.cli.output import console
from callsheet.cli.progress_view import Progress, Row, bar, elapsed, percent, text
from callsheet.cli.server_process import Flags, run_server
from callsheet.cli.worker_process import run_on_fast_loop
from callsheet.client import Client as Api
from callsheet.client import ServerUnreachable
from callsheet.engine import Engine
from callsheet.http.keys import ApiKeys

from .home import PORT, Home, default_home
from .steps import LABELS, REQUEST_LIMIT, STEPS, Client, Inbox, Result, StepFailed, Update

REQUESTER = "demo"
LOOPBACK = ("127.0.0.0/8",)
LEASE = "10s"  # short, so that a killed demo goes on soon after a new start


@click.command(
    "demo",
    epilog="""\b
Examples:
  callsheet demo
  callsheet demo --exit                        # end when the table is printed
  callsheet demo --database-url postgresql://…

After Ctrl-C or kill -9 a new start goes on where the demo was. All its data is in one folder, which you may remove.""",
)
@settings(DEMO)
def command(home: Path | None, port: int | None, *, exit: bool, **arguments: Any) -> None:
    """Show the features: compose a video from a script, read, search, cut and transcode it.

    The demo needs this package with its extra media, and nothing else. It then serves the studio until Ctrl-C.
    """
    demo_home = Home(Path(home) if home else default_home())
    arguments["database_url"] = arguments["database_url"] or demo_home.database_url
    check_url(arguments["database_url"])
    os.environ["CALLSHEET_KEYS_FILE"] = str(demo_home.keyring())
    logs.set_up("human", "warning")
    exits = exit or os.environ.get("CALLSHEET_DEMO_EXIT", "") not in ("", "0")
    run_on_fast_loop(_demo(demo_home, port or PORT, arguments, exits=exits))


async def _demo(home: Home, port: int, arguments: dict[str, Any], *, exits: bool) -> None:
    inbox = Inbox(home.port("inbox"))
    flags = _flags(home, home.port("port", port), inbox.port, arguments)
    app = Callsheet(flags.database_url, redis_url=flags.redis_url)
    app.objects_url, app.catalog_url = str(flags.objects_url), flags.catalog_url or ""
    add_builtin(app, flags.webhook_rules())
    await app.migrate()
    async with app, inbox:
        engine = await app.engine()
        key = await _key(engine, home)
        parts = Parts(engine, sealer_from(os.environ), await app.objects(), await app.catalog())
        worker = app.worker(concurrency=4, drain="2s", lease=LEASE)
        steps = asyncio.create_task(_run_steps(home, flags, inbox, key, exits=exits))
        try:
            await run_server(parts, flags, worker)
        finally:
            steps.cancel()
            with contextlib.suppress(asyncio.CancelledError, httpx2.TransportError, ServerUnreachable):
                await steps  # its requests fail when the server has stopped


async def _run_steps(home: Home, flags: Flags, inbox: Inbox, key: str, *, exits: bool) -> None:
    started = time.monotonic()
    base = f"http://{flags.host}:{flags.port}"
    out = console()
    out.print(f"[bold]Callsheet demo[/] in {home.folder}, store {without_password(flags.database_url)}")
    try:
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            httpx2.AsyncClient(base_url=base, headers=headers, timeout=REQUEST_LIMIT) as http,
            Api(base, key) as api,
        ):
            await _wait_for_server(http)
            results = await _results(Client(http, api, home, inbox))
        out.print(_table(results, time.monotonic() - started))
        out.print(f"studio  {base}/studio\nkey     {key}", soft_wrap=True)
    except Exception as error:
        signal.raise_signal(signal.SIGTERM)  # the error is printed when the server has stopped
        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            raise CommandFailed("the demo's server did not answer in time; a new start goes on") from error
        if isinstance(error, StepFailed):
            home.start_over()
        raise
    if exits:
        signal.raise_signal(signal.SIGTERM)
    else:
        out.print("Serving until Ctrl-C.")


async def _results(client: Client) -> list[tuple[Result, float]]:
    """Run all steps with a bar for each; return their results and how many seconds each took."""
    columns = text("{row.description:<16}"), text("[blue]{row.fields[stage]:<14}[/]"), bar(), percent, elapsed
    out, results = console(), []
    with Progress(*columns, console=out) as progress:
        for step in STEPS:
            row = progress.add(LABELS[step], total=100, stage="")
            result = await step(client, _update_of(row))
            row.update(completed=100, stage="done")
            results.append((result, row.elapsed_s))
            if not out.is_terminal:
                out.print(f"{result.step}: {result.outcome}")
    return results


def _update_of(row: Row) -> Update:
    return lambda completed, stage: row.update(completed=completed, stage=stage)


def _table(results: list[tuple[Result, float]], total_s: float) -> Table:
    table = Table("step", "outcome", "file", "seconds", title="What happened")
    for result, took_s in results:
        table.add_row(result.step, result.outcome, result.file, f"{took_s:.1f}")
    table.add_row("all", "", "", f"{total_s:.1f}", style="bold")
    return table


async def _wait_for_server(http: httpx2.AsyncClient) -> None:
    """Wait until the server is up."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if (await http.get("/readyz")).is_success:
                    return
            await asyncio.sleep(0.05)


async def _key(engine: Engine, home: Home) -> str:
    """Return the demo's API key, created once and stored in its folder."""
    keys = ApiKeys(engine.store)
    if "key" not in home.state or await keys.present(home.state["key"]) is None:
        text, _ = await keys.create("demo", requester_id=REQUESTER, scopes=["admin"])
        home.save(key=text)
    key: str = home.state["key"]
    return key


def _flags(home: Home, port: int, inbox_port: int, arguments: dict[str, Any]) -> Flags:
    is_redis = arguments["database_url"].startswith(("redis", "unix"))
    return Flags.of(
        port=port,
        job_ttl="30d",
        queue_depth=0,
        webhook_http=True,
        webhook_networks=LOOPBACK,
        webhook_ports=(str(inbox_port),),
        objects_url=arguments["objects_url"] or home.objects_url,
        catalog_url=arguments["catalog_url"] or (f"sqlite:///{home.path('catalog.db')}" if is_redis else None),
        log_level="warning",
        database_url=arguments["database_url"],
    )
