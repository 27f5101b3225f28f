"""Read many frames, in order, in batches: loaded ahead, spread over all cores, reread where neighbours have text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from callsheet.media.errors import InputTooLarge, TookTooLong
from callsheet.sandbox.processes import Start, start_alone

from .errors import NotAPicture, OcrCrashed
from .pool import Pool
from .records import Batch, FrameText, Reading

Load = Callable[[str], Awaitable[bytes]]

OF_A_FRAME = (NotAPicture, OcrCrashed, InputTooLarge, TookTooLong)
AHEAD = 4  # frames in memory, besides those in the pool
BATCHES_AHEAD = 2  # the current batch and the next


@asynccontextmanager
async def read_frames(
    keys: Sequence[str],
    load: Load,
    options: Reading = Reading(),  # noqa: B008 - a tuple
    *,
    start: Start = start_alone,
) -> AsyncIterator[AsyncIterator[Batch]]:
    """Yield an iterator of text batches in the order of `keys`. A batch raises the errors of its frames.

    Invalid options raise InvalidReading, EngineMissing or LanguageMissing at once. Leaving the block ends all child
    processes.
    """
    async with Pool(options, start) as pool:
        frames = _Frames(keys, load, pool)
        try:
            yield frames.batches(options)
        finally:
            await frames.close()


class _Frames:
    """The frames of one reading: one task for each frame near the current batch."""

    def __init__(self, keys: Sequence[str], load: Load, pool: Pool) -> None:
        self._keys = keys
        self._load = load
        self._pool = pool
        self._room = asyncio.Semaphore(pool.size + max(AHEAD, pool.size))
        self._tasks: dict[int, asyncio.Task[FrameText]] = {}
        self._again: list[asyncio.Task[FrameText]] = []

    async def batches(self, options: Reading) -> AsyncIterator[Batch]:
        """Yield one batch after another; the pool reads the next batch while the caller holds one."""
        before: FrameText | None = None
        for first in range(0, len(self._keys), options.batch):
            places = range(first, min(first + options.batch, len(self._keys)))
            for place in range(first, min(first + BATCHES_AHEAD * options.batch, len(self._keys))):
                if place not in self._tasks:
                    self._tasks[place] = asyncio.create_task(self._read(place))
            texts = [await self._tasks[place] for place in places]
            if not options.thorough:
                texts = await self._with_second_looks(first, texts, before)
            for place in places:
                del self._tasks[place]
            before = texts[-1]
            yield Batch(first, tuple(self._keys[place] for place in places), tuple(texts))

    async def close(self) -> None:
        """Cancel all unfinished tasks."""
        tasks = [*self._tasks.values(), *self._again]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, place: int, *, thorough: bool = False) -> FrameText:
        async with self._room:
            key = self._keys[place]
            picture = await self._load(key)
            try:
                return await self._pool.read(picture, thorough=thorough)
            except OF_A_FRAME as error:
                raise type(error)(f"{key}: {error}") from None

    async def _with_second_looks(self, first: int, texts: list[FrameText], before: FrameText | None) -> list[FrameText]:
        """Reread empty frames beside frames with text, with the thorough pass."""
        row = [before, *texts, await self._after(first, texts)]
        doubtful = [
            at for at, text in enumerate(texts) if not text.regions and (_has_text(row[at]) or _has_text(row[at + 2]))
        ]
        self._again = [asyncio.create_task(self._read(first + at, thorough=True)) for at in doubtful]
        for at, task in zip(doubtful, self._again, strict=True):
            texts[at] = (await task)._replace(retried=True)
        return texts

    async def _after(self, first: int, texts: list[FrameText]) -> FrameText | None:
        """Return the frame after the batch if the batch ends without text; its error waits for its own batch."""
        following = self._tasks.get(first + len(texts))
        if following is None or texts[-1].regions:
            return None
        await asyncio.wait({following})
        return None if following.cancelled() or following.exception() else following.result()


def _has_text(text: FrameText | None) -> bool:
    return text is not None and bool(text.regions)
