"""A value that stays hidden in text, logs, tracebacks, JSON and pickles; only `reveal()` returns the secret."""

from __future__ import annotations

import hmac
import json
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Never, NoReturn

HIDDEN = "***"
SHORTEST = 6  # characters of a part that is worth hiding; shorter ones would hide half of all log lines
PUBLIC = frozenset({"region", "endpoint", "bucket", "prefix", "type", "expires_at", "expires_in", "expiration"})

_alive: weakref.WeakValueDictionary[int, Secret] = weakref.WeakValueDictionary()
_listeners: list[Callable[[], None]] = []


class Secret:
    """Secret text, readable only through `reveal()`. The redactor hides every live secret in log lines."""

    __slots__ = ("__text", "__weakref__")
    __text: str
    __hash__ = None  # type: ignore[assignment] # a hash in a log is a thing to guess against

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "_Secret__text", text)
        _alive[id(self)] = self
        for listener in _listeners:
            listener()

    def reveal(self) -> str:
        """Return the text itself. Callers must not store the text, log the text or put the text into an error."""
        return self.__text

    def reveal_json(self) -> Any:
        """Parse the text as JSON; raises ValueError, whose message omits the text."""
        value, fault = _read(self.__text)
        if fault:
            raise ValueError("this secret is not JSON")
        return value

    def parts(self) -> Iterator[str]:
        """Yield the texts to hide: the whole text, and each string of a JSON value except under public field names."""
        if len(self.__text) >= SHORTEST:
            yield self.__text
        value, fault = _read(self.__text)
        if not fault:
            yield from _texts(value)

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str, /) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self.__text.encode(), other.__text.encode())

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a secret does not change")

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("a secret is not pickled; send its envelope instead")

    def __getstate__(self) -> Never:
        raise TypeError("a secret has no state to show")

    def __init_subclass__(cls) -> Never:
        raise TypeError("a secret has no other kinds")


def alive() -> list[Secret]:
    """Return all live secrets of this process."""
    return list(_alive.values())


def on_new_secret(listener: Callable[[], None]) -> None:
    """Register a function to call whenever a secret is created."""
    _listeners.append(listener)


def _read(text: str) -> tuple[Any, bool]:
    """Return the JSON value and False, or None and True: a JSONDecodeError would carry the whole text."""
    try:
        return json.loads(text), False
    except ValueError:
        return None, True


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if not (name.lower() in PUBLIC and isinstance(item, str)):
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and len(value) >= SHORTEST:
        yield value
