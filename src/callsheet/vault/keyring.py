"""The interface of keyrings, which hold the keys that wrap data keys (KEKs)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from .envelope import Binding


ADVICE = "set CALLSHEET_KEYS_FILE (`callsheet vault rotate` makes the file), CALLSHEET_KEYS or CALLSHEET_KMS"


class Wrapped(NamedTuple):
    """A wrapped data key and the id of its KEK."""

    kek_id: str
    wrapped: bytes


class Keyring(Protocol):
    """Wraps and unwraps data keys under KEKs. Unwrapping needs the binding that was used for wrapping."""

    async def current(self) -> str:
        """Return the current KEK's id."""
        ...

    async def wrap(self, dek: bytes, binding: Binding) -> Wrapped:
        """Wrap a data key under the current KEK."""
        ...

    async def unwrap(self, kek_id: str, wrapped_dek: bytes, binding: Binding) -> bytes:
        """Unwrap a data key; raises Tampered, UnknownKek or RetiredKek."""
        ...

    async def close(self) -> None:
        """Close all connections; a second call is harmless."""
        ...
