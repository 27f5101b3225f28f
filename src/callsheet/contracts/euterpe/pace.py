"""How slowly a requester's own storage may answer: it holds a slot of a worker, a byte a minute would do so for a day.

The time that may pass grows with the bytes that have moved, so a large file has all the time that it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from callsheet.kernel.errors import CallsheetError

GRACE_S = 120.0  # for what comes before the first byte: a storage that is silent for a minute is asked once more
LEAST_BYTES_S = 32 * 1024  # on average after that
FILE_S = 1.0  # for each file that is sent, beside its bytes


@contextlib.asynccontextmanager
async def paced(error: CallsheetError, grace_s: float | None = None) -> AsyncIterator[Callable[[int], None]]:
    """Give the function that counts bytes which have moved; raises the error when they move too slowly."""
    clock = asyncio.get_running_loop().time
    until = clock() + (GRACE_S if grace_s is None else grace_s)
    limit = asyncio.timeout_at(until)

    def count(size_bytes: int) -> None:
        nonlocal until
        until += size_bytes / LEAST_BYTES_S
        if not limit.expired():
            limit.reschedule(until)

    try:
        async with limit:
            yield count
    except TimeoutError:
        if limit.expired():
            raise error from None
        raise


def time_for(size_bytes: int, files: int) -> float:
    """How many seconds files of so many bytes in all may take: they are sent, and then get their names by a copy."""
    return GRACE_S + 2 * (size_bytes / LEAST_BYTES_S + files * FILE_S)
