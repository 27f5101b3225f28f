"""A person composes a video in the page: the connection breaks, it goes on; cancelled at 40 %, nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from callsheet import Callsheet
from callsheet.contracts.aura import routes
from callsheet.contracts.aura.folders import Folders
from callsheet.contracts.aura.tasks import add_tasks
from callsheet.contracts.control_plane import files
from callsheet.http import objects
from callsheet.studio import mount
from tests import stores
from tests.beside import working
from tests.client.proxy import Proxy, before
from tests.http.live import ADMIN, Live, serving

from .conftest import opened, picture

SHORT = "---\nsize: 320x180\n---\n# The sea\n\n## Waves\n\nThe wind makes waves.\n\n## Tides\n\nThe moon makes tides.\n"
SCENES = "".join(f"\n## Part {n}\n\nOne more sentence about the sea, number {n}, read aloud.\n" for n in range(20))


@pytest.fixture
async def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    monkeypatch.setenv("CALLSHEET_MEDIA_ROOT", str(tmp_path / "media"))
    url, kept = stores.fresh_url("sqlite"), f"file://{tmp_path}/objects"
    app = Callsheet(url)
    app.objects_url = kept
    add_tasks(app)
    await app.migrate()
    routers = [routes.router, files.router, objects.router, mount.router]
    async with app, serving(url, routers=routers, objects_url=kept) as live, working(app, grace=5.0):
        yield live


async def begin(page: Page, proxy: Proxy, script: str) -> str:
    await page.goto(f"{proxy.url}/studio/live.html")
    await page.fill("#key", ADMIN)
    await page.fill("#script", script)
    await page.click("#create")
    await expect(page.locator("body[data-job]")).to_be_visible()
    return str(await page.get_attribute("body", "data-job"))


async def true(page: Page, fact: str) -> None:
    """Wait for a fact; `wait_for_function` needs eval, which the page's policy forbids."""
    async with asyncio.timeout(60):
        while not await page.evaluate(fact):
            await asyncio.sleep(0.02)


async def test_a_script_becomes_a_video_though_the_connection_breaks(live: Live, browser: Browser) -> None:
    async with before(live.url) as proxy, opened(browser) as page:
        await begin(page, proxy, SHORT)
        await expect(page.locator("#track li.done").first).to_be_visible()
        proxy.cut_all()
        await expect(page.locator("#connection")).to_contain_text("Connection lost")
        await picture(page, "live-cut")
        await expect(page.locator("#status")).to_have_text("Done", timeout=60_000)
        await expect(page.locator("#video")).to_be_visible()
        await true(page, "document.querySelector('#video').readyState >= 2")
        duration = await page.evaluate("document.querySelector('#video').duration")
        assert 2 < duration < 30
        await picture(page, "live-done")
        assert proxy.cuts > 0


async def test_a_job_is_cancelled_at_forty_percent_and_resumed(live: Live, browser: Browser) -> None:
    async with before(live.url) as proxy, opened(browser, dark=True, width=390) as page:
        job_id = await begin(page, proxy, SHORT + SCENES)
        await true(page, "document.querySelector('#bar').value >= 40")
        await page.click("#cancel")
        await expect(page.locator("#status")).to_have_text("Canceled")
        assert not Folders().exists(job_id)
        await picture(page, "live-canceled-dark-390")
        await expect(page.locator("#resume")).to_be_visible()
        await page.click("#resume")
        await true(page, f"document.body.dataset.job !== '{job_id}'")
        await expect(page.locator("#status")).to_have_text("Done", timeout=60_000)
        new = (await live.client.get(f"/api/jobs/{await page.get_attribute('body', 'data-job')}")).json()
        assert "Script" not in new["output"]["ran"]


@pytest.mark.parametrize("dark", [False, True])
async def test_the_page_can_be_used_by_everybody(live: Live, browser: Browser, dark: bool) -> None:  # noqa: FBT001
    async with before(live.url) as proxy, opened(browser, dark=dark) as page:
        await page.goto(f"{proxy.url}/studio/live.html")
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        await picture(page, f"live-empty-{'dark' if dark else 'light'}")


async def test_a_wrong_key_is_told(live: Live, browser: Browser) -> None:
    async with before(live.url) as proxy, opened(browser) as page:
        await page.goto(f"{proxy.url}/studio/live.html")
        await page.fill("#key", "wrong")
        await page.click("#create")
        await expect(page.locator("#trouble")).to_contain_text("not known")
