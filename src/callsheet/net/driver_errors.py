"""Translate errors by the package that raised them: httpx2 raises other libraries' classes for broken connections."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from callsheet.kernel.errors import is_from_driver


@contextlib.contextmanager
def http_errors_as(error_of: Callable[[Exception], Exception], *, keeps_cause: bool = False) -> Iterator[None]:
    """Raise `error_of(error)` in place of an exception that httpx2 raised in the block; others pass unchanged.

    Without `keeps_cause` httpx2's exception is dropped: it holds the request, whose URL may be signed and whose headers
    may carry a token.
    """
    try:
        yield
    except Exception as error:
        if not is_from_driver(error, "httpx2"):
            raise
        raise error_of(error) from error if keeps_cause else None


def reason_of(error: Exception) -> str:
    """Return an exception's text, or its class's name if it has none."""
    return str(error) or type(error).__name__
