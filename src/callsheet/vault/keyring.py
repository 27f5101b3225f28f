"""The interface of what holds the keys that wrap the data keys (KEKs). `opening.py` chooses one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from .binding import Binding

ADVICE = "set CALLSHEET_KEYS_FILE (`callsheet vault rotate` makes the file), CALLSHEET_KEYS or CALLSHEET_KMS"


class Wrapped(NamedTuple):
    """A data key as a KEK has wrapped it."""

    kek_id: str
    wrapped: bytes


class Keyring(Protocol):
    """The KEKs. A wrapped key opens only with the binding that it was wrapped with."""

    async def current(self) -> str:
        """The id of the KEK that wraps now."""
        ...

    async def wrap(self, dek: bytes, binding: Binding) -> Wrapped:
        """Wrap a data key under the current KEK."""
        ...

    async def unwrap(self, kek_id: str, wrapped: bytes, binding: Binding) -> bytes:
        """The data key; raises Tampered, UnknownKek or RetiredKek."""
        ...

    async def close(self) -> None:
        """Let go of connections. May be called twice."""
        ...
