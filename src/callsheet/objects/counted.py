"""Counting what a task stores: room is taken before an object is written, and given back when it is not or goes.

What is counted is the difference to what was there under the key. Somebody else who writes the same key at the same
moment can make that wrong; the periodic recount sets it right.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from .errors import ObjectNotFound
from .face import Data, Objects

CHUNK_BYTES = 8 * 1024 * 1024  # of a stream whose length is not known; so much room is taken at a time
HEADS_AT_ONCE = 16


class Counter(Protocol):
    """Who counts the stored bytes of requesters."""

    async def charge(self, requester_id: str, key: str, more: int) -> None:
        """Count bytes that are about to be written below a key; raises QuotaExceeded, and then none is counted."""
        ...

    async def add(self, requester_id: str, keys: dict[str, int]) -> None:
        """Count bytes below keys that are there already, or that are gone (below 0)."""
        ...


class Writing:
    """One object while it is written: what was there, and how much room was taken for it so far."""

    def __init__(self, bill: Bill, key: str, before: int) -> None:
        self._bill, self._key, self.before, self.taken = bill, key, before, 0

    async def need(self, size: int) -> None:
        """Take room for an object of so many bytes; raises QuotaExceeded."""
        counter, more = self._bill.counter, size - self.before - self.taken
        if counter is not None and more > 0:
            await counter.charge(self._bill.requester_id, self._key, more)
            self.taken += more

    async def settle(self, size: int | None) -> None:
        """Count what is there now; None when it is what was there before."""
        more = (self.before if size is None else size) - self.before - self.taken
        if self._bill.counter is not None and more:
            await self._bill.counter.add(self._bill.requester_id, {self._key: more})

    def checked(self, data: Data) -> Data:
        """What is to be written. A stream of unknown length stops with QuotaExceeded where there is no more room."""
        if isinstance(data, bytes) or length_of(data) is not None or self._bill.counter is None:
            return data
        return self._pieces(data)

    async def _pieces(self, data: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
        done = 0
        async for piece in data:
            done += len(piece)
            if done > self.before + self.taken:
                await self.need(done + CHUNK_BYTES)
            yield piece


class Bill(NamedTuple):
    """Who counts, and for whom; without a counter nothing is asked and nothing counted."""

    counter: Counter | None
    requester_id: str

    @contextlib.asynccontextmanager
    async def writing(self, raw: Objects, key: str, size: int | None = None) -> AsyncIterator[Writing]:
        """Take room for an object that the block writes; the block settles it. What breaks takes none."""
        writing = Writing(self, key, 0 if self.counter is None else await size_of(raw, key))
        await writing.need(size or 0)
        try:
            yield writing
        except BaseException:
            await writing.settle(None)
            raise

    async def delete(self, raw: Objects, keys: Sequence[str]) -> None:
        """Remove objects, and count what was there."""
        sizes = {} if self.counter is None else await sizes_of(raw, keys)
        await raw.delete(*keys)
        if self.counter is not None and any(sizes.values()):
            await self.counter.add(self.requester_id, {key: -size for key, size in sizes.items() if size})


async def size_of(raw: Objects, key: str) -> int:
    """The bytes under a key, 0 where nothing is."""
    try:
        return (await raw.head(key)).size_bytes
    except ObjectNotFound:
        return 0


async def sizes_of(raw: Objects, keys: Sequence[str]) -> dict[str, int]:
    """The bytes under many keys."""
    some = asyncio.Semaphore(HEADS_AT_ONCE)

    async def one(key: str) -> int:
        async with some:
            return await size_of(raw, key)

    return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))


def length_of(data: Data) -> int | None:
    """How many bytes are to be written, where that is known."""
    if isinstance(data, bytes):
        return len(data)
    size: int | None = getattr(data, "size_bytes", None)
    return size
