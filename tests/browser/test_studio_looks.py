"""Pages show a job's state once and in its own colour; axes without repeated labels; progress on a phone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from callsheet.kernel import commands
from callsheet.kernel.job import Job
from callsheet.kernel.retry import JobError
from tests.http.live import Live

from .studio import check_on_a_phone, end_badly, put, run, signed_in, studio_server

COLOUR = "getComputedStyle(document.querySelector('.track [data-how=off]')).color"
TOKEN = """(name) => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}"""


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with studio_server(tmp_path) as live:
        yield live


async def composed(live: Live, stage: str) -> Job:
    """A running job of contract 004 in a stage."""
    job = await run(live, "compose", contract="aura")
    await live.engine.settle([commands.advance(job, stage)])
    (stored_job,) = await live.engine.store.get([job.job_id])
    assert stored_job is not None
    return stored_job


async def pills(page: Page) -> list[str]:
    return await page.locator(".head .badge, .head .chip").all_text_contents()


async def test_a_job_says_its_state_once(live: Live, browser: Browser) -> None:
    job = await composed(live, "Voice")
    async with signed_in(browser, live.url, f"/studio/jobs/{job.job_id}") as page:
        await expect(page.locator("main[data-status=running]")).to_be_visible()
        assert await pills(page) == ["Running"]
        await live.done(job)
        await expect(page.locator("main[data-status=succeeded]")).to_be_visible()
        assert await pills(page) == ["Done"]
        failed = await composed(live, "Voice")
        await end_badly(live, failed)
        await page.goto(f"{live.url}/studio/jobs/{failed.job_id}")
        await expect(page.locator("main[data-status=dead_letter]")).to_be_visible()
        assert await pills(page) == ["Dead letter"]


async def test_a_cancelled_stage_is_not_red(live: Live, browser: Browser) -> None:
    job = await composed(live, "Voice")
    await live.engine.settle([commands.cancel(job, "not wanted")])
    async with signed_in(browser, live.url, f"/studio/jobs/{job.job_id}") as page:
        await expect(page.locator("main[data-status=canceled]")).to_be_visible()
        await expect(page.locator(".track [data-how=off]")).to_contain_text("canceled here")
        colours = [await page.evaluate(TOKEN, name) for name in ("--off", "--bad")]
        assert await page.evaluate(COLOUR) == colours[0] != colours[1]
        assert await page.locator(".track").get_by_text("failed here").count() == 0
        await check_on_a_phone(page, "job-canceled")


AXES = """async (mosts) => {
  const { axis } = await import("/studio/charts.js");
  return mosts.flatMap((most) => [true, false].map((whole) => ({ most, whole, marks: axis(most, whole) })));
}"""


async def test_marks_of_an_axis_differ_and_counts_are_whole(live: Live, browser: Browser) -> None:
    mosts = [0, 0.003, 0.1, 0.3, 1, 2, 3, 4, 5, 7, 10, 33, 99, 101, 999, 2_500, 9_999, 12_345, 1_000_000, 2_600_000]
    async with signed_in(browser, live.url) as page:
        for axis in await page.evaluate(AXES, mosts):
            texts = [mark["text"] for mark in axis["marks"]]
            assert len(set(texts)) == len(texts) >= 2, axis
            assert axis["marks"][-1]["at"] >= axis["most"]
            assert axis["marks"][0] == {"at": 0, "text": "0"}
            assert not axis["whole"] or all(mark["at"] % 1 == 0 for mark in axis["marks"]), axis
        await put(live, "waits", queue="gpu")
        await end_badly(live, await run(live, "ocr"))
        await expect(page.locator(".chart")).to_have_count(3)
        marks = [
            await chart.locator("text:not(.name):not(.value)").all_text_contents()
            for chart in await page.locator(".chart").all()
        ]
        assert all(len(set(texts)) == len(texts) for texts in marks), marks
        assert not any("." in text for texts in marks[1:] for text in texts), marks
        assert re.search(r"times in \S", await page.locator("main").inner_text())


async def test_both_ends_of_the_attempts_scale_differ(live: Live, browser: Browser) -> None:
    job = await run(live, "quick")
    await live.done(job)
    async with signed_in(browser, live.url, f"/studio/jobs/{job.job_id}?tab=attempts") as page:
        ends = await page.evaluate("""async () => {
          const { clockRange } = await import("/studio/format.js");
          const at = Date.UTC(2026, 4, 3, 12, 0, 0, 100);
          return [5, 999, 60_000, 86_400_000, 86_400_000 * 40].map((ms) => clockRange(at, at + ms));
        }""")
        assert all(first != last for first, last in ends), ends
        await expect(page.locator(".scale span")).to_have_count(3)
        scale = await page.locator(".scale span").all_text_contents()
        assert len(set(scale)) == 3, scale


async def test_the_list_shows_progress_on_a_phone(live: Live, browser: Browser) -> None:
    job = await run(live, "transcode")
    await live.engine.settle([commands.advance(job, "reading")])
    (job,) = [stored_job for stored_job in await live.engine.store.get([job.job_id]) if stored_job is not None]
    await live.engine.settle([commands.progress(job, 42)])
    await put(live, "waits")
    async with signed_in(browser, live.url, "/studio/jobs", width=390) as page:
        rows = page.locator("[data-row]")
        await expect(rows).to_have_count(2)
        bars = page.get_by_role("progressbar")
        assert await bars.count() == 1  # one for each row with progress; what is hidden has no role
        assert await bars.is_visible()
        await expect(bars).to_have_attribute("aria-valuenow", "42")
        assert "42 % · reading" in await rows.last.inner_text()
        await check_on_a_phone(page, "jobs-progress")
        await page.set_viewport_size({"width": 1280, "height": 900})
        await expect(bars).to_have_count(1)


async def test_a_live_jobs_stages_have_plain_words_and_move_as_they_come(live: Live, browser: Browser) -> None:
    job = await composed(live, "Script")
    async with signed_in(browser, live.url, f"/studio/jobs/{job.job_id}", width=390) as page:
        now = page.locator(".track [aria-current=step]")
        await expect(now).to_contain_text("Script")
        for stage, word in (
            ("Voice", "Voice"),
            ("Visuals", "Pictures"),
            ("Compose", "Put together"),
            ("Rendering", "Render"),
        ):
            await live.engine.settle([commands.advance(job, stage)])  # the page reads it twice at its own beginning
            await expect(now).to_contain_text(word, timeout=20_000)
            (job,) = [stored_job for stored_job in await live.engine.store.get([job.job_id]) if stored_job is not None]
        await live.engine.settle([commands.progress(job, 27, "scene 4 of 12: the harbour at dawn, read aloud")])
        await expect(page.locator(".figure-small")).to_have_text("27 %")
        lines = "(one) => one.offsetHeight / Number.parseFloat(getComputedStyle(one).lineHeight)"
        assert await page.locator(".figure-small").evaluate(lines) < 1.5


async def test_a_failed_job_offers_one_way_first(live: Live, browser: Browser) -> None:
    job = await composed(live, "Script")
    await live.engine.settle([commands.checkpoint(job, "Script", "{}")])
    await end_badly(live, job)
    async with signed_in(browser, live.url, f"/studio/jobs/{job.job_id}") as page:
        await expect(page.get_by_role("button", name="Resume")).to_be_visible()
        assert await page.locator(".head .button.first").all_text_contents() == ["Resume"]
        await expect(page.get_by_role("button", name="Retry")).to_be_visible()


CUT_OFF = "(one) => one.scrollWidth > one.clientWidth"


async def test_dead_letters_can_be_read_on_a_phone(live: Live, browser: Browser) -> None:
    message = "no model 'tesseract-deu' on this worker; install it and retry"
    await live.engine.settle([commands.dead_letter(await run(live, "ocr.page"), JobError("model_missing", message))])
    async with signed_in(browser, live.url, "/studio/dead-letters", width=390) as page:
        row = page.locator("[data-row]")
        await expect(row).to_have_count(1)
        assert await row.locator("a.open").inner_text() == "ocr.page"
        assert not await row.locator("a.open").evaluate(CUT_OFF)
        await check_on_a_phone(page, "dead-letters")


async def test_what_a_key_may_do_stands_apart_and_no_limit_is_said(live: Live, browser: Browser) -> None:
    await live.text("acme", scopes=["jobs:read", "jobs:write"])
    async with signed_in(browser, live.url, "/studio/keys") as page:
        await expect(page.locator("td .chip")).to_have_count(2)
        first, second = [await chip.bounding_box() for chip in await page.locator("td .chip").all()]
        assert first is not None
        assert second is not None
        assert second["x"] - first["x"] - first["width"] >= 4
        await page.goto(f"{live.url}/studio/quotas")
        await expect(page.locator("[data-row='']")).to_contain_text("no limit")
        assert "of any" not in await page.locator("main").inner_text()
