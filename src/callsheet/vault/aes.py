"""AES-256-GCM and HKDF-SHA256, by `cryptography`, which is loaded on first use."""

from __future__ import annotations

from typing import Any

from callsheet.extras import needed_for


class InvalidTag(Exception):
    """The ciphertext was changed, or sealed with another key or binding."""


def seal(key: bytes, nonce: bytes, plain: bytes, bound: bytes) -> bytes:
    """Encrypt; a key and a nonce must be combined only once."""
    sealed: bytes = _aesgcm(key).encrypt(nonce, plain, bound)
    return sealed


def unseal(key: bytes, nonce: bytes, sealed: bytes, bound: bytes) -> bytes:
    """Decrypt; raises InvalidTag, also for a nonce or a text of no possible length."""
    aesgcm = _aesgcm(key)
    from cryptography import exceptions  # noqa: PLC0415 - loaded by now

    try:
        plain: bytes = aesgcm.decrypt(nonce, sealed, bound)
    except (exceptions.InvalidTag, ValueError):
        raise InvalidTag from None
    return plain


def derived(key: bytes, length: int, info: bytes) -> bytes:
    """Derive `length` bytes from a key for the purpose `info`."""
    with needed_for("sealing secrets"):
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(SHA256(), length, salt=None, info=info).derive(key)


def _aesgcm(key: bytes) -> Any:
    with needed_for("sealing secrets"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(key)
