"""The command line. Each command is a thin face of the engine."""

from __future__ import annotations

import asyncio
import sys

import click

from callsheet import __version__
from callsheet.kernel.errors import CallsheetError
from callsheet.settings import DEFAULT_DATABASE_URL
from callsheet.store import store_from_url


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "CALLSHEET"})
@click.version_option(__version__, prog_name="callsheet")
def cli() -> None:
    """Callsheet: a durable job system for long, heavy work."""


@cli.command()
@click.option(
    "--database-url",
    envvar="CALLSHEET_DATABASE_URL",
    default=DEFAULT_DATABASE_URL,
    show_default=True,
    help="sqlite:///file.db, postgresql://… or redis://…",
)
def migrate(database_url: str) -> None:
    """Bring the store's schema to this program's version.

    Forward-only and additive: workers of the version before go on working. Safe to run from many processes at
    once; does nothing when there is nothing to do. SQLite files are migrated when they are opened.
    """
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


def main() -> None:
    """Run the command line; an error of ours is one line, not a traceback."""
    try:
        cli()
    except CallsheetError as error:
        click.echo(f"callsheet: {error}", err=True)
        sys.exit(1)
