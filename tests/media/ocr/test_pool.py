"""The children: what happens when one crashes, hangs or is no longer wanted."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from callsheet.media.errors import TookTooLong
from callsheet.media.ocr.errors import EngineMissing, LanguageMissing, NotAPicture, OcrCrashed
from callsheet.media.ocr.pool import Pool
from callsheet.media.ocr.records import FrameText, Reading
from tests.media.ocr import frames
from tests.media.ocr.frames import plate

PATIENCE_S = 60.0
LARGE_PAGES = 1920 * 1080 // 4096
ONE = Reading(processes=1)


def said(text: FrameText) -> list[str]:
    return [region.text for region in text.regions]


def page_faults(pid: int) -> int:
    """How often the kernel had to give a process a page."""
    return int(Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[7])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """One child that has read already."""
    async with Pool(ONE) as pool:
        await pool.read(plate("Warm").jpeg)
        yield pool


async def held(pool: Pool) -> asyncio.Task[FrameText]:
    """A read whose child does not move."""
    os.kill(pool.pids()[0], signal.SIGSTOP)
    task = asyncio.create_task(pool.read(plate("Held").jpeg))
    await until(pool._idle.empty)
    return task


async def test_a_child_reads_many_frames_and_tells_its_engine(pool: Pool) -> None:
    pids = pool.pids()
    for text in ("First plate", "Second plate"):
        read = await pool.read(plate(text).jpeg)
        assert said(read) == [text]
        assert read.engine.startswith("tesseract 5.")
        assert read.engine.endswith(" eng")
    assert pool.pids() == pids


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc")
async def test_a_child_keeps_its_memory_from_frame_to_frame(pool: Pool) -> None:
    large = frames.kinds()[0].jpeg
    for _ in range(3):
        await pool.read(large)
    before = page_faults(pool.pids()[0])
    for _ in range(2):
        await pool.read(large)
    assert page_faults(pool.pids()[0]) - before < 2 * LARGE_PAGES / 4  # it takes a picture of such a size many times


async def test_a_child_that_dies_is_a_crash_that_can_be_tried_again_and_it_is_replaced(pool: Pool) -> None:
    (pid,) = pool.pids()
    task = await held(pool)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(OcrCrashed, match="signal 9") as excinfo:
        await task
    assert excinfo.value.retry_after(1)
    assert not excinfo.value.retry_after(2)
    assert said(await pool.read(plate("Back again").jpeg)) == ["Back again"]
    assert pid not in pool.pids()


async def test_a_child_that_died_between_frames_is_replaced_unseen(pool: Pool) -> None:
    (pid,) = pool.pids()
    (child,) = pool._children
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not child.alive)
    assert said(await pool.read(plate("Back again").jpeg)) == ["Back again"]


async def test_a_frame_that_takes_too_long_ends_its_child(pool: Pool) -> None:
    (pid,) = pool.pids()
    pool._options = pool._options._replace(frame_s=0.2)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(TookTooLong):
        await pool.read(plate("Slow").jpeg)
    assert not psutil.pid_exists(pid)
    pool._options = ONE
    assert said(await pool.read(plate("Back again").jpeg)) == ["Back again"]


async def test_a_read_that_is_cancelled_ends_its_child(pool: Pool) -> None:
    (pid,) = pool.pids()
    task = await held(pool)
    task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not psutil.pid_exists(pid)
    assert said(await pool.read(plate("Back again").jpeg)) == ["Back again"]


async def test_a_bad_frame_leaves_the_child_at_work(pool: Pool) -> None:
    pids = pool.pids()
    with pytest.raises(NotAPicture):
        await pool.read(b"no picture")
    assert pool.pids() == pids
    assert said(await pool.read(plate("Still here").jpeg)) == ["Still here"]


async def test_nothing_is_left_of_a_pool() -> None:
    before = threading.active_count()
    async with Pool(Reading(processes=2)) as pool:
        await asyncio.gather(*(pool.read(plate(f"Plate {number}").jpeg) for number in range(4)))
        pids = pool.pids()
        assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)
    await until(lambda: threading.active_count() <= before)


async def test_a_pool_that_is_not_used_starts_nothing() -> None:
    async with Pool(ONE) as pool:
        assert pool.pids() == []


def test_an_unknown_language_is_told_before_anything_starts() -> None:
    with pytest.raises(LanguageMissing):
        Pool(Reading(languages=("tlh",)))


async def test_data_that_is_broken_is_an_engine_that_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nor.traineddata").write_bytes(b"no data")
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    async with Pool(Reading(languages=("nor",), processes=1)) as pool:
        with pytest.raises(EngineMissing, match="nor"):
            await pool.read(plate("Nothing").jpeg)
