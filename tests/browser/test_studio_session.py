"""Signing in and out, roles, a revoked key, an unreachable server: the studio around its pages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from callsheet.http.keys import ApiKeys
from tests.client.proxy import before
from tests.http.live import ADMIN, Live

from .conftest import opened
from .studio import SCRIPT, check_in_all_looks, put, sign_in, signed_in, studio_server


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with studio_server(tmp_path) as live:
        yield live


async def test_a_key_signs_in_to_the_page_that_was_asked_for_and_out_again(live: Live, browser: Browser) -> None:
    async with opened(browser) as page:
        await page.goto(f"{live.url}/studio/jobs?status=error")
        await check_in_all_looks(page, "sign-in")
        await page.fill("input[name=key]", "wrong")
        await page.click("button[type=submit]")
        await expect(page.locator("#fault")).to_contain_text("not known")
        await page.fill("input[name=key]", ADMIN)
        await page.keyboard.press("Enter")
        await expect(page.locator("h1")).to_have_text("Jobs")
        assert page.url.endswith("/studio/jobs?status=error")
        kept = await page.evaluate("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])")
        assert json.loads(kept) == ["", {}, {}]
        await page.reload()
        await expect(page.locator("h1")).to_have_text("Jobs")
        await page.set_viewport_size({"width": 1280, "height": 900})
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.locator("input[name=key]")).to_be_focused()
        await page.reload()
        await expect(page.locator("input[name=key]")).to_be_visible()


async def test_a_key_that_is_revoked_while_the_page_is_open_ends_the_session(live: Live, browser: Browser) -> None:
    keys = ApiKeys(live.engine.store)
    text, key = await keys.create("soon gone", requester_id="acme")
    await put(live, "mine", requester_id="acme")
    await put(live, "others", requester_id="north")
    async with signed_in(browser, live.url, "/studio/jobs", key=text) as page:
        await expect(page.locator("[data-row]")).to_have_count(1)
        await keys.revoke(key.key_id)
        await expect(page.locator(".note")).to_contain_text("its key was revoked")
        await expect(page.locator("[data-row]")).to_have_count(0)
        await page.fill("input[name=key]", ADMIN)
        await page.click("button[type=submit]")
        await expect(page.locator("[data-row]")).to_have_count(2)  # where it was


async def test_a_role_sees_what_it_may_do(live: Live, browser: Browser) -> None:
    job_id = await put(live, requester_id="acme")
    keys = ApiKeys(live.engine.store)
    viewer, _ = await keys.create(f"a viewer {SCRIPT}", requester_id="acme", scopes=["jobs:read"])
    operator, _ = await keys.create("an operator", requester_id="acme")
    for key, role, buttons in ((viewer, "viewer", 0), (operator, "operator", 1)):
        async with signed_in(browser, live.url, f"/studio/jobs/{job_id}", key=key) as page:
            await expect(page.locator("main[data-status=queued]")).to_be_visible()
            await expect(page.locator(".who")).to_contain_text(role)
            await expect(page.locator("[data-act=cancel]")).to_have_count(buttons)
            await page.goto(f"{live.url}/studio/jobs")
            await expect(page.locator("[data-row]")).to_have_count(1)
            await expect(page.locator("td.tick input")).to_have_count(buttons)
            assert await page.title() == "Jobs · Callsheet"


async def test_a_server_that_goes_away_is_told_of_and_found_again(live: Live, browser: Browser) -> None:
    async with before(live.url) as proxy, signed_in(browser, proxy.url, "/studio/jobs") as page:
        await expect(page.locator("main[data-shown='0']")).to_be_visible()
        proxy.lead_to("http://127.0.0.1:1")
        proxy.cut_all()
        await expect(page.locator(".banner")).to_be_visible()
        await expect(page.locator(".banner")).to_contain_text("The server does not answer; trying again")
        await put(live, "came.meanwhile")
        proxy.lead_to(live.url)
        await expect(page.locator(".banner")).to_be_hidden()
        await expect(page.locator("[data-row]")).to_have_count(1)


async def test_the_shell_can_be_used_by_keys_alone(live: Live, browser: Browser) -> None:
    async with signed_in(browser, live.url) as page:
        await expect(page.locator("main[data-at]")).to_be_visible()
        await page.keyboard.press("g")
        await page.keyboard.press("j")
        await expect(page.locator("h1")).to_have_text("Jobs")
        await page.keyboard.press("/")
        await expect(page.locator("main [data-search]")).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.press("?")
        await expect(page.locator("dialog[open]")).to_contain_text("Next and previous row")
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog[open]")).to_have_count(0)
        await page.goto(f"{live.url}/studio/no/such/page")
        await expect(page.locator("main")).to_contain_text("no such page")
        await page.get_by_role("button", name="Light or dark").click()
        await expect(page.locator("html[data-theme=dark]")).to_be_attached()
        await page.reload()
        await expect(page.locator("html[data-theme=dark]")).to_be_attached()


async def test_on_a_phone_all_pages_are_behind_more(live: Live, browser: Browser) -> None:
    async with opened(browser, width=390) as page:
        await sign_in(page, f"{live.url}/studio")
        await page.get_by_role("button", name="More").click()
        await page.locator("dialog[open]").get_by_role("link", name="Jobs").click()
        await expect(page.locator("h1")).to_have_text("Jobs")
        await expect(page.locator("dialog[open]")).to_have_count(0)
