"""What the doctor looks at in the keyring: is it there, its owner's alone, does it work, does it open what is kept."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
from pathlib import Path

from callsheet.app.rewrapping import keks_in_use
from callsheet.kernel.errors import CallsheetError
from callsheet.store import store_from_url
from callsheet.vault import Binding, Keyring, keyring_from
from callsheet.vault.errors import NoKeyring, VaultError
from callsheet.vault.keys import Keys, kek_name, read_file, read_keys

from .findings import Finding, bad, good, warning
from .stores import missing_file

NAME = "keys"
PATIENCE_S = 20.0
OTHERS = stat.S_IWGRP | stat.S_IWOTH
REWRAP = "callsheet vault rewrap"


async def check_keys(database_url: str) -> list[Finding]:
    """The findings; none where there are no keys and nothing needs any."""
    used = await _in_use(database_url)
    try:
        keyring = keyring_from(os.environ)
        async with asyncio.timeout(PATIENCE_S):
            current = await _tried(keyring)
    except NoKeyring as error:
        if not used and not any(os.environ.get(f"CALLSHEET_{name}") for name in ("KEYS_FILE", "KEYS", "KMS")):
            return []
        return [bad(NAME, _without(used) or str(error), "set CALLSHEET_KEYS_FILE, CALLSHEET_KEYS or CALLSHEET_KMS")]
    except TimeoutError:
        return [bad(NAME, f"the key service has no answer within {PATIENCE_S:g} s", "see CALLSHEET_KMS")]
    except VaultError as error:
        return [bad(NAME, str(error), "see `callsheet vault`")]
    return [good(NAME, f"{_place()}: {current} wraps and opens"), *_folder(), *_opens(used, current)]


async def _tried(keyring: Keyring) -> str:
    """A data key of the doctor's own, wrapped and opened; the KEK that did it."""
    binding, dek = Binding("doctor", "doctor", 1), secrets.token_bytes(32)
    try:
        wrapped = await keyring.wrap(dek, binding)
        if await keyring.unwrap(wrapped.kek_id, wrapped.wrapped, binding) != dek:
            raise VaultError("the keyring does not give back what it has wrapped")
        return wrapped.kek_id
    finally:
        await keyring.close()


async def _in_use(database_url: str) -> dict[str, int]:
    """How much each KEK has wrapped in the store; nothing where the store cannot be asked, which is told elsewhere."""
    try:
        store = store_from_url(database_url)
        if missing_file(store) is not None:
            return {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                await store.open()
                return await keks_in_use(store)
        finally:
            await store.close()
    except Exception:  # noqa: BLE001 - what is wrong with the store is the store's finding
        return {}


def _place() -> str:
    if service := os.environ.get("CALLSHEET_KMS", "").strip():
        return service
    return os.environ.get("CALLSHEET_KEYS_FILE", "").strip() or "CALLSHEET_KEYS"


def _local() -> Keys | None:
    """The keys that are on this machine; None for those of a service."""
    if os.environ.get("CALLSHEET_KMS", "").strip():
        return None
    path = os.environ.get("CALLSHEET_KEYS_FILE", "").strip()
    try:
        return read_file(Path(path)) if path else read_keys(os.environ.get("CALLSHEET_KEYS", ""))
    except CallsheetError:
        return None


def _folder() -> list[Finding]:
    """Whoever may write in the folder of the file may put another in its place."""
    path = os.environ.get("CALLSHEET_KEYS_FILE", "").strip()
    if not path or os.environ.get("CALLSHEET_KMS", "").strip():
        return []
    folder = Path(path).absolute().parent
    mode = folder.stat().st_mode
    if mode & OTHERS and not mode & stat.S_ISVTX:
        return [warning(NAME, f"others can write in {folder}, so they can replace the keyring", f"chmod go-w {folder}")]
    return []


def _opens(used: dict[str, int], current: str) -> list[Finding]:
    keys = _local()
    known = {kek_name(number) for number in keys.keys if number >= keys.least} if keys is not None else set(used)
    lost = {kek_id: n for kek_id, n in used.items() if kek_id not in known}
    old = sum(n for kek_id, n in used.items() if kek_id in known and kek_id != current)
    found = [bad(NAME, _without(lost), "give this process the keyring that has them")] if lost else []
    return [*found, warning(NAME, f"{old} sealed under older keys", REWRAP)] if old else found


def _without(lost: dict[str, int]) -> str:
    """What cannot be opened, '' for nothing."""
    names = ", ".join(sorted(lost))
    return f"{sum(lost.values())} credentials and secrets are under {names}, which is not here" if lost else ""
