"""The list of jobs: filters in the address, stable rows, many jobs at once, keys, and escaped text."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from callsheet.engine.ids import new_id
from callsheet.kernel import commands
from callsheet.kernel.job import NewJob
from tests.http.live import Live

from .studio import SCRIPT, check_in_all_looks, end_badly, put, run, signed_in, studio_server


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with studio_server(tmp_path) as live:
        yield live


async def test_filters_stand_in_the_address_and_find_what_they_name(live: Live, browser: Browser) -> None:
    await put(live, "chat", payload='{"title": "The Harbour"}', requester_id="acme", queue="gpu")
    await end_badly(live, await run(live, "ocr"))
    await put(live, SCRIPT, requester_id=SCRIPT, queue=SCRIPT)
    async with signed_in(browser, live.url, "/studio/jobs") as page:
        rows = page.locator("[data-row]")
        await expect(rows).to_have_count(3)
        await expect(rows.first).to_contain_text(SCRIPT)
        await check_in_all_looks(page, "jobs")
        await page.fill("input[name=text]", "harbour")
        await expect(rows).to_have_count(1)
        assert "text=harbour" in page.url
        await page.select_option("select[name=time]", "1h")
        await expect(page).to_have_url(f"{live.url}/studio/jobs?text=harbour&time=1h")
        await page.fill("input[name=queue]", "media")
        await expect(page.locator("main")).to_contain_text("No job fits these filters")
        await page.fill("input[name=queue]", "gpu")
        await page.fill("input[name=requester]", "acme")
        await page.fill("input[name=task]", "chat")
        await expect(page).to_have_url(re.compile("task=chat"))
        await expect(page).to_have_url(re.compile("requester=acme"))
        await page.reload()
        await expect(rows).to_have_count(1)
        await expect(page.locator("input[name=requester]")).to_have_value("acme")
        await page.get_by_role("button", name="Clear").click()
        await expect(rows).to_have_count(3)
        await page.select_option("select[name=status]", "error")
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text("Dead letter")
        await page.fill("input[name=text]", "'\"; -- \\ % 😀 <b>")
        await expect(page.locator("main")).to_contain_text("No job fits these filters")
        assert await page.title() == "Jobs · Callsheet"


async def test_rows_change_where_they_stand_and_new_ones_wait_behind_a_button(live: Live, browser: Browser) -> None:
    job = await run(live, "transcode")
    await put(live, "chat")
    async with signed_in(browser, live.url, "/studio/jobs") as page:
        rows = page.locator("[data-row]")
        await expect(rows).to_have_count(2)
        await live.engine.settle([commands.advance(job, "reading")])
        (job,) = [stored_job for stored_job in await live.engine.store.get([job.job_id]) if stored_job is not None]
        await live.engine.settle([commands.progress(job, 42)])
        await expect(rows.nth(1)).to_contain_text("42 % · reading")
        await put(live, "new one")
        await expect(page.get_by_role("button", name="1 new job")).to_be_visible()
        await expect(rows).to_have_count(2)
        await live.done(job)
        await expect(rows.nth(1)).to_contain_text("Done")
        await page.get_by_role("button", name="1 new job").click()
        await expect(rows).to_have_count(3)
        await expect(rows.first).to_contain_text("new one")
        await expect(page.get_by_role("button", name="1 new job")).to_have_count(0)


async def test_many_are_cancelled_and_retried_with_a_summary(live: Live, browser: Browser) -> None:
    for n in range(3):
        await put(live, f"waits.{n}", queue="never")
    await put(live, "final", contract="euterpe", queue="never")  # has no word for a cancellation
    bad = await run(live, "bad")
    await end_badly(live, bad)
    async with signed_in(browser, live.url, "/studio/jobs") as page:
        rows = page.locator("[data-row]")
        await expect(rows).to_have_count(5)
        await page.get_by_label("Tick all shown").check()
        await expect(page.locator(".bulk")).to_contain_text("5 jobs ticked")
        await page.locator("[data-act=cancel]").click()
        await page.locator("dialog[open]").get_by_role("button", name="Cancel 4").click()
        await expect(page.locator("dialog[open]")).to_contain_text("Canceled 3 of 4 jobs")
        await expect(page.locator("dialog[open]")).to_contain_text("does not allow")
        await page.keyboard.press("Escape")
        await expect(rows.filter(has_text="Canceled")).to_have_count(3)
        await page.get_by_label("Tick bad").check()
        await page.locator("[data-act=retry]").click()
        await page.locator("dialog[open]").get_by_role("button", name="Retry 1").click()
        await expect(page.locator(".toast")).to_contain_text("Retried 1 of 1 job")
        await expect(rows.filter(has_text="bad")).to_contain_text("Queued")
        (back,) = await live.engine.store.get([bad.job_id])
        assert back is not None
        assert back.status == "queued"


async def test_pages_follow_one_another_and_keys_walk_the_rows(live: Live, browser: Browser) -> None:
    await live.engine.enqueue([NewJob(new_id(), f"kind.{n}") for n in range(120)])
    async with signed_in(browser, live.url, "/studio/jobs") as page:
        rows = page.locator("[data-row]")
        await expect(rows).to_have_count(50)
        for count in (100, 120):
            await page.get_by_role("button", name="Older jobs").click()
            await expect(rows).to_have_count(count)
        await expect(page.get_by_role("button", name="Older jobs")).to_have_count(0)
        kinds = await rows.locator("a.open").all_text_contents()
        assert kinds == [f"kind.{n}" for n in reversed(range(120))]
        await page.locator("h1").click()
        for _ in range(3):
            await page.keyboard.press("j")
        await page.keyboard.press("k")
        await expect(rows.nth(1)).to_have_class(re.compile(r"\bcurrent\b"))
        await page.keyboard.press("x")
        await expect(page.locator(".bulk")).to_contain_text("1 job ticked")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page.locator("h1")).to_have_text("kind.117")
        await page.go_back()
        await expect(rows).to_have_count(50)
