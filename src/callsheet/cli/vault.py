"""`callsheet vault`: rotate the keys that wrap credentials, wrap them anew, and see how things stand."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import click

from callsheet.app.rewrapping import keks_in_use, rewrap_system, rewrap_webhooks, system_keks, webhook_keks
from callsheet.settings import VAULT_REWRAP, VAULT_ROTATE, VAULT_STATUS
from callsheet.vault import Vault, keyring_from
from callsheet.vault.errors import NoKeyring
from callsheet.vault.keys import Keys, changing, first_keys, kek_name, kek_number, write_file
from callsheet.vault.rewrap import Progress as Rewrapped
from callsheet.vault.rewrap import rewrap as rewrap_all
from callsheet.vault.vault import WARN_AT, totals

from . import bars
from .acts import note
from .drawing import escape
from .failures import Told
from .options import settings
from .records import print_json
from .stores import opened, run
from .tables import console, table

SHOWN_FAULTS = 20


@click.group(
    "vault",
    epilog="""\b
Examples:
  callsheet vault rotate --keys-file /etc/callsheet/keys
  callsheet vault rewrap
  callsheet vault status
  callsheet vault retire""",
)
def command() -> None:
    """Rotate the keys of stored credentials, and wrap credentials anew."""


@command.command("rotate", epilog="\b\nExample:\n  callsheet vault rotate --keys-file /etc/callsheet/keys")
@settings(VAULT_ROTATE)
def rotate(keys_file: str | None, *, prepare: bool) -> None:
    """Make a new key that wraps from now on; the older ones still open what they have wrapped.

    The first time it makes the file. A key that was made with --prepare is put to use. Processes that read the file
    see the change by themselves. Follow with `callsheet vault rewrap`.
    """
    path = _file(keys_file)
    with changing(path) as was:
        becomes = first_keys() if was is None else _rotated(was, prepare=prepare)
        write_file(path, becomes)
    newest = kek_name(max(becomes.keys))
    if prepare and was is not None:
        click.echo(f"key {newest} is ready in {path}; give all machines this file, then run `callsheet vault rotate`")
    else:
        click.echo(f"key {newest} wraps from now on; run `callsheet vault rewrap` to bring older credentials to it")


@command.command("rewrap", epilog="\b\nExample:\n  callsheet vault rewrap --database-url postgresql://app@db/app")
@settings(VAULT_REWRAP)
def rewrap(keys_file: str | None, database_url: str) -> None:
    """Bring all credentials and secrets under the current key, while servers and workers go on. None is opened.

    May be stopped at any moment, also by kill -9, and run again. Ends with 1 when some could not be brought along.
    """

    async def work() -> None:
        async with _vault(database_url, keys_file) as vault:
            with _bar() as bar:
                task = bar.add_task("wrapping", total=None)

                def told(progress: Rewrapped) -> None:
                    bar.update(task, total=progress.total, completed=progress.done)

                done, faults = await rewrap_all(vault, told)
            hooks, torn = await rewrap_webhooks(vault.store, vault.keyring)
            own, shut = await rewrap_system(vault.store, vault.keyring)
            current = await vault.keyring.current()
            count = done.wrapped + hooks.wrapped
            await note(vault.store, "vault.rewrapped", target=str(current), secrets=count)
        click.echo(f"{done.wrapped} credentials wrapped anew under {current}")
        click.echo(f"{hooks.wrapped} webhook secrets wrapped anew under {current}")
        click.echo(f"{own} secrets of the system wrapped anew under {current}")
        told_of = [f"job {job_id}: {why}" for job_id, why in faults.items()]
        told_of += [f"endpoint {endpoint_id}: {why}" for endpoint_id, why in torn.items()]
        told_of += [f"{name}: {why}" for name, why in shut.items()]
        for line in told_of[:SHOWN_FAULTS]:
            click.echo(f"  {line}", err=True)
        if told_of:
            parts = [f"{len(faults)} credentials"] * bool(faults) + [f"{len(torn)} webhook endpoints"] * bool(torn)
            parts += [f"{len(shut)} secrets of the system"] * bool(shut)
            raise Told(f"{' and '.join(parts)} cannot be opened with this keyring and stay as they are")

    run(work())


@command.command("retire", epilog="\b\nExample:\n  callsheet vault retire --keys-file /etc/callsheet/keys")
@settings(VAULT_REWRAP)
def retire(keys_file: str | None, database_url: str) -> None:
    """Take all keys but the current one, and newer ones, out of the keyring, once they wrap nothing any more.

    What only they could open, such as a backup of the database, is lost by that.
    """
    path = _file(keys_file)

    async def in_use() -> dict[str, int]:
        async with opened(database_url) as engine:
            return await keks_in_use(engine.store)

    with changing(path) as was:
        if was is None:
            raise NoKeyring(f"there is no keyring {path}")
        still = {kek_id: n for kek_id, n in run(in_use()).items() if (kek_number(kek_id) or 0) < was.current}
        if still:
            count = sum(still.values())
            raise Told(f"{count} credentials and secrets are under {', '.join(still)}; run `callsheet vault rewrap`")
        write_file(path, was.without_below(was.current))
    gone = [kek_name(number) for number in sorted(was.keys) if number < was.current]
    click.echo(f"retired: {', '.join(gone) or 'nothing'}; the minimum is {kek_name(was.current)}")


@command.command("status", epilog="\b\nExample:\n  callsheet vault status --json")
@settings(VAULT_STATUS)
def status(keys_file: str | None, database_url: str, *, json: bool) -> None:
    """Show how many credentials and secrets each key wraps, and how often it has wrapped."""

    async def work() -> None:
        async with _vault(database_url, keys_file) as vault:
            current, wraps = await vault.keyring.current(), await totals(vault.store)
            counts, hooks = await vault.store.credential_keks(), await webhook_keks(vault.store)
            own = await system_keks(vault.store)
        keks = [
            _Kek(
                kek_id,
                kek_id == current,
                counts.get(kek_id, 0),
                hooks.get(kek_id, 0),
                wraps.get(kek_id, 0),
                own.get(kek_id, 0),
            )
            for kek_id in sorted({current, *wraps, *counts, *hooks, *own})
        ]
        if json:
            old = sum(kek.sealed for kek in keks if not kek.current)
            print_json({"current": current, "to_rewrap": old, "keks": [kek._asdict() for kek in keks]})
        else:
            _show(keks)

    run(work())


class _Kek(NamedTuple):
    kek: str
    current: bool
    credentials: int
    webhook_secrets: int
    wraps: int
    system_secrets: int

    @property
    def sealed(self) -> int:
        """How much it has wrapped that is still there."""
        return self.credentials + self.webhook_secrets + self.system_secrets


def _show(keks: list[_Kek]) -> None:
    rows = table("key", "credentials", "webhook secrets", "system secrets", "wraps at most", "")
    for kek in keks:
        old = "to be wrapped anew" if kek.sealed else ""
        note = "wraps now" if kek.current else old
        if kek.wraps >= WARN_AT:
            note += "; has wrapped too often: rotate"
        counts = (kek.credentials, kek.webhook_secrets, kek.system_secrets, kek.wraps)
        rows.add_row(escape(kek.kek), *map(str, counts), note)
    console().print(rows)


def _rotated(was: Keys, *, prepare: bool) -> Keys:
    if was.prepared is None:
        return was.with_new_key(in_use=not prepare)
    if prepare:
        raise Told(f"key {kek_name(was.prepared)} is prepared already; `callsheet vault rotate` puts it to use")
    return Keys(was.keys, was.prepared, was.least)


def _file(keys_file: str | None) -> Path:
    if os.environ.get("CALLSHEET_KMS"):
        raise NoKeyring("the keys are in a service (CALLSHEET_KMS): rotate and retire them there, then `vault rewrap`")
    if not keys_file:
        raise NoKeyring("say where the keyring is or shall be: --keys-file or CALLSHEET_KEYS_FILE")
    path = Path(keys_file)
    if not path.absolute().parent.is_dir():
        raise NoKeyring(f"there is no folder {path.absolute().parent}; make it first")
    return path


@contextlib.asynccontextmanager
async def _vault(database_url: str, keys_file: str | None) -> AsyncIterator[Vault]:
    environ = {**os.environ, **({"CALLSHEET_KEYS_FILE": keys_file} if keys_file else {})}
    async with opened(database_url) as engine, Vault(engine.store, keyring_from(environ)) as vault:
        yield vault


def _bar() -> bars.Progress:
    columns = (bars.text("{task.description}"), bars.bar(), bars.count, bars.remaining)
    return bars.Progress(*columns, console=console(stderr=True))
