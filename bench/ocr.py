"""What reading frames costs beside the engine alone: our reader against bare threads with the same passes, in turns."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import psutil

from bench.measure import keep, say
from callsheet.media.ocr.pool import cores
from callsheet.media.ocr.reader import read_frames
from callsheet.media.ocr.records import Reading
from callsheet.media.ocr.regions import regions
from callsheet.media.ocr.tesseract import Tesseract
from tests.media.ocr import frames

ROUNDS = 3
LEAST_LOOK_S = 0.2


class Cost(NamedTuple):
    """Of one run: seconds by the clock, of CPU with all children, and the most memory that was seen at once."""

    wall_s: float
    cpu_s: float
    memory_mb: float


async def measure(kind: str, *, quick: bool) -> None:
    """`kind` is always tesseract: no store has a part in this."""
    drawn = [*frames.kinds(), *frames.captions()]
    shelf = {f"{at}.jpg": frame.jpeg for at, frame in enumerate(drawn * (1 if quick else 4))}
    engine = Tesseract()
    engine.read(drawn[0].jpeg, ("eng",))
    sides: dict[str, Callable[[], Awaitable[int]]] = {
        "bare": lambda: asyncio.to_thread(_bare, engine, list(shelf.values())),
        "threads": lambda: asyncio.to_thread(_bare, engine, list(shelf.values()), join=True),
        "reader": lambda: _read(shelf),
    }
    taken: dict[str, list[Cost]] = {name: [] for name in sides}
    for _ in range(1 if quick else ROUNDS):
        for name, side in sides.items():
            taken[name].append(await _cost(name, side))
    row = _row(taken, len(shelf)) | {"frames": len(shelf), "cores": cores(), "version": engine.version}
    say("ocr: " + ", ".join(f"{name} {value}" for name, value in row.items()))
    keep(f"ocr-{kind}", row | {"servers": {"tesseract": engine.version}}, quick=quick)


def _bare(engine: Tesseract, pictures: list[bytes], *, join: bool = False) -> int:
    """As many threads as there are cores; `join` makes lines of the words, as the reader does."""

    def one(picture: bytes) -> int:
        words = engine.read(picture, ("eng",))
        return len(regions(words)) if join else len(words)

    with ThreadPoolExecutor(cores()) as threads:
        return sum(threads.map(one, pictures))


async def _read(shelf: dict[str, bytes]) -> int:
    async def load(key: str) -> bytes:
        return shelf[key]

    async with read_frames(list(shelf), load, Reading()) as batches:
        return sum([len(text.regions) async for batch in batches for text in batch.texts])


async def _cost(name: str, side: Callable[[], Awaitable[int]]) -> Cost:
    memory = _Memory()
    before, began = _cpu_s(), time.perf_counter()
    found = await side()
    wall_s = time.perf_counter() - began
    cost = Cost(wall_s, _cpu_s() - before, memory.most_mb())
    busy = cost.cpu_s / wall_s / cores()
    say(
        f"ocr {name}: {wall_s:.2f} s, {cost.cpu_s:.2f} s of CPU, {busy:.0%} busy, {cost.memory_mb:.0f} MB, {found} found"
    )
    return cost


def _cpu_s() -> float:
    """Of this process and of all its children that have ended; the reader's have when it is done."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


class _Memory:
    """Looks at this process and its children until it is asked."""

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


def _row(taken: dict[str, list[Cost]], count: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, costs in taken.items():
        pairs = list(zip(costs, taken["bare"], strict=True))
        row[f"{name}_ms"] = round(1000 * statistics.median(cost.wall_s for cost in costs) / count, 1)
        row[f"{name}_cpu_ms"] = round(1000 * statistics.median(cost.cpu_s for cost in costs) / count, 1)
        row[f"{name}_ratio"] = round(statistics.median(cost.wall_s / bare.wall_s for cost, bare in pairs), 3)
        row[f"{name}_cpu_ratio"] = round(statistics.median(cost.cpu_s / bare.cpu_s for cost, bare in pairs), 3)
        row[f"{name}_busy"] = round(statistics.median(cost.cpu_s / cost.wall_s / cores() for cost in costs), 3)
        row[f"{name}_mb"] = round(max(cost.memory_mb for cost in costs))
    return row


def sections(record: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    """For RESULTS.md."""
    measured = record["measured"]
    text = (
        f"{measured['frames']} frames of 1080p (ten kinds and forty captions, drawn), Tesseract {measured['version']}, "
        f"{measured['cores']} cores. Bare is a loop of as many threads as cores over the same passes, all in one process; "
        "threads also makes lines of the words; reader is `read_frames`: children in the box, started and ended within "
        "the time. Medians per frame; factors of each round's own bare run."
    )
    rows = [
        (
            name,
            f"{measured[f'{name}_ms']} ms",
            f"{measured[f'{name}_cpu_ms']} ms",
            f"{measured[f'{name}_ratio']:.3f}",
            f"{measured[f'{name}_cpu_ratio']:.3f}",
            f"{measured[f'{name}_busy']:.0%}",
            f"{measured[f'{name}_mb']} MB",
        )
        for name in ("bare", "threads", "reader")
    ]
    return [text, table(("side", "clock", "CPU", "factor", "factor, CPU", "cores busy", "memory"), rows)]


if __name__ == "__main__":
    asyncio.run(measure("tesseract", quick=True))
