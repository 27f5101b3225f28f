"""Many frames: order, batches, second looks, and the end of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psutil
import pytest

from callsheet.media.ocr.errors import InvalidReading, NotAPicture
from callsheet.media.ocr.pool import Pool
from callsheet.media.ocr.reader import AHEAD, Load, read_frames
from callsheet.media.ocr.records import Batch, FrameText, Reading
from tests.media.ocr.frames import Drawn, empty, in_the_dark, plate

PATIENCE_S = 60.0


class Shelf:
    """Frames by key, with a record of requested keys."""

    def __init__(self, frames: Sequence[Drawn]) -> None:
        self.frames = {f"frames/v/{at * 100}.jpg": frame.jpeg for at, frame in enumerate(frames)}
        self.keys = list(self.frames)
        self.asked: list[str] = []

    async def load(self, key: str) -> bytes:
        self.asked.append(key)
        return self.frames[key]


async def read(keys: Sequence[str], load: Load, options: Reading) -> list[Batch]:
    async with read_frames(keys, load, options) as batches:
        return [batch async for batch in batches]


def lines(batches: Sequence[Batch]) -> list[list[str]]:
    return [[region.text for region in text.regions] for batch in batches for text in batch.texts]


async def test_batches_come_in_order_and_whole() -> None:
    shelf = Shelf([plate(f"Frame number {number}") for number in range(10, 17)])
    batches = await read(shelf.keys, shelf.load, Reading(batch=3, processes=2))
    assert [batch.first for batch in batches] == [0, 3, 6]
    assert [key for batch in batches for key in batch.keys] == shelf.keys
    assert lines(batches) == [[f"Frame number {number}"] for number in range(10, 17)]
    assert sorted(shelf.asked) == sorted(shelf.keys)


async def test_no_frames_are_no_batches() -> None:
    shelf = Shelf([])
    assert await read([], shelf.load, Reading()) == []


async def test_an_empty_frame_beside_text_is_read_once_more_thoroughly() -> None:
    shelf = Shelf([plate("Harbour"), in_the_dark(), plate("Lights"), empty(), empty(), empty()])
    (batch,) = await read(shelf.keys, shelf.load, Reading(processes=2))
    assert [text.retried for text in batch.texts] == [False, True, False, True, False, False]
    assert "harbour" in " ".join(lines([batch])[1])
    assert lines([batch])[3] == []


async def test_neighbours_in_other_batches_count() -> None:
    shelf = Shelf([plate("Before"), empty(), empty(), empty(), empty(), plate("After")])
    batches = await read(shelf.keys, shelf.load, Reading(batch=1, processes=2))
    assert [text.retried for batch in batches for text in batch.texts] == [False, True, False, False, True, False]


async def test_a_thorough_reading_has_no_second_look() -> None:
    shelf = Shelf([plate("Harbour"), in_the_dark(), empty()])
    (batch,) = await read(shelf.keys, shelf.load, Reading(processes=1, thorough=True))
    assert "harbour" in " ".join(lines([batch])[1])
    assert not any(text.retried for text in batch.texts)
    assert batch.texts[0].engine.endswith(" eng thorough")


async def test_the_next_batch_is_read_while_the_caller_holds_one() -> None:
    shelf = Shelf([plate(f"Plate {number}") for number in range(4)])
    async with read_frames(shelf.keys, shelf.load, Reading(batch=2, processes=1)) as batches:
        assert (await anext(batches)).first == 0
        async with asyncio.timeout(PATIENCE_S):
            while len(shelf.asked) < 4:
                await asyncio.sleep(0.01)
        assert (await anext(batches)).first == 2


async def test_frames_are_loaded_only_a_little_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_pool: Pool, _picture: bytes, *, thorough: bool = False) -> FrameText:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Pool, "read", never)
    shelf = Shelf([empty()] * 30)
    async with read_frames(shelf.keys, shelf.load, Reading(batch=30, processes=1)) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        for _ in range(200):  # turns of the loop: no one has anything else to wait for
            await asyncio.sleep(0)
        assert len(shelf.asked) == 1 + AHEAD
        waiting.cancel()


async def test_a_bad_frame_is_told_in_its_batch_and_the_ones_before_are_whole() -> None:
    shelf = Shelf([plate("Fine"), plate("Good"), plate("Lost")])
    shelf.frames[shelf.keys[2]] = b"no picture"
    async with read_frames(shelf.keys, shelf.load, Reading(batch=2, processes=1)) as batches:
        assert lines([await anext(batches)]) == [["Fine"], ["Good"]]
        with pytest.raises(NotAPicture, match=shelf.keys[2]):
            await anext(batches)


async def test_what_loading_raises_reaches_the_caller() -> None:
    async def load(_key: str) -> bytes:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError):
        await read(["a"], load, Reading())


async def test_options_are_refused_at_once() -> None:
    shelf = Shelf([])
    with pytest.raises(InvalidReading):
        await read(["a"], shelf.load, Reading(batch=0))


async def test_leaving_or_cancelling_ends_all_children(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[Pool] = []
    enter = Pool.__aenter__

    async def watched(pool: Pool) -> Pool:
        pools.append(pool)
        return await enter(pool)

    monkeypatch.setattr(Pool, "__aenter__", watched)
    shelf = Shelf([plate("Plate")] * 12)
    has_reached = asyncio.Event()
    pids: list[int] = []

    async def work() -> None:
        async with read_frames(shelf.keys, shelf.load, Reading(batch=1, processes=2)) as batches:
            async for _ in batches:
                pids.extend(pools[0].pids())
                has_reached.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    async with asyncio.timeout(PATIENCE_S):
        await has_reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert pools[0].pids() == []
    assert len(shelf.asked) < len(shelf.keys)
