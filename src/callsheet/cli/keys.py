"""`callsheet keys`: make, list and revoke API keys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from callsheet.http.keys import DEFAULT_SCOPES, ApiKey, ApiKeys
from callsheet.kernel.durations import seconds
from callsheet.settings import KEYS_CREATE, KEYS_LIST, STORE_ONLY

from .acts import note
from .drawing import escape
from .failures import Told
from .options import settings
from .records import print_json
from .stores import opened, run
from .tables import console, table


@click.group(
    "keys",
    epilog="""\b
Examples:
  callsheet keys create "Anna's laptop" --requester acme --expires 90d
  callsheet keys list
  callsheet keys revoke 7Tq2bXc9Lm""",
)
def command() -> None:
    """Make, list and revoke API keys."""


@command.command(
    "create", epilog="\b\nExample:\n  callsheet keys create ci --requester acme --scope jobs:write --expires 90d"
)
@click.argument("name")
@settings(KEYS_CREATE)
def create(name: str, database_url: str, **given: Any) -> None:
    """Make a key and show it: once, for only its hash is kept.

    A key sees the jobs of its requester alone; one with the scope `admin` sees all. A worker with the scope `worker`
    gets the jobs of that requester; with `worker:all`, or for a key without a requester, those of everybody.
    """

    async def work() -> None:
        async with opened(database_url, must_exist=False) as engine:
            text, key = await ApiKeys(engine.store).create(
                name,
                requester_id=given["requester"] or "",
                scopes=given["scope"] or DEFAULT_SCOPES,
                ttl_s=seconds(given["expires"]) if given["expires"] else None,
                rate=given["rate"],
                teams=given["team"] or (),
            )
            about = {"name": key.name, "scopes": " ".join(key.scopes)}
            await note(engine.store, "key.created", target=key.key_id, requester_id=key.requester_id, **about)
            if given["json"]:
                print_json({"key": text, **key._asdict()})
            else:
                click.echo(text)
                click.echo(f"key {key.key_id}: keep it now, it is not shown again", err=True)

    run(work())


@command.command("list", epilog="\b\nExample:\n  callsheet keys list --json")
@settings(KEYS_LIST)
def list_(database_url: str, *, json: bool) -> None:
    """Show all keys, without their secrets."""

    async def work() -> None:
        async with opened(database_url) as engine:
            keys, now = await ApiKeys(engine.store).list(), await engine.store.now()
            if json:
                print_json([key._asdict() for key in keys])
            elif keys:
                _show(keys, now)
            else:
                click.echo("no keys yet; callsheet keys create NAME")

    run(work())


@command.command("revoke", epilog="\b\nExample:\n  callsheet keys revoke 7Tq2bXc9Lm")
@click.argument("key_id", metavar="ID")
@settings(STORE_ONLY)
def revoke(key_id: str, database_url: str) -> None:
    """End a key. Servers let it in for at most half a minute more."""

    async def work() -> None:
        async with opened(database_url) as engine:
            keys = ApiKeys(engine.store)
            owner = next((key.requester_id for key in await keys.list() if key.key_id == key_id), "")
            if not await keys.revoke(key_id):
                raise Told(f"no key {key_id}; callsheet keys list shows them")
            await note(engine.store, "key.revoked", target=key_id, requester_id=owner)
            click.echo(f"key {key_id} is revoked")

    run(work())


def _show(keys: list[ApiKey], now: int) -> None:
    rows = table("id", "name", "requester", "scopes", "made", "state")
    for key in keys:
        rows.add_row(
            key.key_id,
            escape(key.name),
            escape(key.requester_id) or "–",
            " ".join(key.scopes),
            _day(key.created_at),
            _state(key, now),
        )
    console().print(rows)


def _state(key: ApiKey, now: int) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    if key.expires_at is not None:
        return f"{'expired' if key.expires_at <= now else 'until'} {_day(key.expires_at)}"
    return "good"


def _day(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"
