"""Compose in the studio: a job of contract 004 is followed live, over a connection that breaks, and resumed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.async_api import Browser, Page, Request, expect

from callsheet.contracts.aura.folders import Folders
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import ClaimRequest, Settled
from tests.client.proxy import Proxy, before
from tests.http.live import Live
from tests.running_worker import until

from .conftest import picture
from .media import media_server
from .studio import SCRIPT, check_in_all_looks, check_on_a_phone, signed_in, studio_server

PATIENCE_MS = 120_000  # a whole video, beside others
SHORT = "---\nsize: 320x180\n---\n# The sea\n\n## Waves\n\nThe wind makes waves.\n\n## Tides\n\nThe moon makes tides.\n"
SCENES = "".join(f"\n## Part {n}\n\nOne more sentence about the sea, number {n}, read aloud.\n" for n in range(20))


class Composing(NamedTuple):
    """A page with a job, whose worker is the test itself."""

    page: Page
    live: Live
    proxy: Proxy
    asked: list[str]

    @property
    def job_id(self) -> str:
        """Return the job id in the address."""
        return self.page.url.partition("job=")[2]

    async def claim(self) -> None:
        """Take the job, as a worker does."""
        jobs: list[Job] = []

        async def is_taken() -> bool:
            jobs.extend(await self.live.engine.claim(ClaimRequest("w", lease_ms=600_000)))
            return bool(jobs)

        await until(is_taken)
        await self.page.wait_for_url(f"**/studio/compose?job={jobs[0].job_id}")

    async def job(self) -> Job:
        """Return the job from the store."""
        (job,) = await self.live.engine.store.get([self.job_id])
        assert job is not None
        return job

    async def settle(self, *settlements: Settlement) -> None:
        """Write a worker's settlement."""
        assert set(await self.live.engine.settle(list(settlements))) == {Settled.APPLIED}

    async def reach(self, *steps: str) -> None:
        """Enter stages and complete them."""
        for step in steps:
            await self.settle(commands.advance(await self.job(), step))
            await self.settle(commands.checkpoint(await self.job(), step, "{}"))


@contextlib.asynccontextmanager
async def composing(folder: Path, browser: Browser) -> AsyncIterator[Composing]:
    """Open a page that created a job; only the test works on this job."""
    async with (
        studio_server(folder) as live,
        before(live.url) as proxy,
        signed_in(browser, proxy.url, "/studio/compose") as page,
    ):
        requests: list[str] = []
        page.on("request", lambda request: requests.append(_path_of(request)))
        yield Composing(page, live, proxy, requests)


def _path_of(request: Request) -> str:
    return f"{request.method} {request.url.partition('/api')[2].partition('?')[0]}"


async def test_percent_message_and_warnings_come_live_over_the_contracts_stream(
    tmp_path: Path, browser: Browser
) -> None:
    async with composing(tmp_path, browser) as run:
        page, live_view = run.page, run.page.locator("[data-live]")
        await page.get_by_role("button", name="Make the video").click()
        await expect(live_view).to_contain_text("Waits for a worker")
        await run.claim()
        await run.reach("Script")
        await run.settle(commands.advance(await run.job(), "Voice"))
        await run.settle(commands.progress(await run.job(), 22, f"scene 3 {SCRIPT}"))
        await expect(live_view.locator(".progresshead")).to_contain_text("22 %")
        await expect(live_view.locator("[data-message]")).to_have_text(f"scene 3 {SCRIPT}")
        await expect(live_view.locator("[aria-current=step]")).to_contain_text("Voice")
        await expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "22")
        run.proxy.cut_all()
        await expect(live_view.locator("[data-connection]")).to_contain_text("trying again in 1 s")
        await run.settle(
            commands.note(await run.job(), NewEvent("warning", "Voice", json.dumps({"message": f"no voice {SCRIPT}"})))
        )
        await expect(live_view.locator(".warnings li")).to_have_text([f"no voice {SCRIPT}"])
        await expect(live_view.locator("[data-message]")).to_have_text(f"scene 3 {SCRIPT}")
        await expect(live_view.locator("[data-connection]")).to_be_hidden()
        await check_in_all_looks(page, "compose-live")
        await run.settle(commands.advance(await run.job(), "Visuals"))
        await expect(live_view.locator("[data-message]")).to_have_text("Pictures")  # "scene 3" was said of the voice
        await run.live.done(await run.job())
        await expect(page.locator("video.player")).to_be_visible()
        await expect(page.locator(".warnings li")).to_have_count(1)
        reads = [path for path in run.asked if path == f"GET /jobs/{run.job_id}"]
        streams = [path for path in run.asked if path == f"GET /jobs/{run.job_id}/events"]
        assert (len(reads), len(streams)) == (1, 2)  # the end, and one stream that was cut once
        assert await page.title() != "broken"


async def test_what_failed_or_was_cancelled_is_resumed_from_the_page(tmp_path: Path, browser: Browser) -> None:
    async with composing(tmp_path, browser) as run:
        page, resume = run.page, run.page.get_by_role("button", name="Resume")
        await page.get_by_role("button", name="Make the video").click()
        await run.claim()
        await run.reach("Script", "Voice")
        failed_id = run.job_id
        await run.settle(commands.dead_letter(await run.job(), JobError("broke", f"no disk {SCRIPT}")))
        await expect(page.locator(".note[data-tone=bad]")).to_contain_text(f"no disk {SCRIPT}")
        await expect(page.locator(".note[data-tone=bad]")).to_contain_text("goes on after the voice")
        await expect(page.locator(".track [data-how=bad]")).to_have_count(1)
        await check_in_all_looks(page, "compose-failed")
        await resume.focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url(lambda url: "job=" in url and failed_id not in url)
        await expect(page.locator(".stage")).to_be_focused()
        await run.claim()
        await run.settle(commands.advance(await run.job(), "Visuals"))
        await expect(page.locator(".track [aria-current=step]")).to_contain_text("Pictures")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator("[data-message]")).to_have_text("Told to stop")
        await until(lambda: _is_told(run))
        await run.settle(commands.cancel(await run.job()))
        await expect(page.locator(".stage > .note")).to_contain_text("It was canceled")
        await expect(page.locator(".stage > .note[data-tone=bad]")).to_have_count(0)
        await expect(page.locator(".track [data-how=off]")).to_contain_text("Pictures")
        await expect(page.locator(".track [data-how=bad]")).to_have_count(0)
        await expect(resume).to_be_visible()
        await check_on_a_phone(page, "compose-canceled")


async def _is_told(made: Composing) -> bool:
    return (await made.job()).cancel_requested_at is not None


async def test_nothing_is_resumed_where_nothing_was_made_or_by_who_may_only_look(
    tmp_path: Path, browser: Browser
) -> None:
    async with composing(tmp_path, browser) as run:
        page = run.page
        await page.get_by_role("button", name="Make the video").click()
        await run.claim()
        await run.settle(commands.dead_letter(await run.job(), JobError("broke", "line 1 is empty")))
        await expect(page.locator(".note[data-tone=bad]")).to_contain_text("Change the script")
        assert await page.get_by_role("button", name="Resume").count() == 0  # it would have come with the note
        await page.get_by_role("button", name="Make the video").click()
        await run.claim()
        await run.reach("Script")
        await run.settle(commands.dead_letter(await run.job(), JobError("broke", "no disk")))
        await expect(page.get_by_role("button", name="Resume")).to_be_visible()
        reader = await run.live.text(scopes=["jobs:read"])
        async with signed_in(browser, run.proxy.url, f"/studio/compose?job={run.job_id}", key=reader) as looking:
            await expect(looking.locator(".note[data-tone=bad]")).to_contain_text("no disk")
            assert await looking.get_by_role("button", name="Resume").count() == 0


async def test_a_server_that_stays_away_is_told_and_its_return_is_noticed(tmp_path: Path, browser: Browser) -> None:
    async with composing(tmp_path, browser) as run:
        page, live_view = run.page, run.page.locator("[data-live]")
        await page.get_by_role("button", name="Make the video").click()
        await run.claim()
        await run.settle(commands.advance(await run.job(), "Voice"))
        await run.settle(commands.progress(await run.job(), 22, "scene 3"))
        await expect(live_view).to_contain_text("22 %")
        await page.clock.install()
        run.proxy.lead_to("http://127.0.0.1:9")
        run.proxy.cut_all()
        await until(lambda: _later(page, ".stage .state.bad"))
        await expect(page.locator(".stage .state.bad")).to_contain_text("The server does not answer")
        await expect(page.get_by_role("button", name="Try again")).to_be_visible()
        assert await page.locator(".banner:not([hidden])").count() == 1
        run.proxy.lead_to(run.live.url)
        await until(lambda: _later(page, ".banner[hidden]"))  # by now everybody was told
        assert await live_view.count() == 1
        await expect(live_view).to_contain_text("22 %")


async def _later(page: Page, selector: str) -> bool:
    """Let two seconds pass in the page; return whether the page shows something then."""
    await page.clock.run_for(2_000)
    return await page.locator(selector).count() > 0


FRAMES = """async () => {
  const { progressView } = await import("/studio/pages/compose/progress.js");
  let asked = 0;
  const before = window.requestAnimationFrame;
  window.requestAnimationFrame = () => (asked += 1);
  const shown = progressView(() => undefined, document.createElement("p"));
  const report = (n) => ({ id: "", type: "step-progress", data: { step: "Voice", phase: "tts", progressPct: n } });
  for (let n = 0; n <= 1000; n += 1) shown.take(report(n / 20));
  window.requestAnimationFrame = before;
  return [asked, shown.state.percent];
}"""


async def test_progress_is_drawn_once_in_a_frame(tmp_path: Path, browser: Browser) -> None:
    async with composing(tmp_path, browser) as run:
        assert await run.page.evaluate(FRAMES) == [1, 50]


async def begin(page: Page, script: str) -> None:
    await page.get_by_label("What is said and shown").fill(script)
    await page.get_by_role("button", name="Make the video").click()


@pytest.mark.timeout(300)
async def test_a_script_becomes_a_video_though_the_connection_breaks(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHEET_MEDIA_ROOT", str(tmp_path / "media"))
    async with (
        media_server(tmp_path, worker=True) as media,
        before(media.live.url) as proxy,
        signed_in(browser, proxy.url, "/studio/compose") as page,
    ):
        await begin(page, SHORT)
        await expect(page.locator(".track [data-how=done]").first).to_be_visible(timeout=PATIENCE_MS)
        proxy.cut_all()
        await expect(page.locator("video.player")).to_be_visible(timeout=PATIENCE_MS)
        await until(lambda: page.evaluate("document.querySelector('video').readyState >= 1"))
        assert 2 < await page.evaluate("document.querySelector('video').duration") < 30
        await picture(page, "compose-done")
        assert proxy.cuts > 0


@pytest.mark.timeout(900)
async def test_a_job_is_cancelled_at_forty_percent_and_resumed(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHEET_MEDIA_ROOT", str(tmp_path / "media"))
    async with (
        media_server(tmp_path, worker=True) as media,
        signed_in(browser, media.live.url, "/studio/compose", dark=True, width=390) as page,
    ):
        await begin(page, SHORT + SCENES)
        now = "Number(document.querySelector('[data-live] [role=progressbar]')?.getAttribute('aria-valuenow') ?? 0)"
        await until(lambda: page.evaluate(f"{now} >= 40"), 120)
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator(".stage > .note")).to_contain_text("It was canceled", timeout=PATIENCE_MS)
        job_id = page.url.partition("job=")[2]
        assert not Folders().exists(job_id)
        await page.get_by_role("button", name="Resume").click()
        await page.wait_for_url(lambda url: "job=" in url and job_id not in url)
        resumed_job = page.url.partition("job=")[2]
        async for _ in media.live.engine.watch(resumed_job):
            pass  # to its end, however busy the machine is
        await expect(page.locator("video.player")).to_be_visible(timeout=PATIENCE_MS)
        (new,) = await media.live.engine.store.get([resumed_job])
        assert new is not None
        assert new.status is Status.SUCCEEDED
        assert "Script" not in json.loads(new.result or "{}")["ran"]
