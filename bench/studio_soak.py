"""An hour with the studio open: memory stays flat, in its pages and in the server, under 100 events a second.

A page on Jobs whose user takes what is new each few seconds and filters each minute, one on Jobs that is left alone, and
one on Overview, on SQLite with 100,000 jobs. A sample is taken each minute, after a collection of garbage.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from playwright.async_api import CDPSession, Page, expect

from bench import places
from bench.measure import keep, say
from bench.studio_stage import Site, chromium, fill, open_page, serve, signed_in

ROOT = Path(__file__).parents[1]
JOBS = 100_000
RATE = 100.0
TAKE_S = 3.0
MINUTE_S = 60.0
WHOLE_MIN = 60
SETTLE_MIN = 10  # from here on nothing may grow
GROWTH = 1.1
MB = 2**20
METRICS = {"JSHeapUsedSize": "heap_mb", "Nodes": "nodes", "JSEventListeners": "listeners"}


class Watched(NamedTuple):
    """A page, with its DevTools session."""

    name: str
    page: Page
    session: CDPSession

    async def sample(self) -> dict[str, float]:
        """What it holds after garbage was collected, twice, since the first pass frees what the second can reach."""
        for _ in range(2):
            await self.session.send("HeapProfiler.collectGarbage")
        answer = await self.session.send("Performance.getMetrics")
        figures = {METRICS[one["name"]]: float(one["value"]) for one in answer["metrics"] if one["name"] in METRICS}
        figures["heap_mb"] /= MB
        return {f"{self.name} {name}": value for name, value in figures.items()}


async def soak(minutes: int) -> None:
    """Fill, open, write and look; kept as `studio_soak-sqlite`."""
    async with places.fresh("sqlite") as url:
        await fill(url, JOBS)
        async with serve(url) as site, chromium() as browser, _writer(url) as writer:
            pages = [
                await _watch(name, await open_page(await signed_in(browser, site), site, path, until))
                for name, path, until in (
                    ("jobs, used", "/studio/jobs", "[data-row]"),
                    ("jobs, left alone", "/studio/jobs", "[data-row]"),
                    ("overview", "/studio", ".figures"),
                )
            ]
            samples: list[dict[str, float]] = []
            async for sample in _samples(pages, site, writer, minutes):
                samples.append(sample)
                keep("studio_soak-sqlite", {"jobs": JOBS, "samples": samples}, quick=len(samples) < WHOLE_MIN)


async def _watch(name: str, page: Page) -> Watched:
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    return Watched(name, page, session)


async def _samples(
    pages: Sequence[Watched], site: Site, writer: Written, minutes: int
) -> AsyncIterator[dict[str, float]]:
    server, start = psutil.Process(site.pid), time.monotonic()
    for minute in range(minutes):
        await _use(pages[0].page, start + (minute + 1) * MINUTE_S)
        sample: dict[str, float] = {"minute": (time.monotonic() - start) / 60}
        for one in pages:
            sample |= await one.sample()
        sample["server rss_mb"] = server.memory_info().rss / MB
        sample["server fds"] = server.num_fds()
        sample["events"] = writer.events
        sample["load average"] = os.getloadavg()[0]
        say("  ".join(f"{name} {value:.1f}" for name, value in sample.items()))
        if writer.process.returncode is not None:
            raise RuntimeError(f"the writer ended with code {writer.process.returncode}")
        yield sample


async def _use(page: Page, until: float) -> None:
    """Load new rows for a while, then filter and return to the first page, so that samples are alike.

    The button is clicked by script: a late click by Playwright would keep the button alive.
    """
    while time.monotonic() < until - TAKE_S:
        await asyncio.sleep(TAKE_S)
        await page.evaluate("() => document.querySelector('.news button')?.click()")
    for status in ("error", ""):
        await page.select_option("select[name=status]", status)
        await expect(page.locator("[data-row]")).to_have_count(50, timeout=60_000)
        await asyncio.sleep(TAKE_S / 3)


class Written:
    """The writer process, and its number of events so far."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.events = 0

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events = int(line)


@contextlib.asynccontextmanager
async def _writer(url: str) -> AsyncIterator[Written]:
    command = (sys.executable, "-m", "bench.studio_write", url, str(RATE))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    counter = Written(process)
    listening = asyncio.create_task(counter.listen())
    try:
        yield counter
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await listening


def sections(record: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the paragraphs and tables for RESULTS.md."""
    of = record["measured"]
    samples = of["samples"]
    first, last = samples[0], samples[-1]
    minutes, rate = last["minute"], (last["events"] - first["events"]) / (last["minute"] - first["minute"]) / 60
    text = (
        f"{minutes:.0f} minutes on SQLite with {of['jobs']:,} jobs to begin with, {rate:.0f} events/s written by another "
        "process through the engine, three pages open; a sample each minute, after a collection of garbage. Target: the "
        f"mean of the last ten minutes is at most {GROWTH} times that of minutes {SETTLE_MIN} to {SETTLE_MIN * 2}."
    )
    early, late = samples[SETTLE_MIN : SETTLE_MIN * 2] or samples, samples[-SETTLE_MIN:]
    rows = []
    for name in samples[0]:
        if name in ("minute", "events", "load average"):
            continue
        before, after = (statistics.fmean(one[name] for one in some) for some in (early, late))
        highest = max(one[name] for one in samples)
        rows.append((name, f"{before:,.1f}", f"{after:,.1f}", f"**{after / before:.2f}**", f"{highest:,.1f}"))
    heads = ("", f"minutes {SETTLE_MIN}–{SETTLE_MIN * 2}", "last ten", "ratio", "highest")
    return [text, table(heads, rows)]


if __name__ == "__main__":
    try:
        asyncio.run(soak(int(sys.argv[1])))
    finally:
        places.stop()
