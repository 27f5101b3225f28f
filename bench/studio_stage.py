"""The setting of the studio benches: a store with many kinds of jobs, `callsheet serve` on it, and pages in Chromium."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from typing import NamedTuple

import httpx2
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from bench.http.processes import end
from bench.measure import now_ms, say
from callsheet.engine.ids import new_ids
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewJob
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.store import store_from_url
from callsheet.store.protocol import ClaimRequest, Store
from tests.browser.conftest import FLAGS
from tests.server_process import free_port

DAY_MS = 24 * 3600 * 1000
SPAN_MS = 6 * DAY_MS  # over which jobs were made; ended ones are kept for seven days
LEASE_MS = 30 * DAY_MS
BATCH = 500
KINDS = ("chat", "ocr", "transcode", "clip", "embed", "summarize", "thumbnail", "translate", "align", "compose")
QUEUES = ("default", "gpu", "media", "bulk")
PARKED_QUEUE = "parked"  # a queue that nobody claims from: an eighth of the jobs waits there
TEAMS = tuple(f"team-{n:02}" for n in range(40))
RARE_KIND, RARE_QUEUE, RARE_TEAM, RARE_WORD = "seldom", "night", "team-rare", "zanzibar"
RARE_EVERY = 4_000  # of the oldest fifth
WORDS = ("harbour", "lantern", "copper", "meadow", "signal", "velvet", "thunder", "paper", "orchard", "glacier")
START_S = 120.0


class Site(NamedTuple):
    """A running server process, with its address and key."""

    url: str
    pid: int
    key: str


async def fill(url: str, jobs: int) -> None:
    """Jobs in every status, of the last six days, by the store's own verbs; a few rare ones among the oldest."""
    began = time.perf_counter()
    store = store_from_url(f"{url}?synchronous=normal" if url.startswith("sqlite:") else url)
    await store.migrate()
    await store.open()
    try:
        start, step = now_ms() - SPAN_MS, SPAN_MS // max(1, jobs // BATCH)
        for n in range(0, jobs, BATCH):
            await _fill_some(store, n, min(BATCH, jobs - n), jobs, start + n // BATCH * step)
    finally:
        await store.close()
    say(f"{jobs:,} jobs in {time.perf_counter() - began:.0f} s")


async def _fill_some(store: Store, first: int, count: int, jobs: int, at: int) -> None:
    ids = new_ids(count)
    await store.enqueue([new_job(job_id, first + i, jobs) for i, job_id in enumerate(ids)], now=at)
    request = ClaimRequest(f"worker-{first // BATCH % 8}", (*QUEUES, RARE_QUEUE), limit=count, lease_ms=LEASE_MS)
    claimed_jobs = await store.claim(request, now=at + 1_000)
    ends = [end for i, job in enumerate(claimed_jobs) if (end := settlement_for(job, i)) is not None]
    await store.settle(ends, now=at + 5_000)


def new_job(job_id: str, number: int, jobs: int) -> NewJob:
    """The n-th job; all sorts come in turn."""
    rare = number < jobs // 5 and number % RARE_EVERY == 0
    words = " ".join(WORDS[(number * k + number // 7) % len(WORDS)] for k in (1, 3, 7))
    payload = {"title": f"{words} {RARE_WORD if rare else number}", "url": f"https://media.example.org/{number}.mp4"}
    return NewJob(
        job_id,
        RARE_KIND if rare else KINDS[number % len(KINDS)],
        json.dumps(payload),
        queue=RARE_QUEUE if rare else PARKED_QUEUE if number % 8 == 7 else QUEUES[number % 3 + number % 2],
        requester_id=RARE_TEAM if rare else TEAMS[number // 3 % len(TEAMS)],
        correlation_id=f"order-{number}",
    )


def settlement_for(job: Job, number: int) -> Settlement | None:
    """Return the settlement of a claimed job: most succeed, some fail, some keep running."""
    match number % 100:
        case 0:
            return None if number == 0 else commands.cancel(job, "not wanted")
        case 1 | 2 | 3:
            return commands.dead_letter(job, JobError("broke", "the frame could not be read"))
        case _:
            return commands.succeed(job, '{"ok":true}')


@contextlib.asynccontextmanager
async def serve(url: str) -> AsyncIterator[Site]:
    """Run `callsheet serve` on a store during the block."""
    port, key = free_port(), secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory(prefix="callsheet-bench-") as folder:
        variables = {"CALLSHEET_DATABASE_URL": url, "CALLSHEET_PORT": str(port), "CALLSHEET_API_KEY": key}
        variables |= {"CALLSHEET_LOG_LEVEL": "warning", "CALLSHEET_OBJECTS_URL": f"file://{folder}"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "callsheet.cli", "serve", env={**os.environ, **variables}, stdin=DEVNULL, cwd=folder
        )
        try:
            await _answers(f"http://127.0.0.1:{port}", process)
            yield Site(f"http://127.0.0.1:{port}", process.pid, key)
        finally:
            await end(process)


async def _answers(url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(START_S), httpx2.AsyncClient() as client:
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                if (await client.get(f"{url}/readyz")).is_success:
                    return
            if process.returncode is not None:
                raise RuntimeError(f"callsheet serve ended with code {process.returncode}")
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The system's browser."""
    program = shutil.which("chromium")
    if program is None:
        raise RuntimeError("there is no Chromium here: `make browser` installs it where it can")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


async def signed_in(browser: Browser, site: Site) -> BrowserContext:
    """Return a browser context (with its own renderer) that is signed in and has an empty cache."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    answer = await context.request.post(
        f"{site.url}/studio/session", data={"key": site.key}, headers={"X-Callsheet-Studio": "1", "Origin": site.url}
    )
    if answer.status != 201:
        raise RuntimeError(f"signing in was answered with {answer.status}: {await answer.text()}")
    return context


async def open_page(context: BrowserContext, site: Site, path: str, until: str) -> Page:
    """Open a page and wait until the element `until` is visible."""
    page = await context.new_page()
    await page.goto(site.url + path)
    await page.wait_for_selector(until)
    return page
