"""The minimum speed of a requester's storage: a byte a minute would occupy a worker slot for a day.

The time limit grows with the transferred bytes, so large files get enough time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from callsheet.kernel.errors import CallsheetError

GRACE_S = 120.0  # before the first byte: after a silent minute the request is repeated once
LEAST_BYTES_S = 32 * 1024  # on average after that
FILE_S = 1.0  # per file, in addition to its bytes


@contextlib.asynccontextmanager
async def minimum_pace(error: CallsheetError, grace_s: float | None = None) -> AsyncIterator[Callable[[int], None]]:
    """Yield a function that counts transferred bytes; raises `error` if the transfer is too slow."""
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
    """Return the seconds allowed for uploading files of `size_bytes` in total and copying them to their final keys."""
    return GRACE_S + 2 * (size_bytes / LEAST_BYTES_S + files * FILE_S)
