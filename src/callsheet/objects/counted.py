"""Counts the bytes that tasks store: quota is charged before an object is written, and refunded if the write fails.

The counted number is the size difference to the object previously under the key. Concurrent writes of one key can
make the count wrong; the periodic recount corrects the count.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from .errors import ObjectNotFound
from .face import Data, Objects

CHUNK_BYTES = 8 * 1024 * 1024  # charged at a time for a stream of unknown length
HEADS_AT_ONCE = 16


class Counter(Protocol):
    """Counts the stored bytes of requesters."""

    async def charge(self, requester_id: str, key: str, more: int) -> None:
        """Add `more` bytes to a requester's count before a write; raises QuotaExceeded, with the count unchanged."""
        ...

    async def add(self, requester_id: str, keys: dict[str, int]) -> None:
        """Add the size changes of keys to a requester's count without a quota check; deleted bytes are negative."""
        ...


class Writing:
    """The count of one running write: the key's size before the write, and the bytes charged so far."""

    def __init__(self, bill: Bill, key: str, before: int) -> None:
        self._bill, self._key, self.before, self.charged_bytes = bill, key, before, 0

    async def need(self, size: int) -> None:
        """Charge the quota for an object of `size` bytes, less the bytes charged before; raises QuotaExceeded."""
        counter, more = self._bill.counter, size - self.before - self.charged_bytes
        if counter is not None and more > 0:
            await counter.charge(self._bill.requester_id, self._key, more)
            self.charged_bytes += more

    async def settle(self, size: int | None) -> None:
        """Correct the count to the object's final size; None if the previous object is unchanged."""
        more = (self.before if size is None else size) - self.before - self.charged_bytes
        if self._bill.counter is not None and more:
            await self._bill.counter.add(self._bill.requester_id, {self._key: more})

    def charging(self, data: Data) -> Data:
        """Return the data to write. A stream of unknown length is charged while read; raises QuotaExceeded."""
        if isinstance(data, bytes) or length_of(data) is not None or self._bill.counter is None:
            return data
        return self._pieces(data)

    async def _pieces(self, data: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
        total = 0
        async for piece in data:
            total += len(piece)
            if total > self.before + self.charged_bytes:
                await self.need(total + CHUNK_BYTES)
            yield piece


class Bill(NamedTuple):
    """A byte counter, and the requester whose bytes are counted; with `counter` None nothing is counted."""

    counter: Counter | None
    requester_id: str

    @contextlib.asynccontextmanager
    async def writing(self, raw: Objects, key: str, size: int | None = None) -> AsyncIterator[Writing]:
        """Charge the quota for an object that the block writes; the block calls `settle`, an error refunds."""
        writing = Writing(self, key, 0 if self.counter is None else await size_of(raw, key))
        await writing.need(size or 0)
        try:
            yield writing
        except BaseException:
            await writing.settle(None)
            raise

    async def delete(self, raw: Objects, keys: Sequence[str]) -> None:
        """Delete objects and subtract their sizes from the count."""
        sizes = {} if self.counter is None else await sizes_of(raw, keys)
        await raw.delete(*keys)
        if self.counter is not None and any(sizes.values()):
            await self.counter.add(self.requester_id, {key: -size for key, size in sizes.items() if size})


async def size_of(raw: Objects, key: str) -> int:
    """Return the size of a key's object, 0 if the key has no object."""
    try:
        return (await raw.head(key)).size_bytes
    except ObjectNotFound:
        return 0


async def sizes_of(raw: Objects, keys: Sequence[str]) -> dict[str, int]:
    """Return the object sizes of many keys."""
    some = asyncio.Semaphore(HEADS_AT_ONCE)

    async def one(key: str) -> int:
        async with some:
            return await size_of(raw, key)

    return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))


def length_of(data: Data) -> int | None:
    """Return the length of the data, None if unknown."""
    if isinstance(data, bytes):
        return len(data)
    size: int | None = getattr(data, "size_bytes", None)
    return size
