"""`callsheet migrate`."""

from __future__ import annotations

import asyncio

import click

from callsheet.settings import STORE_ONLY
from callsheet.store import store_from_url

from .options import settings
from .passwords import check_url


@click.command(
    "migrate",
    epilog="""\b
Examples:
  callsheet migrate
  callsheet migrate --database-url postgresql://app@db.example.org/app""",
)
@settings(STORE_ONLY)
def command(database_url: str) -> None:
    """Bring the store's schema to this program's version.

    Forward-only and additive: workers of the version before go on working. Safe to run from many processes at
    once; does nothing when there is nothing to do. SQLite files are migrated when they are opened.
    """
    check_url(database_url)
    ran = asyncio.run(_migrate(database_url))
    for name in ran:
        click.echo(f"applied {name}")
    click.echo(f"{len(ran)} migrations applied" if ran else "the schema is up to date")


async def _migrate(database_url: str) -> list[str]:
    store = store_from_url(database_url)
    try:
        return await store.migrate()
    finally:
        await store.close()
