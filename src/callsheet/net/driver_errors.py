"""Translate the errors of httpx2 by where they come from: a broken connection may raise any class, not only its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from callsheet.kernel.errors import is_from_driver


@contextlib.contextmanager
def http_errors_as(error_of: Callable[[Exception], Exception], driver: str = "httpx2") -> Iterator[None]:
    """Raise `error_of(error)` in place of an exception that the driver raised in the block; others pass unchanged.

    The driver's exception is dropped, for it holds the request: its URL may be signed, its headers may carry a token.
    """
    try:
        yield
    except Exception as error:
        if not is_from_driver(error, driver):
            raise
        raise error_of(error) from None


def reason_of(error: Exception) -> str:
    """Return an exception's text, or its class's name if it has none."""
    return str(error) or type(error).__name__
