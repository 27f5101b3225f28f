"""One job's page: stages, attempts, events as they come, what went wrong and what to do; and 10,000 events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from callsheet.kernel import commands
from callsheet.kernel.job import Job
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from tests.http.live import Live

from .studio import SCRIPT, check_in_all_looks, end_badly, note, put, run, signed_in, studio_server


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with studio_server(tmp_path) as live:
        yield live


async def fresh(live: Live, job: Job) -> Job:
    (stored_job,) = await live.engine.store.get([job.job_id])
    assert stored_job is not None
    return stored_job


async def test_a_job_is_followed_through_its_stages_to_its_end(live: Live, browser: Browser) -> None:
    job = await run(live, "transcode", queue="eu", contract="euterpe", payload=json.dumps({"source": SCRIPT}))
    await live.engine.settle([commands.advance(job, "fetching")])
    await live.engine.settle([commands.retry(await fresh(live, job), JobError("timeout", SCRIPT, True), delay_ms=0)])
    (job,) = await live.engine.claim(ClaimRequest("gpu-b", ("eu",), lease_ms=600_000))
    async with signed_in(browser, live.url, f"/studio/jobs/{job.job_id}") as page:
        await expect(page.locator("main[data-status=running]")).to_be_visible()
        await expect(page.locator(".errorcard")).to_contain_text(SCRIPT)
        await live.engine.settle([commands.advance(job, "fetching")])
        await live.engine.settle([commands.advance(await fresh(live, job), "processing")])
        await live.engine.settle([commands.progress(await fresh(live, job), 61, f"pass 1 {SCRIPT}")])
        await expect(page.locator(".track [aria-current=step]")).to_contain_text("processing")
        await expect(page.locator(".progresshead")).to_contain_text("61 %")
        await expect(page.locator(".progresshead")).to_contain_text(SCRIPT)
        await expect(page.locator(".window")).to_contain_text("retrying")
        await check_in_all_looks(page, "job")
        await page.get_by_role("tab", name="Attempts").click()
        await expect(page.locator(".attempts > li")).to_have_count(2)
        await expect(page.locator(".attempts > li").first).to_contain_text("Retried")
        await expect(page.locator(".attempts > li").last).to_contain_text("gpu-b")
        await check_in_all_looks(page, "attempts")
        await page.keyboard.press("ArrowRight")
        await expect(page.get_by_role("tabpanel")).to_contain_text("<script>document.title='broken'</script>")
        await live.engine.settle([commands.advance(await fresh(live, job), "uploading")])
        await live.done(await fresh(live, job), json.dumps({"video": SCRIPT}))
        await expect(page.locator("main[data-status=succeeded]")).to_be_visible()
        await expect(page.locator(".track [data-how=done]")).to_have_count(3)
        await page.get_by_role("tab", name="Result").click()
        await expect(page.get_by_role("tabpanel")).to_contain_text("<script>document.title='broken'</script>")
        for tab, text in (("Log", "No log"), ("Files", "No files")):
            await page.get_by_role("tab", name=tab).click()
            await expect(page.get_by_role("tabpanel")).to_contain_text(text)
        assert (await page.title()).endswith(" · Callsheet")


async def test_a_dead_letter_says_what_to_do_and_is_brought_back(live: Live, browser: Browser) -> None:
    job = await run(live, "ocr")
    await end_badly(live, job, f"no model {SCRIPT}")
    async with signed_in(browser, live.url, f"/studio/jobs/{job.job_id}") as page:
        await expect(page.locator(".errorcard")).to_contain_text("What to do next")
        await expect(page.locator(".errorcard")).to_contain_text(f"no model {SCRIPT}")
        await check_in_all_looks(page, "dead-letter")
        await page.locator("[data-act=retry]").click()
        await expect(page.locator(".toast")).to_contain_text("back in line")
        await expect(page.locator("main[data-status=queued]")).to_be_visible()
        await page.locator("[data-act=cancel]").click()
        await page.locator("dialog[open]").get_by_role("button", name="Cancel it").click()
        await expect(page.locator("main[data-status=canceled]")).to_be_visible()
        await expect(page.locator("[data-act=cancel]")).to_have_count(0)


async def test_a_job_that_is_not_there_is_told(live: Live, browser: Browser) -> None:
    async with signed_in(browser, live.url, "/studio/jobs/0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1") as page:
        await expect(page.locator(".state.bad")).to_contain_text("Not found")
        await put(live, "other")


async def test_ten_thousand_events_are_a_window_on_a_list(live: Live, browser: Browser) -> None:
    job = await run(live, "chatty")
    for begin in range(0, 10_000, 1_000):
        await note(live, job, *(f"line {n} {SCRIPT}" for n in range(begin, begin + 1_000)))
    async with signed_in(browser, live.url, f"/studio/jobs/{job.job_id}") as page:
        window = page.locator(".window")
        await expect(page.locator(".window[data-count='10002']")).to_be_visible(timeout=60_000)
        await expect(window).to_contain_text("line 9999")
        assert await page.locator(".window-row").count() < 60
        await window.evaluate("box => { box.scrollTop = 150_000 }")
        await expect(window).to_contain_text("line 5000")
        await note(live, job, "the last", kind="warning")
        await expect(page.locator(".window[data-count='10003']")).to_be_visible()
        await expect(window).to_contain_text("line 5000")  # it does not jump while one reads
        await page.get_by_label("Type of event").select_option("warning")
        await expect(page.locator(".window-row")).to_have_count(1)
        assert (await page.title()).startswith("chatty")
