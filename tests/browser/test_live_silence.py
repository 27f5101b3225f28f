"""live.js in Chromium, on a dead connection that stays open silently.

The page's clock is virtual: nobody waits 25 s.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, Page

from callsheet.contracts.aura import routes, stream
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent
from callsheet.store.protocol import ClaimRequest
from callsheet.studio import mount
from tests import stores
from tests.client.proxy import Proxy, before
from tests.http.live import ADMIN, Live, serving
from tests.running_worker import until

from .conftest import opened

SILENCE_MS = 25_000
# Follows a job and notes what it does. `reads` counts what is asked of streams: by the next, the last is dealt with.
FOLLOW = """
async ([job, apiKey]) => {
  const { followLive } = await import("/studio/live.js");
  const page = (window.followed = { events: [], opens: [], overlaps: 0, pauses: [], reads: 0, heardAt: 0, end: "" });
  const read = ReadableStreamDefaultReader.prototype.read;
  ReadableStreamDefaultReader.prototype.read = function () {
    page.reads += 1;
    return read.call(this);
  };
  const signals = [];
  window.unended = () => signals.filter((signal) => !signal?.aborted).length;
  const fetch = (url, init) => {
    page.overlaps += window.unended();
    signals.push(init.signal);
    page.opens.push(url);
    return window.fetch(url, init);
  };
  const pause = (ms) => (page.pauses.push(ms), new Promise((done) => setTimeout(done, ms)));
  (async () => {
    for await (const event of followLive(job, { apiKey, fetch, pause })) {
      page.events.push(event);
      page.heardAt = page.reads;
    }
  })().then(() => (page.end = "over"), (error) => (page.end = error.code ?? String(error)));
}
"""


class Followed(NamedTuple):
    """A page that follows a job through a proxy, with helpers for tests."""

    page: Page
    proxy: Proxy
    live: Live
    job: Job

    async def now(self) -> dict[str, Any]:
        """What the page has noted so far."""
        by_name: dict[str, Any] = await self.page.evaluate("window.followed")
        return by_name

    async def shows(self, fact: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait for a condition on the events that the page recorded."""

        async def holds() -> bool:
            return bool(fact(await self.now()))

        await until(holds)
        return await self.now()

    async def warn(self, text: str) -> None:
        """Write another event of the job."""
        note = NewEvent("warning", "Voice", json.dumps({"message": text}))
        await self.live.engine.settle([commands.note(self.job, note)])

    async def hears(self, text: str) -> dict[str, Any]:
        """Wait until the page has an event and has requested the next event."""
        return await self.shows(lambda page: text in warnings(page) and page["reads"] > page["heardAt"])

    async def pass_ms(self, ms: int) -> int:
        """Let time go by in the page; return the number of connections still open then."""
        await self.page.clock.run_for(ms)
        return int(await self.page.evaluate("window.unended()"))


def warnings(page: dict[str, Any]) -> list[str]:
    return [event["data"]["message"] for event in page["events"] if event["type"] == "warning"]


def more(name: str, than: int) -> Callable[[dict[str, Any]], bool]:
    """A fact: a number, or the length of a list, grows."""
    return lambda page: (page[name] if isinstance(page[name], int) else len(page[name])) > than


def queries(page: dict[str, Any]) -> list[dict[str, list[str]]]:
    return [parse_qs(urlsplit(url).query) for url in page["opens"]]


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    async with serving(stores.fresh_url("sqlite"), routers=[routes.router, mount.router]) as live:
        yield live


@contextlib.asynccontextmanager
async def followed(live: Live, browser: Browser) -> AsyncIterator[Followed]:
    await live.client.post("/api/jobs", json={"payload": {}})
    (job,) = await live.engine.claim(ClaimRequest("w", lease_ms=600_000))
    async with before(live.url) as proxy, opened(browser) as page:
        await page.clock.install(time=1_000_000)
        await page.goto(f"{proxy.url}/studio")
        await page.clock.pause_at(100_000_000)
        await page.evaluate(FOLLOW, [job.job_id, ADMIN])
        yield Followed(page, proxy, live, job)


async def test_a_silent_connection_is_given_up_and_goes_on_where_it_was(live: Live, browser: Browser) -> None:
    async with followed(live, browser) as job:
        await job.warn("one")
        event = await job.hears("one")
        job.proxy.mute_streams()
        await job.warn("two")
        assert await job.pass_ms(SILENCE_MS - 100) == 1
        assert await job.pass_ms(200) == 0
        assert (await job.shows(lambda page: page["pauses"]))["pauses"] == [1_000]
        await job.pass_ms(1_000)
        await job.shows(lambda page: "two" in warnings(page))
        await live.done(job.job)
        over = await job.shows(lambda page: page["end"] or len(page["pauses"]) > 1)
        assert await job.pass_ms(4 * SILENCE_MS) == 0
        assert await job.now() == over
        assert (over["end"], over["overlaps"], warnings(over)) == ("over", 0, ["one", "two"])
        assert over["events"][-1]["type"] == "job-completed"
        first, second = queries(over)
        assert first["window"] == second["window"]
        assert second["lastEventId"] == [next(e["id"] for e in event["events"] if e["type"] == "warning")]


async def test_a_keepalive_is_a_sign_of_life(live: Live, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "KEEPALIVE_S", 0.02)
    async with followed(live, browser) as job:
        await job.warn("one")
        await job.hears("one")
        for _ in range(4):
            assert await job.pass_ms(SILENCE_MS - 5_000) == 1
            reads = (await job.now())["reads"]
            await job.shows(more("reads", reads + 2))
        assert len((await job.now())["opens"]) == 1


async def test_a_server_that_takes_connections_and_says_nothing_is_given_up(live: Live, browser: Browser) -> None:
    async with followed(live, browser) as job:
        await job.warn("one")
        await job.hears("one")
        job.proxy.is_mute = True
        for attempt in range(1, 6):
            assert await job.pass_ms(SILENCE_MS) == 0
            await job.shows(more("pauses", attempt - 1))
            await job.pass_ms(1_000 * 2 ** (attempt - 1))
            await job.shows(more("opens", attempt))
        assert await job.pass_ms(SILENCE_MS) == 0
        over = await job.shows(lambda page: page["end"] or len(page["pauses"]) > 5)
        assert (over["end"], over["overlaps"]) == ("unreachable", 0)
        assert over["pauses"] == [1_000, 2_000, 4_000, 8_000, 16_000]
