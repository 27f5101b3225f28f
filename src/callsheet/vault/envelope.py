"""The content layer of an envelope: AES-256-GCM under a single-use key, with a commitment to that key.

    storage_creds_encrypted = base64(version | algorithm | commitment (32) | nonce (12) | ciphertext and tag)

The data key (DEK) is 32 random bytes. HKDF-SHA256 derives two values: an encryption key, and the commitment, which is
stored in the clear. GCM alone does not commit: an attacker can craft one ciphertext that decrypts under two keys.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from typing import Any, NamedTuple

from callsheet.extras import needed_for

from .errors import Tampered
from .secret import Secret


class Binding(NamedTuple):
    """The job, requester and credential version of an envelope."""

    job_id: str
    requester_id: str
    credential_version: int

    def aad(self, purpose: str, *more: str) -> bytes:
        """Return the associated data: a length prefix before each part makes the encoding unambiguous."""
        parts = ("callsheet", purpose, self.job_id, self.requester_id, str(self.credential_version), *more)
        return b"".join(len(raw).to_bytes(4, "big") + raw for raw in (part.encode() for part in parts))

    def context(self) -> dict[str, str]:
        """Return the binding as names and values, for a key service that writes them into its audit trail."""
        return {
            "callsheet": "dek",
            "job_id": self.job_id,
            "requester_id": self.requester_id,
            "credential_version": str(self.credential_version),
        }


class InvalidTag(Exception):
    """The ciphertext was changed, or sealed with another key or binding."""


def seal(key: bytes, nonce: bytes, plain: bytes, aad: bytes) -> bytes:
    """Encrypt; a key and a nonce must be combined only once."""
    ciphertext: bytes = _aesgcm(key).encrypt(nonce, plain, aad)
    return ciphertext


def unseal(key: bytes, nonce: bytes, ciphertext: bytes, aad: bytes) -> bytes:
    """Decrypt; raises InvalidTag, also for a nonce or a text of no possible length."""
    aesgcm = _aesgcm(key)
    from cryptography import exceptions  # noqa: PLC0415 - loaded by now

    try:
        plain: bytes = aesgcm.decrypt(nonce, ciphertext, aad)
    except (exceptions.InvalidTag, ValueError):
        raise InvalidTag from None
    return plain


def derive(key: bytes, length: int, info: bytes) -> bytes:
    """Derive `length` bytes from a key for the purpose `info`."""
    with needed_for("sealing secrets"):
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(SHA256(), length, salt=None, info=info).derive(key)


def _aesgcm(key: bytes) -> Any:
    with needed_for("sealing secrets"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(key)


VERSION = 1
AES_256_GCM_HKDF = 1
KEY_BYTES = 32
COMMITMENT_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
HEAD = bytes((VERSION, AES_256_GCM_HKDF))
INFO = b"callsheet credentials 1"
SHORTEST = len(HEAD) + COMMITMENT_BYTES + NONCE_BYTES + TAG_BYTES


def new_dek() -> bytes:
    """Return a random data key; each blob needs its own key."""
    return secrets.token_bytes(KEY_BYTES)


def encrypt(secret: Secret, dek: bytes, binding: Binding) -> str:
    """Return the sealed text. A data key must seal only one text."""
    key, commitment = _key_and_commitment(dek)
    nonce = secrets.token_bytes(NONCE_BYTES)
    ciphertext = seal(key, nonce, secret.reveal().encode(), _aad(binding, HEAD))
    return to_text(HEAD + commitment + nonce + ciphertext)


def decrypt(text: str, dek: bytes, binding: Binding) -> Secret:
    """Decrypt a sealed text; raises Tampered for a changed text, another key or another binding."""
    raw = from_text(text)
    if len(raw) < SHORTEST or raw[: len(HEAD)] != HEAD:
        raise Tampered("this envelope has a format that this program does not know; upgrade callsheet, or replace it")
    commitment, rest = raw[len(HEAD) :][:COMMITMENT_BYTES], raw[len(HEAD) + COMMITMENT_BYTES :]
    key, own_commitment = _key_and_commitment(dek)
    if not hmac.compare_digest(commitment, own_commitment):
        raise Tampered("this envelope was sealed with another key")
    try:
        plain = unseal(key, rest[:NONCE_BYTES], rest[NONCE_BYTES:], _aad(binding, HEAD))
    except InvalidTag:
        raise Tampered("this envelope was changed, or sealed for another job, requester or version") from None
    text = plain.decode("utf-8", "replace")
    if text.encode() != plain:  # a UnicodeDecodeError would carry the plaintext with it
        raise Tampered("what this envelope holds is not text")
    return Secret(text)


def to_text(raw: bytes) -> str:
    """Encode bytes as base64 text for the store."""
    return base64.b64encode(raw).decode()


def from_text(text: str) -> bytes:
    """Decode base64; raises Tampered unless the text is the canonical encoding (base64 has unused bits at its end)."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not hmac.compare_digest(base64.b64encode(raw), text.encode()):
        raise Tampered("this envelope is not base64 as it was written")
    return raw


def _aad(binding: Binding, head: bytes) -> bytes:
    """Return the associated data, without the KEK's id: a re-wrap of the data key must not change the content."""
    return binding.aad("content", head.hex())


def _key_and_commitment(dek: bytes) -> tuple[bytes, bytes]:
    """Derive the encryption key and the commitment from a data key."""
    material = derive(dek, KEY_BYTES + COMMITMENT_BYTES, INFO)
    return material[:KEY_BYTES], material[KEY_BYTES:]
