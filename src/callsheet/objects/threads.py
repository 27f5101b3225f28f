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
    """The same bytes in pieces of one size; the last is smaller, and is empty when there are none at all."""
    held, count, first = [b""], 0, True
    async for piece in data:
        held.append(piece)
        count += len(piece)
        if count < size:
            continue
        whole, at = b"".join(held), 0
        while len(whole) - at >= size:
            yield whole[at : at + size]
            first, at = False, at + size
        held, count = [whole[at:]], len(whole) - at
    if count or first:
        yield b"".join(held)
