"""KEKs in AWS KMS. The service wraps and unwraps; the key never leaves it.

`CALLSHEET_KMS=aws:alias/callsheet` (or a key's ARN) with `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
perhaps `AWS_SESSION_TOKEN` and `AWS_ENDPOINT_URL_KMS`. A KEK's id is the ARN of the key that wrapped. To rotate, point
the alias (or the setting) at a new key and re-wrap; to retire the old one, disable it in KMS.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.net.sigv4 import Post, Scope, signed_headers

from .errors import (
    InvalidKeyring,
    KeyServiceRefused,
    KeyServiceUnavailable,
    RetiredKek,
    Tampered,
    UnknownKek,
    VaultError,
)
from .keyring import Wrapped
from .secret import Secret
from .service import Service

if TYPE_CHECKING:
    from .envelope import Binding

CURRENT_S = 60.0
OK = 200
ERRORS: dict[str, tuple[type[VaultError], str]] = {
    "DisabledException": (RetiredKek, "the key is disabled in KMS"),
    "KMSInvalidStateException": (RetiredKek, "the key's state in KMS does not allow its use"),
    "NotFoundException": (UnknownKek, "KMS has no such key"),
    "InvalidCiphertextException": (Tampered, "this wrapped key was changed, or belongs to another job or version"),
    "IncorrectKeyException": (Tampered, "this wrapped key is another key's"),
    "ThrottlingException": (KeyServiceUnavailable, "KMS asks us to slow down"),
    "KMSInternalException": (KeyServiceUnavailable, "KMS failed"),
    "DependencyTimeoutException": (KeyServiceUnavailable, "KMS timed out"),
    "KeyUnavailableException": (KeyServiceUnavailable, "the key is not available now"),
}


class _AccessKeys(NamedTuple):
    access_key_id: str
    secret_access_key: str
    session_token: str


class Signer(NamedTuple):
    """AWS credentials with the region and service to sign for."""

    access_key_id: str
    secret_access_key: Secret
    region: str
    service: str
    session_token: Secret | None = None

    def headers(self, url: str, body: bytes, headers: dict[str, str], at: str) -> dict[str, str]:
        """Return the headers plus a signature over all headers and the body; `at` is the time as 20261116T061500Z."""
        token = self.session_token.reveal() if self.session_token is not None else ""
        keys = _AccessKeys(self.access_key_id, self.secret_access_key.reveal(), token)
        return signed_headers(Post(url, body, headers), keys, Scope(self.region, self.service), at)


class AwsKeyring:
    """A keyring whose KEKs are keys of one AWS account and region."""

    def __init__(self, key: str, signer: Signer, endpoint: str, service: Service | None = None) -> None:
        self._key = key
        self._signer = signer
        self._endpoint = endpoint.rstrip("/") + "/"
        self._service = service or Service("AWS KMS")
        self._current = ""
        self._current_until = 0.0

    @classmethod
    def from_environment(cls, key: str, environ: Mapping[str, str]) -> AwsKeyring:
        """Make a keyring from AWS' own variables; raises InvalidKeyring for a missing variable."""
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
        access, secret = environ.get("AWS_ACCESS_KEY_ID", ""), environ.get("AWS_SECRET_ACCESS_KEY", "")
        if not (region and access and secret):
            raise InvalidKeyring("AWS KMS needs AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        token = environ.get("AWS_SESSION_TOKEN")
        signer = Signer(access, Secret(secret), region, "kms", Secret(token) if token else None)
        return cls(key, signer, environ.get("AWS_ENDPOINT_URL_KMS") or f"https://kms.{region}.amazonaws.com")

    async def current(self) -> str:
        """Return the current key's ARN, read from KMS once a minute, since an alias may move."""
        if time.monotonic() >= self._current_until:
            answer = await self._call("DescribeKey", {"KeyId": self._key})
            self._current, self._current_until = str(answer["KeyMetadata"]["Arn"]), time.monotonic() + CURRENT_S
        return self._current

    async def wrap(self, dek: bytes, binding: Binding) -> Wrapped:
        """See the protocol."""
        plain = base64.b64encode(dek).decode()
        fields = {"KeyId": self._key, "Plaintext": plain, "EncryptionContext": binding.context()}
        answer = await self._call("Encrypt", fields)
        return Wrapped(str(answer["KeyId"]), base64.b64decode(answer["CiphertextBlob"]))

    async def unwrap(self, kek_id: str, wrapped_dek: bytes, binding: Binding) -> bytes:
        """See the protocol."""
        blob = base64.b64encode(wrapped_dek).decode()
        fields = {"KeyId": kek_id, "CiphertextBlob": blob, "EncryptionContext": binding.context()}
        return base64.b64decode((await self._call("Decrypt", fields))["Plaintext"])

    async def close(self) -> None:
        """See the protocol."""
        await self._service.close()

    async def _call(self, action: str, fields: Mapping[str, object]) -> dict[str, Any]:
        body = json.dumps(fields).encode()
        headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": f"TrentService.{action}"}
        at = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        request_headers = self._signer.headers(self._endpoint, body, headers, at)
        answer = await self._service.ask("POST", self._endpoint, body=body, headers=request_headers)
        if answer.status == OK:
            return answer.body
        name = str(answer.body.get("__type", "")).rpartition("#")[2]
        kind, why = ERRORS.get(name, (KeyServiceRefused, f"KMS refused {action}: {name or answer.status}"))
        raise kind(f"{why} ({action})")
