"""`callsheet vault`: rotate the keys that encrypt stored secrets, re-encrypt the secrets, show the state."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from callsheet.app.rewrapping import keks_in_use, rewrap_system, rewrap_webhooks, system_keks, webhook_keks
from callsheet.vault import Vault, keyring_from
from callsheet.vault.errors import NoKeyring
from callsheet.vault.keys import Keys, changing, first_keys, kek_name, kek_number, write_file
from callsheet.vault.rewrap import Progress as RewrapProgress
from callsheet.vault.rewrap import rewrap as rewrap_all
from callsheet.vault.vault import WARN_AT, totals

from .command_settings import VAULT_REWRAP, VAULT_ROTATE, VAULT_STATUS
from .drawing import escape
from .errors import CommandFailed
from .open_store import open_engine, record_audit, run
from .options import settings
from .output import console, print_json, table
from .progress_view import Progress, bar, count, remaining, text

MAX_FAULTS = 20


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
    """Rotate the keys that encrypt stored secrets, and re-encrypt the secrets."""


@command.command("rotate", epilog="\b\nExample:\n  callsheet vault rotate --keys-file /etc/callsheet/keys")
@settings(VAULT_ROTATE)
def rotate(keys_file: str | None, *, prepare: bool) -> None:
    """Create a new key for encryption; older keys still decrypt what they have encrypted.

    The first time it creates the file. A key created with --prepare is put to use. Processes that read the file notice
    the change. Run `callsheet vault rewrap` next.
    """
    path = _file(keys_file)
    with changing(path) as old:
        new = first_keys() if old is None else _rotate(old, prepare=prepare)
        write_file(path, new)
    newest = kek_name(max(new.keys))
    if prepare and old is not None:
        click.echo(f"key {newest} is ready in {path}; give all machines this file, then run `callsheet vault rotate`")
    else:
        click.echo(f"key {newest} wraps from now on; run `callsheet vault rewrap` to bring older credentials to it")


@command.command("rewrap", epilog="\b\nExample:\n  callsheet vault rewrap --database-url postgresql://app@db/app")
@settings(VAULT_REWRAP)
def rewrap(keys_file: str | None, database_url: str) -> None:
    """Re-encrypt the data keys of all secrets with the current key, while servers and workers go on.

    No secret is decrypted. The command may be stopped at any moment, also by kill -9, and run again. The exit code is 1
    if some secrets could not be rewrapped.
    """

    async def work() -> None:
        async with _vault(database_url, keys_file) as vault:
            with Progress(text("wrapping"), bar(), count, remaining, console=console(stderr=True)) as progress:
                row = progress.add("wrapping", total=None)

                def update(state: RewrapProgress) -> None:
                    row.update(total=state.total, completed=state.done)

                credentials, credential_faults = await rewrap_all(vault, update)
            hooks, hook_faults = await rewrap_webhooks(vault.store, vault.keyring)
            own, own_faults = await rewrap_system(vault.store, vault.keyring)
            current = await vault.keyring.current()
            rewrapped = credentials.wrapped + hooks.wrapped
            await record_audit(vault.store, "vault.rewrapped", target=str(current), secrets=rewrapped)
        click.echo(f"{credentials.wrapped} credentials wrapped anew under {current}")
        click.echo(f"{hooks.wrapped} webhook secrets wrapped anew under {current}")
        click.echo(f"{own} secrets of the system wrapped anew under {current}")
        _report_faults(credential_faults, hook_faults, own_faults)

    run(work())


def _report_faults(credentials: Mapping[str, str], hooks: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Print the secrets that could not be rewrapped, by job, endpoint and name; raise CommandFailed if any."""
    lines = [f"job {job_id}: {why}" for job_id, why in credentials.items()]
    lines += [f"endpoint {endpoint_id}: {why}" for endpoint_id, why in hooks.items()]
    lines += [f"{name}: {why}" for name, why in own.items()]
    for line in lines[:MAX_FAULTS]:
        click.echo(f"  {line}", err=True)
    if lines:
        kinds = ((credentials, "credentials"), (hooks, "webhook endpoints"), (own, "secrets of the system"))
        parts = [f"{len(faults)} {what}" for faults, what in kinds if faults]
        raise CommandFailed(f"{' and '.join(parts)} cannot be opened with this keyring and stay as they are")


@command.command("retire", epilog="\b\nExample:\n  callsheet vault retire --keys-file /etc/callsheet/keys")
@settings(VAULT_REWRAP)
def retire(keys_file: str | None, database_url: str) -> None:
    """Remove keys older than the current key from the keyring, once no stored secret needs them.

    Secrets that only these keys could decrypt, such as those in a backup of the database, are lost.
    """
    path = _file(keys_file)

    async def in_use() -> dict[str, int]:
        async with open_engine(database_url) as engine:
            return await keks_in_use(engine.store)

    with changing(path) as keys:
        if keys is None:
            raise NoKeyring(f"there is no keyring {path}")
        uses = {kek_id: n for kek_id, n in run(in_use()).items() if (kek_number(kek_id) or 0) < keys.current}
        if uses:
            secrets = f"{sum(uses.values())} credentials and secrets are under {', '.join(uses)}"
            raise CommandFailed(f"{secrets}; run `callsheet vault rewrap`")
        write_file(path, keys.without_below(keys.current))
    old = [kek_name(number) for number in sorted(keys.keys) if number < keys.current]
    click.echo(f"retired: {', '.join(old) or 'nothing'}; the minimum is {kek_name(keys.current)}")


@command.command("status", epilog="\b\nExample:\n  callsheet vault status --json")
@settings(VAULT_STATUS)
def status(keys_file: str | None, database_url: str, *, json: bool) -> None:
    """Show how many secrets each key encrypts, and how often it has been used."""

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
            old = sum(kek.secrets for kek in keks if not kek.current)
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
    def secrets(self) -> int:
        """The number of stored secrets that the key encrypts."""
        return self.credentials + self.webhook_secrets + self.system_secrets


def _show(keks: list[_Kek]) -> None:
    rows = table("key", "credentials", "webhook secrets", "system secrets", "wraps at most", "")
    for kek in keks:
        old = "to be wrapped anew" if kek.secrets else ""
        note = "wraps now" if kek.current else old
        if kek.wraps >= WARN_AT:
            note += "; has wrapped too often: rotate"
        counts = (kek.credentials, kek.webhook_secrets, kek.system_secrets, kek.wraps)
        rows.add_row(escape(kek.kek), *map(str, counts), note)
    console().print(rows)


def _rotate(old: Keys, *, prepare: bool) -> Keys:
    if old.prepared is None:
        return old.with_new_key(in_use=not prepare)
    if prepare:
        raise CommandFailed(
            f"key {kek_name(old.prepared)} is prepared already; `callsheet vault rotate` puts it to use"
        )
    return Keys(old.keys, old.prepared, old.least)


def _file(keys_file: str | None) -> Path:
    if os.environ.get("CALLSHEET_KMS"):
        raise NoKeyring("the keys are in a service (CALLSHEET_KMS): rotate and retire them there, then `vault rewrap`")
    if not keys_file:
        raise NoKeyring("name the keyring file: --keys-file or CALLSHEET_KEYS_FILE")
    path = Path(keys_file)
    if not path.absolute().parent.is_dir():
        raise NoKeyring(f"there is no folder {path.absolute().parent}; make it first")
    return path


@contextlib.asynccontextmanager
async def _vault(database_url: str, keys_file: str | None) -> AsyncIterator[Vault]:
    environ = {**os.environ, **({"CALLSHEET_KEYS_FILE": keys_file} if keys_file else {})}
    async with open_engine(database_url) as engine, Vault(engine.store, keyring_from(environ)) as vault:
        yield vault
