"""Blocking calls in threads, and chunking of byte streams. A cancelled caller waits until its thread is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Run a blocking call in a thread; a cancelled caller waits, so no file is closed while the thread writes."""
    running = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **options))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue  # a second cancellation changes nothing
        if not running.cancelled():
            running.exception()  # marks the error as retrieved
        raise


async def pieces(data: bytes | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield bytes as one piece, or the pieces of a stream unchanged."""
    if isinstance(data, bytes | bytearray | memoryview):
        yield bytes(data)
        return
    async for piece in data:
        yield piece


async def regroup(data: AsyncIterable[bytes], size: int) -> AsyncGenerator[bytes, None]:
    """Yield a stream's bytes in pieces of `size` bytes; the last piece may be smaller, and an empty stream yields b"".

    Yielded pieces are released at once: holding them took half of an upload's memory.
    """
    held: list[bytes] = []
    count, first = 0, True
    async for piece in data:
        held.append(piece)
        count += len(piece)
        del piece
        while count >= size:
            first = False
            yield _take(held, size)
            count -= size
    if count or first:
        yield b"".join(held)


def _take(held: list[bytes], size: int) -> bytes:
    """Remove and return the first `size` bytes of a list of pieces; the rest stays in the list."""
    whole = b"".join(held)
    held.clear()
    if len(whole) == size:
        return whole
    held.append(whole[size:])
    return whole[:size]
