"""The command `callsheet migrate`: create or update the tables of a store."""

from __future__ import annotations

import asyncio

import click

from callsheet.catalog import OFF, migrate_beside
from callsheet.settings import MIGRATE
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
@settings(MIGRATE)
def command(database_url: str, catalog_url: str | None) -> None:
    """Bring the store's schema to this program's version.

    Forward-only and additive: workers of the version before go on working. Safe to run from many processes at
    once; does nothing when there is nothing to do. SQLite files are migrated when they are opened. The catalogue of
    videos is migrated, too, where the extra media is installed.
    """
    check_url(database_url)
    if catalog_url and catalog_url != OFF:
        check_url(catalog_url)
    ran = asyncio.run(_migrate(database_url, catalog_url))
    for name in ran:
        click.echo(f"applied {name}")
    click.echo(f"{len(ran)} migrations applied" if ran else "the schema is up to date")


async def _migrate(database_url: str, catalog_url: str | None) -> list[str]:
    store = store_from_url(database_url)
    try:
        ran = await store.migrate()
    finally:
        await store.close()
    return ran + await migrate_beside(catalog_url, database_url)
