"""KEKs in the transit engine of HashiCorp Vault (or OpenBao), 1.13 or newer.

`CALLSHEET_KMS=vault:transit/callsheet` with `VAULT_ADDR` and `VAULT_TOKEN`, perhaps `VAULT_NAMESPACE`. A KEK's id is
the key with its version. To rotate, rotate the key in Vault and re-wrap; to retire old versions, raise its
`min_decryption_version`: Vault then refuses to decrypt with old versions.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import InvalidKeyring, KeyServiceRefused, RetiredKek, Tampered, UnknownKek
from .keyring import Wrapped
from .secret import Secret
from .service import Answer, Service

if TYPE_CHECKING:
    from .envelope import Binding

CURRENT_S = 60.0
BAD_REQUEST, NOT_FOUND = 400, 404
IS_KEY = re.compile(r"[\w./-]+/[\w.-]+").fullmatch
VERSION = re.compile(rb"vault:(v\d+):").match


class TransitKeyring:
    """A keyring whose KEKs are the versions of one transit key."""

    def __init__(
        self, key: str, address: str, token: Secret, *, namespace: str = "", service: Service | None = None
    ) -> None:
        self._mount, _, self._name = key.rpartition("/")
        self._url = f"{address.rstrip('/')}/v1/{self._mount}"
        self._token = token
        self._namespace = namespace
        self._service = service or Service("Vault")
        self._current = ""
        self._current_until = 0.0
        self._binds = False

    @classmethod
    def from_environment(cls, key: str, environ: Mapping[str, str]) -> TransitKeyring:
        """Make a keyring from Vault's own variables; raises InvalidKeyring for a missing variable."""
        address, token = environ.get("VAULT_ADDR", ""), environ.get("VAULT_TOKEN", "")
        if not (address and token and IS_KEY(key)):
            raise InvalidKeyring("Vault transit needs vault:MOUNT/KEY, VAULT_ADDR and VAULT_TOKEN")
        return cls(key, address, Secret(token), namespace=environ.get("VAULT_NAMESPACE", ""))

    async def current(self) -> str:
        """Return the latest key version's id, read from Vault once a minute."""
        if time.monotonic() >= self._current_until:
            data = _data(await self._ask("GET", f"keys/{self._name}"))
            self._current = self._kek_id(f"v{data['latest_version']}")
            self._current_until = time.monotonic() + CURRENT_S
        return self._current

    async def wrap(self, dek: bytes, binding: Binding) -> Wrapped:
        """See the protocol."""
        plain = base64.b64encode(dek).decode()
        fields = {"plaintext": plain, "associated_data": _aad(binding)}
        wrapped_dek = str(_data(await self._ask("POST", f"encrypt/{self._name}", fields))["ciphertext"]).encode()
        await self._check_binding(wrapped_dek)
        return Wrapped(self._kek_id(_version(wrapped_dek)), wrapped_dek)

    async def unwrap(self, kek_id: str, wrapped_dek: bytes, binding: Binding) -> bytes:
        """See the protocol."""
        if self._kek_id(_version(wrapped_dek)) != kek_id:
            raise Tampered("this wrapped key is another key's")
        return _plain(_data(await self._decrypt(wrapped_dek, _aad(binding))))

    async def close(self) -> None:
        """See the protocol."""
        await self._service.close()

    async def _check_binding(self, wrapped_dek: bytes) -> None:
        """Check once that Vault binds keys to associated data: versions before 1.13 ignore it without an error."""
        if not self._binds:
            answer = await self._decrypt(wrapped_dek, base64.b64encode(b"something else").decode())
            if answer.status != BAD_REQUEST:
                raise InvalidKeyring("this Vault does not bind keys to associated data; 1.13 or newer is needed")
            self._binds = True

    async def _decrypt(self, wrapped_dek: bytes, aad: str) -> Answer:
        fields = {"ciphertext": wrapped_dek.decode("ascii", "replace"), "associated_data": aad}
        return await self._ask("POST", f"decrypt/{self._name}", fields)

    async def _ask(self, method: str, path: str, fields: dict[str, str] | None = None) -> Answer:
        headers = {"x-vault-token": self._token.reveal(), "x-vault-request": "true"}
        if self._namespace:
            headers["x-vault-namespace"] = self._namespace
        body = json.dumps(fields).encode() if fields is not None else b""
        return await self._service.ask(method, f"{self._url}/{path}", body=body, headers=headers)

    def _kek_id(self, version: str) -> str:
        return f"vault:{self._mount}/{self._name}:{version}"


def _aad(binding: Binding) -> str:
    return base64.b64encode(binding.aad("dek")).decode()


def _version(wrapped_dek: bytes) -> str:
    match = VERSION(wrapped_dek)
    if match is None:
        raise Tampered("this wrapped key is not one of Vault's")
    return match[1].decode()


def _plain(data: dict[str, Any]) -> bytes:
    return base64.b64decode(data["plaintext"])


def _data(answer: Answer) -> dict[str, Any]:
    """What came with a good answer; raises what a bad one means."""
    if isinstance(data := answer.body.get("data"), dict):
        return data
    if answer.status == BAD_REQUEST:
        too_old = any("too old" in str(error) for error in answer.body.get("errors", ()))
        if too_old:
            raise RetiredKek("this version of the key is below its min_decryption_version in Vault")
        raise Tampered("this wrapped key was changed, or belongs to another job or version")
    if answer.status == NOT_FOUND:
        raise UnknownKek("Vault has no such key")
    raise KeyServiceRefused(f"Vault refused us with status {answer.status}; look at the token and its policy")
