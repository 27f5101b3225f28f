"""`callsheet scan`: finds new originals in the object storage and adds their videos."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from callsheet.app import Callsheet
from callsheet.contracts.cortana.scan import Owner, ScanResult, scan
from callsheet.kernel.durations import seconds

from . import logs
from .apps import Places
from .command_settings import SCAN
from .errors import check_url
from .open_store import Patience, run
from .options import settings
from .output import print_json


@click.command(
    "scan",
    epilog="""\b
Examples:
  callsheet scan --objects-url s3://media
  callsheet scan --every 30s --owner acme      # for ever; any number of these may run at once""",
)
@settings(SCAN)
def command(every: str | None, owner: str | None, team: str | None, wait: str, **arguments: Any) -> None:
    """Find new videos in the object storage and create the job of each, once.

    A video is videos/original/{video_id}/master.mp4, where video_id is a UUID. The jobs run in workers: `callsheet up`
    or `callsheet worker`.
    """
    logs.set_up("human", "info")
    check_url(arguments["database_url"])
    patience = Patience(wait if every else 0)
    run(_scan(arguments, Owner(owner or "", team), patience, seconds(every) if every else None))


async def _scan(arguments: dict[str, Any], owner: Owner, patience: Patience, every_s: float | None) -> None:
    places = Places(arguments["database_url"], None, arguments["objects_url"], arguments["catalog_url"])
    app = places.apply_to(Callsheet(arguments["database_url"]))
    app.objects_url = app.objects_url or app.default_objects_url()
    await patience.open(app.migrate)
    async with app:
        parts = (await app.engine(), await app.catalog(), await app.objects())
        while True:
            _print(await scan(*parts, owner), as_json=arguments["json"])
            if every_s is None:
                return
            await asyncio.sleep(every_s)


def _print(result: ScanResult, *, as_json: bool) -> None:
    if as_json:
        print_json({"seen": result.seen, "started": result.started_ids, "odd": result.odd})
        return
    for video_id in result.started_ids:
        click.echo(f"started {video_id}")
    for key in result.odd:
        click.echo(f"not a video: {key} (a video is videos/original/{{uuid}}/master.mp4)", err=True)
    click.echo(f"{result.seen} videos there, {len(result.started_ids)} started")
