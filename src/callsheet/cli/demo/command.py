"""The command: a server, a worker and a receiver in one process, and the story told through them."""

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
from callsheet.cli import bars, logs
from callsheet.client import Client as Api
from callsheet.client import ServerUnreachable
from callsheet.engine import Engine
from callsheet.http.keys import ApiKeys
from callsheet.settings import DEMO

from ..drawing import Table  # noqa: TID252
from ..failures import Told  # noqa: TID252
from ..hosting import Flags, Kept, host  # noqa: TID252
from ..options import settings  # noqa: TID252
from ..outgoing import rules_of  # noqa: TID252
from ..passwords import check_url, without_password  # noqa: TID252
from ..serving import run_on_fast_loop  # noqa: TID252
from ..tables import console  # noqa: TID252
from .home import PORT, Home, default_home
from .receiver import Inbox
from .steps import LABELS, PATIENCE, STEPS, Client, Row, StepFailed, Tell

REQUESTER = "demo"
LOOPBACK = ("127.0.0.0/8",)
LEASE = "10s"  # so that a killed demo goes on soon


@click.command(
    "demo",
    epilog="""\b
Examples:
  callsheet demo
  callsheet demo --exit                        # end when the table is printed
  callsheet demo --database-url postgresql://…

Interrupted, by Ctrl-C or kill -9, and started again, it goes on where it was. All of it is in one folder, which you
may remove.""",
)
@settings(DEMO)
def command(home: Path | None, port: int | None, *, exit: bool, **given: Any) -> None:
    """Show everything once: a script becomes a video, is read, found, cut, transcoded, and told of.

    Nothing is needed but this package with its extra media. It then keeps serving the studio until Ctrl-C.
    """
    place = Home(Path(home) if home else default_home())
    given["database_url"] = given["database_url"] or place.database_url
    check_url(given["database_url"])
    os.environ["CALLSHEET_KEYS_FILE"] = str(place.keyring())
    logs.set_up("human", "warning")
    exits = exit or os.environ.get("CALLSHEET_DEMO_EXIT", "") not in ("", "0")
    run_on_fast_loop(_demo(place, port or PORT, given, exits=exits))


async def _demo(home: Home, port: int, given: dict[str, Any], *, exits: bool) -> None:
    inbox = Inbox(home.port("inbox"))
    flags = _flags(home, home.port("port", port), inbox.port, given)
    app = Callsheet(flags.database_url, redis_url=flags.redis_url)
    app.objects_url, app.catalog_url = str(flags.objects_url), flags.catalog_url or ""
    add_builtin(app, rules_of(flags.webhook_networks, flags.webhook_ports, http=True))
    await app.migrate()
    async with app, inbox:
        engine = await app.engine()
        key = await _key(engine, home)
        kept = Kept(await app.objects(), await app.catalog())
        worker = app.worker(concurrency=4, drain="2s", lease=LEASE)
        story = asyncio.create_task(_story(home, flags, inbox, key, exits=exits))
        try:
            await host(engine, flags, worker, kept)
        finally:
            story.cancel()
            with contextlib.suppress(asyncio.CancelledError, httpx2.TransportError, ServerUnreachable):
                await story  # what it could not ask any more, since the server ended, is no news


async def _story(home: Home, flags: Flags, inbox: Inbox, key: str, *, exits: bool) -> None:
    began = time.monotonic()
    base = f"http://{flags.host}:{flags.port}"
    out = console()
    out.print(f"[bold]Callsheet demo[/] in {home.folder}, store {without_password(flags.database_url)}")
    try:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=PATIENCE) as http, Api(base, key) as api:
            await _answering(http)
            rows = await _told(Client(http, api, home, inbox))
        out.print(_table(rows, time.monotonic() - began))
        out.print(f"studio  {base}/studio\nkey     {key}", soft_wrap=True)
    except Exception as error:
        signal.raise_signal(signal.SIGTERM)  # else it would serve on, and nobody would see the error
        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            raise Told("the demo's server gave no answer in time; start it again, and it goes on") from error
        if isinstance(error, StepFailed):
            home.start_over()
        raise
    if exits:
        signal.raise_signal(signal.SIGTERM)
    else:
        out.print("Serving until Ctrl-C.")


async def _told(client: Client) -> list[tuple[Row, float]]:
    words = bars.text("{task.description:<16}"), bars.text("[blue]{task.fields[stage]:<14}[/]")
    out, rows = console(), []
    with bars.Progress(*words, bars.bar(), bars.percent, bars.elapsed, console=out) as bar:
        for step in STEPS:
            began = time.monotonic()
            shown = bar.add_task(LABELS[step], total=100, stage="")
            row = await step(client, _telling(bar, shown))
            bar.update(shown, completed=100, stage="done")
            rows.append((row, time.monotonic() - began))
            if not out.is_terminal:
                out.print(f"{row.step}: {row.outcome}")
    return rows


def _telling(bar: bars.Progress, shown: bars.TaskID) -> Tell:
    return lambda done, stage: bar.update(shown, completed=done, stage=stage)


def _table(rows: list[tuple[Row, float]], whole_s: float) -> Table:
    table = Table("step", "outcome", "file", "seconds", title="What happened")
    for row, taken_s in rows:
        table.add_row(row.step, row.outcome, row.file, f"{taken_s:.1f}")
    table.add_row("all", "", "", f"{whole_s:.1f}", style="bold")
    return table


async def _answering(http: httpx2.AsyncClient) -> None:
    """Wait until the server is up."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if (await http.get("/readyz")).is_success:
                    return
            await asyncio.sleep(0.05)


async def _key(engine: Engine, home: Home) -> str:
    """The demo's own key, kept in its folder: it is made once."""
    keys = ApiKeys(engine.store)
    if "key" not in home.kept or await keys.present(home.kept["key"]) is None:
        text, _ = await keys.create("demo", requester_id=REQUESTER, scopes=["admin"])
        home.keep(key=text)
    key: str = home.kept["key"]
    return key


def _flags(home: Home, port: int, inbox_port: int, given: dict[str, Any]) -> Flags:
    redis = given["database_url"].startswith(("redis", "unix"))
    return Flags(
        host="127.0.0.1",
        port=port,
        api_key=None,
        auth="on",
        job_ttl="30d",
        queue_depth=0,
        rate_limit=1000,
        streams=200,
        webhooks="on",
        webhook_concurrency=5,
        webhook_http=True,
        webhook_networks=LOOPBACK,
        webhook_ports=(str(inbox_port),),
        fair_queues=None,
        objects_url=given["objects_url"] or home.objects_url,
        catalog_url=given["catalog_url"] or (f"sqlite:///{home.path('catalog.db')}" if redis else None),
        log_format="human",
        log_level="warning",
        database_url=given["database_url"],
        redis_url=None,
    )
