"""The local keyring: KEKs in a file or a variable, wrapping with AES-256-GCM.

A wrapped key is `version | nonce (12) | ciphertext and tag`, bound to the KEK's id as well. Nonces are random, so each
KEK must wrap at most 2^32 data keys; wraps.py counts the wraps.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from .envelope import InvalidTag, seal, unseal
from .errors import RetiredKek, Tampered, UnknownKek
from .keyring import Wrapped
from .keys import Keys, kek_name, kek_number, read_file, read_keys

if TYPE_CHECKING:
    from .envelope import Binding

NONCE_BYTES = 12
VERSION = b"\x01"


class LocalKeyring:
    """A keyring in memory."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    @classmethod
    def from_text(cls, text: str) -> LocalKeyring:
        """Make a keyring from its text; raises InvalidKeyring."""
        return cls(read_keys(text))

    async def current(self) -> str:
        """See the protocol."""
        return kek_name(self._keys.current)

    async def wrap(self, dek: bytes, binding: Binding) -> Wrapped:
        """See the protocol."""
        kek_id = kek_name(self._keys.current)
        nonce = secrets.token_bytes(NONCE_BYTES)
        ciphertext = seal(self._keys.keys[self._keys.current], nonce, dek, binding.aad("dek", kek_id))
        return Wrapped(kek_id, VERSION + nonce + ciphertext)

    async def unwrap(self, kek_id: str, wrapped_dek: bytes, binding: Binding) -> bytes:
        """See the protocol."""
        key = self._key(kek_id)
        if wrapped_dek[:1] != VERSION:
            raise Tampered("this wrapped key has a format that this program does not know")
        nonce, ciphertext = wrapped_dek[1 : 1 + NONCE_BYTES], wrapped_dek[1 + NONCE_BYTES :]
        try:
            return unseal(key, nonce, ciphertext, binding.aad("dek", kek_id))
        except InvalidTag:
            raise Tampered("this wrapped key was changed, or belongs to another job, requester or version") from None

    async def close(self) -> None:
        """Do nothing: a keyring in memory has no connections."""

    def _key(self, kek_id: str) -> bytes:
        number = kek_number(kek_id)
        if number is not None and number < self._keys.least:
            least = kek_name(self._keys.least)
            raise RetiredKek(f"key {kek_id} is retired: the keyring's minimum is {least}; new credentials are needed")
        if number is None or number not in self._keys.keys:
            raise UnknownKek(f"the keyring has no key {kek_id}; give this process the keyring that has it")
        return self._keys.keys[number]


class FileKeyring(LocalKeyring):
    """A keyring in a file, which is read again after each change: a rotation needs no restart."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen = (0, 0, 0)
        super().__init__(self._read())

    async def current(self) -> str:
        """See the protocol."""
        self._look()
        return await super().current()

    async def wrap(self, dek: bytes, binding: Binding) -> Wrapped:
        """See the protocol."""
        self._look()
        return await super().wrap(dek, binding)

    async def unwrap(self, kek_id: str, wrapped_dek: bytes, binding: Binding) -> bytes:
        """See the protocol."""
        self._look()
        return await super().unwrap(kek_id, wrapped_dek, binding)

    def _look(self) -> None:
        """Read the file again if it has changed; the check costs 2 µs."""
        if self._stamp() != self._seen:
            self._keys = self._read()

    def _stamp(self) -> tuple[int, int, int]:
        try:
            status = self.path.stat()
        except OSError:
            return self._seen  # what was read stays good while the file is being moved or is away
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self) -> Keys:
        stamp = self._stamp()
        keys = read_file(self.path)
        self._seen = stamp
        return keys
