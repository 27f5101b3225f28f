"""Blocking work in a thread that is never left alone: a cancelled caller waits for it before it cleans up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """As asyncio.to_thread; but a file is not closed, and its number not used again, while a thread writes to it."""
    running = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **options))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue  # a second wish to stop changes nothing
        if not running.cancelled():
            running.exception()  # seen
        raise


async def pieces(data: bytes | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Bytes, whole or as they come."""
    if isinstance(data, bytes | bytearray | memoryview):
        yield bytes(data)
        return
    async for piece in data:
        yield piece


async def regrouped(data: AsyncIterable[bytes], size: int) -> AsyncGenerator[bytes, None]:
    """The same bytes in pieces of one size; the last is smaller, and is empty when there are none at all.

    What was given out is not held here any more: that was half of what an upload needed.
    """
    held: list[bytes] = []
    count, first = 0, True
    async for piece in data:
        held.append(piece)
        count += len(piece)
        del piece
        while count >= size:
            first = False
            yield _taken(held, size)
            count -= size
    if count or first:
        yield b"".join(held)


def _taken(held: list[bytes], size: int) -> bytes:
    """So many bytes from the beginning of a list, which keeps the rest."""
    whole = b"".join(held)
    held.clear()
    if len(whole) == size:
        return whole
    held.append(whole[size:])
    return whole[:size]
