"""Secrets: encrypted in the store, plain only in the memory of the process that needs them."""

from __future__ import annotations

from .binding import Binding
from .keyring import Keyring, Wrapped
from .opening import keyring_from
from .secret import Secret
from .vault import Opened, Vault

__all__ = ["Binding", "Keyring", "Opened", "Secret", "Vault", "Wrapped", "keyring_from"]
