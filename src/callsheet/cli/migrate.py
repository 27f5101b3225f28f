"""`callsheet migrate`: creates or updates the tables of a store."""

from __future__ import annotations

import asyncio

import click

from callsheet.catalog import OFF, migrate_beside
from callsheet.store import store_from_url

from .command_settings import MIGRATE
from .errors import check_url
from .options import settings


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

    Migrations only add: workers of the version before go on working. The command may run in many processes at once,
    and does nothing if the schema is up to date. SQLite files are migrated when they are opened. The catalogue of
    videos is migrated, too, if the extra media is installed.
    """
    check_url(database_url)
    if catalog_url and catalog_url != OFF:
        check_url(catalog_url)
    migrations = asyncio.run(_migrate(database_url, catalog_url))
    for name in migrations:
        click.echo(f"applied {name}")
    click.echo(f"{len(migrations)} migrations applied" if migrations else "the schema is up to date")


async def _migrate(database_url: str, catalog_url: str | None) -> list[str]:
    store = store_from_url(database_url)
    try:
        migrations = await store.migrate()
    finally:
        await store.close()
    return migrations + await migrate_beside(catalog_url, database_url)
