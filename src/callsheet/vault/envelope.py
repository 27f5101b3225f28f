"""The content layer of an envelope: AES-256-GCM under a key that is used once, with a commitment to that key.

    storage_creds_encrypted = base64(version | algorithm | commitment (32) | nonce (12) | ciphertext and tag)

The data key (DEK) is 32 random bytes. HKDF-SHA256 makes two of it: one encrypts, the other is stored in the clear as
the commitment. GCM alone does not commit: one ciphertext can be made that opens under two keys, to two texts.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets

from . import aes
from .binding import Binding
from .errors import Tampered
from .secret import Secret

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
    """A fresh data key; one for each blob."""
    return secrets.token_bytes(KEY_BYTES)


def encrypt(secret: Secret, dek: bytes, binding: Binding) -> str:
    """The sealed text. A data key must seal once only."""
    key, commitment = _derived(dek)
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = aes.seal(key, nonce, secret.reveal().encode(), _aad(binding, HEAD))
    return to_text(HEAD + commitment + nonce + sealed)


def decrypt(text: str, dek: bytes, binding: Binding) -> Secret:
    """What was sealed; raises Tampered for any other text, key or binding."""
    raw = from_text(text)
    if len(raw) < SHORTEST or raw[: len(HEAD)] != HEAD:
        raise Tampered("this envelope has a format that this program does not know; upgrade callsheet, or replace it")
    commitment, rest = raw[len(HEAD) :][:COMMITMENT_BYTES], raw[len(HEAD) + COMMITMENT_BYTES :]
    key, expected = _derived(dek)
    if not hmac.compare_digest(commitment, expected):
        raise Tampered("this envelope was sealed with another key")
    try:
        plain = aes.unseal(key, rest[:NONCE_BYTES], rest[NONCE_BYTES:], _aad(binding, HEAD))
    except aes.InvalidTag:
        raise Tampered("this envelope was changed, or sealed for another job, requester or version") from None
    text = plain.decode("utf-8", "replace")
    if text.encode() != plain:  # a UnicodeDecodeError would carry the plaintext with it
        raise Tampered("what this envelope holds is not text")
    return Secret(text)


def to_text(raw: bytes) -> str:
    """Bytes as the store keeps them."""
    return base64.b64encode(raw).decode()


def from_text(text: str) -> bytes:
    """The bytes; raises Tampered unless this is the one way to write them (base64 has idle bits at its end)."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not hmac.compare_digest(base64.b64encode(raw), text.encode()):
        raise Tampered("this envelope is not base64 as it was written")
    return raw


def _aad(binding: Binding, head: bytes) -> bytes:
    """Without the KEK's id: a new KEK wraps the data key anew and leaves the content as it is."""
    return binding.aad("content", head.hex())


def _derived(dek: bytes) -> tuple[bytes, bytes]:
    """The key that encrypts, and the commitment."""
    made = aes.derived(dek, KEY_BYTES + COMMITMENT_BYTES, INFO)
    return made[:KEY_BYTES], made[KEY_BYTES:]
