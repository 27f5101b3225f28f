"""The overview: numbers that move by themselves, charts with axes and units, workers; and a light first paint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.http.live import Live

from .studio import SCRIPT, check, check_in_all_looks, end_badly, put, run, signed_in, studio_server


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with studio_server(tmp_path) as live:
        yield live


async def test_the_overview_shows_what_waits_runs_and_failed_and_moves_by_itself(live: Live, browser: Browser) -> None:
    async with signed_in(browser, live.url) as page:
        figures = page.locator(".figures .card")
        await expect(page.locator("main")).to_contain_text("Nothing waits and nothing runs")
        await check(page)
        await put(live, f"scan {SCRIPT}", queue=f"gpu {SCRIPT}")
        job = await run(live, SCRIPT, worker=f"w {SCRIPT}", queue="media")
        await expect(figures.filter(has_text="Waiting").locator(".value")).to_have_text("1")
        await expect(figures.filter(has_text="Running").locator(".value")).to_have_text("1")
        await expect(page.get_by_role("table", name="Workers")).to_contain_text("1 job")
        await end_badly(live, job)
        await live.done(await run(live, "compose", queue="media"))
        await expect(figures.filter(has_text="Dead letters").locator(".value")).to_have_text("1")
        await expect(page.locator(".chart").first).to_contain_text("jobs/s")
        await expect(page.locator(".chart .shape")).not_to_have_count(0)
        await expect(page.get_by_role("table", name="Kinds")).to_contain_text(SCRIPT)
        await check_in_all_looks(page, "overview")
        assert await page.title() == "Overview · Callsheet"


WEIGHT = """
() => performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)
"""


async def test_the_first_paint_is_light(live: Live, browser: Browser) -> None:
    async with signed_in(browser, live.url) as page:
        await expect(page.locator("main[data-at]")).to_be_visible()
        assert 20_000 < await page.evaluate(WEIGHT) < 200_000
