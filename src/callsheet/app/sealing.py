"""Secrets of webhook endpoints and of the system, sealed by the vault's keys: an envelope of its own for each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from callsheet.vault import Binding, Keyring, Secret, envelope, keyring_from
from callsheet.vault.errors import NoKeyring

if TYPE_CHECKING:
    from callsheet.outbox import Sealer

VERSION = 1


class VaultSealer:
    """Seals with a data key that the keyring wraps; both are bound to the secret's owner and requester."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def seal(self, plain: str, *, owner: str, requester_id: str) -> str:
        """The sealed text."""
        binding, dek = Binding(owner, requester_id, VERSION), envelope.new_dek()
        wrapped = await self._keyring.wrap(dek, binding)
        sealed = envelope.encrypt(Secret(plain), dek, binding)
        return json.dumps({"kek_id": wrapped.kek_id, "dek": envelope.to_text(wrapped.wrapped), "sealed": sealed})

    async def open(self, sealed: str, *, owner: str, requester_id: str) -> str:
        """What was sealed; raises what the keyring raises, and Tampered."""
        body, binding = json.loads(sealed), Binding(owner, requester_id, VERSION)
        dek = await self._keyring.unwrap(body["kek_id"], envelope.from_text(body["dek"]), binding)
        return envelope.decrypt(body["sealed"], dek, binding).reveal()

    async def rewrapped(self, sealed: str, *, owner: str, requester_id: str) -> str:
        """The same with its data key under the current KEK; what is inside is not opened."""
        body, binding = json.loads(sealed), Binding(owner, requester_id, VERSION)
        dek = await self._keyring.unwrap(body["kek_id"], envelope.from_text(body["dek"]), binding)
        wrapped = await self._keyring.wrap(dek, binding)
        return json.dumps({**body, "kek_id": wrapped.kek_id, "dek": envelope.to_text(wrapped.wrapped)})


def kek_of(sealed: str) -> str:
    """Which KEK has wrapped the data key of a sealed text."""
    kek_id: str = json.loads(sealed)["kek_id"]
    return kek_id


class NoSealer:
    """Stands where no keyring is: nothing can be sealed, and whoever tries is told what to set."""

    def __init__(self, why: NoKeyring) -> None:
        self._why = str(why)

    async def seal(self, plain: str, *, owner: str, requester_id: str) -> str:  # noqa: ARG002 - the protocol's
        """Raises NoKeyring."""
        raise NoKeyring(self._why)

    async def open(self, sealed: str, *, owner: str, requester_id: str) -> str:  # noqa: ARG002
        """Raises NoKeyring."""
        raise NoKeyring(self._why)


def sealer_from(environ: Mapping[str, str]) -> Sealer:
    """The sealer that the environment's keyring makes; raises InvalidKeyring."""
    try:
        return VaultSealer(keyring_from(environ))
    except NoKeyring as error:
        return NoSealer(error)


def system_sealer() -> VaultSealer | None:
    """The sealer of this process's environment for secrets of the system; None without a keyring."""
    try:
        return VaultSealer(keyring_from(os.environ))
    except NoKeyring:
        return None
