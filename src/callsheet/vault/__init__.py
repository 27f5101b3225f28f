"""Secrets: encrypted in the store, decrypted only in the memory of the process that uses the credentials."""

from __future__ import annotations

from .envelope import Binding
from .keyring import Keyring, Wrapped
from .refresh import Access, Refresher, meaning_of
from .secret import Secret
from .vault import Opened, Vault, keyring_from

__all__ = [
    "Access",
    "Binding",
    "Keyring",
    "Opened",
    "Refresher",
    "Secret",
    "Vault",
    "Wrapped",
    "keyring_from",
    "meaning_of",
]
