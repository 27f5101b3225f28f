"""Quotas and the audit log in a real browser."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser, expect

from tests.security.site_quotas import JOB

from .studio import SCRIPT, check_in_all_looks, signed_in, studio_server


async def test_quotas_are_shown_set_and_reset(tmp_path: Path, browser: Browser) -> None:
    async with studio_server(tmp_path) as live, signed_in(browser, live.url, "/studio/quotas") as page:
        async with await live.key("acme") as acme:
            await acme.post("/v1/jobs", json=JOB)
        await page.reload()
        row = page.locator("[data-row='acme']")
        await expect(row).to_contain_text("1 of 20,000")
        await row.get_by_role("button", name="Change").click()
        await page.locator("dialog").get_by_label("Queued jobs").fill("1")
        await page.locator("dialog").get_by_role("button", name="Set", exact=True).click()
        await expect(row).to_contain_text("1 of 1 *")
        await check_in_all_looks(page, "quotas")
        await row.get_by_role("button", name="Reset").click()
        await page.locator("dialog").get_by_role("button", name="Reset").click()
        await expect(row).to_contain_text("1 of 20,000")


async def test_the_audit_log_is_read_and_filtered(tmp_path: Path, browser: Browser) -> None:
    async with studio_server(tmp_path) as live:
        for n in range(60):
            await live.client.put("/v1/quotas/acme", json={"queued": n})
        await live.client.post("/v1/keys", json={"name": SCRIPT, "requester_id": "other"})
        async with live.bare() as stranger:
            await stranger.get("/v1/jobs")
        async with signed_in(browser, live.url, "/studio/audit") as page:
            rows = page.locator("tbody tr")
            await expect(rows).to_have_count(50)
            await expect(page.get_by_role("table")).to_contain_text("session.signed_in")
            await expect(page.get_by_role("table")).to_contain_text(SCRIPT[:40])
            await check_in_all_looks(page, "audit")
            await page.get_by_role("button", name="Older").click()
            await expect(rows).not_to_have_count(50)
            await page.get_by_label("Action").fill("key.created")
            await page.get_by_label("Action").press("Enter")
            await expect(rows).to_have_count(1)
            await page.wait_for_url("**/audit?action=key.created")
        text = await live.text("acme")
        async with signed_in(browser, live.url, "/studio/audit", key=text) as page:
            await expect(page.get_by_role("table")).to_contain_text("session.signed_in")
            await expect(page.locator("body")).not_to_contain_text("bootstrap")
            await expect(page.get_by_label("Tenant")).to_have_count(0)
