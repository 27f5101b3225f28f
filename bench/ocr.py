"""What reading frames costs beside the engine alone, in turns.

The engine alone is the same recognitions and nothing else: pictures decoded and masked before the clock starts.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, NamedTuple

import psutil

from bench.measure import keep, say
from callsheet.media.ocr.picture import bright_text, grey
from callsheet.media.ocr.pool import Pool, cores
from callsheet.media.ocr.reader import read_frames
from callsheet.media.ocr.records import Box, Reading
from callsheet.media.ocr.tessdata import data_for
from callsheet.media.ocr.tesseract import KNOWN_CONFIDENCE, RESOLUTION, Tesseract
from tests.media.ocr import frames

ROUNDS = 3
LEAST_LOOK_S = 0.2
CODES = ("eng",)
SIDES = {
    "engine": "the engine alone",
    "threads": "with decoding and masks",
    "reader": "`read_frames`",
    "steady": "children that run already",
}


class Cost(NamedTuple):
    """The cost of one run: wall-clock seconds, CPU seconds with all children, and peak memory."""

    wall_s: float
    cpu_s: float
    memory_mb: float


class Shown(NamedTuple):
    """What the engine gets to see in one pass over one frame."""

    pixels: bytes
    width: int
    height: int
    mode: int


async def measure(kind: str, *, quick: bool) -> None:
    """Measure and keep the figures; `kind` is always tesseract, because no store takes part."""
    frames_drawn = [*frames.kinds(), *frames.captions()]
    engine, alone = Tesseract(), Alone()
    passes = [alone.passes(frame.jpeg) for frame in frames_drawn] * (1 if quick else 4)
    pictures = [frame.jpeg for frame in frames_drawn] * (1 if quick else 4)
    costs_of: dict[str, list[Cost]] = {name: [] for name in SIDES}
    for _ in range(1 if quick else ROUNDS):
        costs_of["engine"].append(await _cost("engine", lambda: _threads(alone.read, passes)))
        costs_of["threads"].append(
            await _cost("threads", lambda: _threads(lambda jpeg: len(engine.read(jpeg, CODES)), pictures))
        )
        costs_of["reader"].append(await _cost("reader", lambda: _read(pictures)))
        async with Pool(Reading()) as pool:
            await _all(pool, pictures[: pool.size])
            costs_of["steady"].append(await _cost("steady", lambda: _all(pool, pictures)))
    row = _row(costs_of, len(pictures)) | {"frames": len(pictures), "cores": cores(), "version": engine.version}
    say("ocr: " + ", ".join(f"{name} {value}" for name, value in row.items()))
    keep(f"ocr-{kind}", row | {"servers": {"tesseract": engine.version}}, quick=quick)


class Alone:
    """Tesseract alone, with one engine per thread."""

    def __init__(self) -> None:
        self._tesserocr = import_module("tesserocr")
        self._local = threading.local()

    def passes(self, jpeg: bytes) -> list[Shown]:
        """Return the recognition passes that our reader makes of a frame."""
        image = grey(jpeg)
        assert image is not None, "too small"
        modes = self._tesserocr.PSM
        whole = Shown(image.tobytes(), image.width, image.height, modes.AUTO)
        mask = bright_text(image, [box for box, confidence in self._words(whole) if confidence >= KNOWN_CONFIDENCE])
        if mask is None:
            return [whole]
        height, width = mask.pixels.shape
        return [whole, Shown(mask.pixels.tobytes(), width, height, modes.SPARSE_TEXT)]

    def read(self, passes: list[Shown]) -> int:
        """Return the number of words that the passes recognise."""
        return sum(len(self._words(picture)) for picture in passes)

    def _words(self, picture: Shown) -> list[tuple[Box, float]]:
        api, word = self._api(), self._tesserocr.RIL.WORD
        api.SetImageBytes(picture.pixels, picture.width, picture.height, 1, picture.width)
        api.SetSourceResolution(RESOLUTION)
        api.SetPageSegMode(picture.mode)
        words = []
        if api.Recognize() and (each := api.GetIterator()) is not None:
            for one in self._tesserocr.iterate_level(each, word):
                if not one.Empty(word) and one.GetUTF8Text(word).strip():
                    left, top, right, bottom = one.BoundingBox(word)
                    words.append((Box(left, top, right - left, bottom - top), one.Confidence(word)))
        return words

    def _api(self) -> Any:
        if not hasattr(self._local, "api"):
            best = self._tesserocr.OEM.LSTM_ONLY
            self._local.api = self._tesserocr.PyTessBaseAPI(path=str(data_for(CODES)), lang="+".join(CODES), oem=best)
        return self._local.api


async def _threads(act: Callable[[Any], int], pictures: Sequence[object]) -> int:
    """Run `act` on all pictures, with one thread per core."""

    def run() -> int:
        with ThreadPoolExecutor(cores()) as threads:
            return sum(threads.map(act, pictures))

    return await asyncio.to_thread(run)


async def _all(pool: Pool, pictures: Sequence[bytes]) -> int:
    return sum(len(text.regions) for text in await asyncio.gather(*map(pool.read, pictures)))


async def _read(pictures: Sequence[bytes]) -> int:
    async def load(key: str) -> bytes:
        return pictures[int(key)]

    async with read_frames([str(at) for at in range(len(pictures))], load, Reading()) as batches:
        return sum([len(text.regions) async for batch in batches for text in batch.texts])


async def _cost(name: str, side: Callable[[], Awaitable[int]]) -> Cost:
    memory = _Memory()
    before, began = _cpu_s(), time.perf_counter()
    words = await side()
    wall_s = time.perf_counter() - began
    cost = Cost(wall_s, _cpu_s() - before, memory.most_mb())
    busy = cost.cpu_s / wall_s / cores()
    say(
        f"ocr {name}: {wall_s:.2f} s, {cost.cpu_s:.2f} s of CPU, {busy:.0%} busy, {cost.memory_mb:.0f} MB, {words} found"
    )
    return cost


def _cpu_s() -> float:
    """Return the CPU time of this process and all its children, ended ones included."""
    over = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    here = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return sum(used.ru_utime + used.ru_stime for used in over) + sum(used.user + used.system for used in here)


class _Memory:
    """Samples the memory of this process and its children until `stop`."""

    def __init__(self) -> None:
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def most_mb(self) -> float:
        self._over.set()
        self._thread.join()
        return self._most / 2**20

    def _look(self) -> None:
        me = psutil.Process(os.getpid())
        while not self._over.wait(LEAST_LOOK_S):
            total = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self._most = max(self._most, total)


def _row(costs_of: dict[str, list[Cost]], count: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, costs in costs_of.items():
        pairs = list(zip(costs, costs_of["engine"], strict=True))
        row[f"{name}_ms"] = round(1000 * statistics.median(cost.wall_s for cost in costs) / count, 1)
        row[f"{name}_cpu_ms"] = round(1000 * statistics.median(cost.cpu_s for cost in costs) / count, 1)
        row[f"{name}_ratio"] = round(statistics.median(cost.wall_s / alone.wall_s for cost, alone in pairs), 3)
        row[f"{name}_cpu_ratio"] = round(statistics.median(cost.cpu_s / alone.cpu_s for cost, alone in pairs), 3)
        row[f"{name}_busy"] = round(statistics.median(cost.cpu_s / cost.wall_s / cores() for cost in costs), 3)
        row[f"{name}_mb"] = round(max(cost.memory_mb for cost in costs))
    return row


def sections(record: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the paragraphs and tables for RESULTS.md."""
    figures = record["measured"]
    text = (
        f"{figures['frames']} frames of 1080p (ten kinds and forty captions, drawn), Tesseract {figures['version']}, "
        f"{figures['cores']} cores. The engine alone is a thread per core that does the same recognitions on pictures which "
        "were decoded and masked beforehand; then the same with decoding and masks. `read_frames` is children in the box, "
        "started and ended within the time; the last row leaves out their start. Medians per frame; factors of each "
        "round's own engine alone. Target: 1.10 of its CPU time, and 85 % of the cores busy."
    )
    rows = [
        (
            title,
            f"{figures[f'{name}_ms']} ms",
            f"{figures[f'{name}_cpu_ms']} ms",
            f"{figures[f'{name}_ratio']:.3f}",
            f"{figures[f'{name}_cpu_ratio']:.3f}",
            f"{figures[f'{name}_busy']:.0%}",
            f"{figures[f'{name}_mb']} MB",
        )
        for name, title in SIDES.items()
        if f"{name}_ms" in figures
    ]
    return [text, table(("side", "clock", "CPU", "factor", "factor, CPU", "cores busy", "memory"), rows)]


if __name__ == "__main__":
    asyncio.run(measure("tesseract", quick=True))
