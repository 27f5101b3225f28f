"""Encryption of webhook endpoint secrets and system secrets with the vault's keys: one envelope per secret."""

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
    """Encrypts each secret with its own data key, which the keyring wraps; both are bound to owner and requester."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def seal(self, plain: str, *, owner: str, requester_id: str) -> str:
        """Encrypt a secret and return its envelope as JSON text."""
        binding, dek = Binding(owner, requester_id, VERSION), envelope.new_dek()
        wrapped_dek = await self._keyring.wrap(dek, binding)
        ciphertext = envelope.encrypt(Secret(plain), dek, binding)
        return json.dumps(
            {"kek_id": wrapped_dek.kek_id, "dek": envelope.to_text(wrapped_dek.wrapped), "sealed": ciphertext}
        )

    async def open(self, sealed: str, *, owner: str, requester_id: str) -> str:
        """Decrypt an envelope; raises Tampered or the keyring's errors."""
        body, binding = json.loads(sealed), Binding(owner, requester_id, VERSION)
        dek = await self._keyring.unwrap(body["kek_id"], envelope.from_text(body["dek"]), binding)
        return envelope.decrypt(body["sealed"], dek, binding).reveal()

    async def rewrapped(self, sealed: str, *, owner: str, requester_id: str) -> str:
        """Return the envelope with its data key wrapped under the current KEK, without decrypting the secret."""
        body, binding = json.loads(sealed), Binding(owner, requester_id, VERSION)
        dek = await self._keyring.unwrap(body["kek_id"], envelope.from_text(body["dek"]), binding)
        wrapped_dek = await self._keyring.wrap(dek, binding)
        return json.dumps({**body, "kek_id": wrapped_dek.kek_id, "dek": envelope.to_text(wrapped_dek.wrapped)})


def kek_of(text: str) -> str:
    """Return the id of the KEK that wraps an envelope's data key."""
    kek_id: str = json.loads(text)["kek_id"]
    return kek_id


class NoSealer:
    """The sealer of a process without a keyring: each call raises NoKeyring, which names the variables to set."""

    def __init__(self, why: NoKeyring) -> None:
        self._why = str(why)

    async def seal(self, plain: str, *, owner: str, requester_id: str) -> str:  # noqa: ARG002 - the protocol's
        """Refuse to encrypt: raise NoKeyring."""
        raise NoKeyring(self._why)

    async def open(self, sealed: str, *, owner: str, requester_id: str) -> str:  # noqa: ARG002
        """Refuse to decrypt: raise NoKeyring."""
        raise NoKeyring(self._why)


def sealer_from(environ: Mapping[str, str]) -> Sealer:
    """Return a sealer for the environment's keyring, or a NoSealer without one; raises InvalidKeyring."""
    try:
        return VaultSealer(keyring_from(environ))
    except NoKeyring as error:
        return NoSealer(error)


def system_sealer() -> VaultSealer | None:
    """Return the sealer for system secrets from this process's environment; None without a keyring."""
    try:
        return VaultSealer(keyring_from(os.environ))
    except NoKeyring:
        return None
