"""Videos, the watch page, Search and Compose: in a real browser, with a real pipeline where one is needed."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, Locator, Page, Response, Route, expect

from callsheet.catalog.records import VideoStatus

from .media import drop, media_server, tiny_film
from .studio import SCRIPT, check_in_all_looks, check_on_a_phone, signed_in

PATIENCE_MS = 90_000  # of a pipeline on a busy machine
PLAYS = "video => video.readyState >= 2 && !video.error"


@pytest.mark.timeout(300)  # a whole pipeline, beside others
async def test_a_video_is_dropped_read_watched_searched_cut_and_deleted(tmp_path: Path, browser: Browser) -> None:
    film = tiny_film(tmp_path)
    async with (
        media_server(tmp_path, worker=True) as media,
        signed_in(browser, media.live.url, "/studio/videos") as page,
    ):
        await expect(page.locator("[data-state=empty]")).to_contain_text("No videos yet")
        await drop(page, film, f"{SCRIPT[:20]}.mp4")
        await expect(page.locator(".film [role=progressbar], .film[data-status=ready]").first).to_be_visible()
        await _upload_what_is_no_video(page, tmp_path)
        card = page.locator(".film[data-status=ready]")
        await expect(card).to_be_visible(timeout=PATIENCE_MS)
        await expect(card.locator("img")).to_have_js_property("complete", True)
        await card.locator("a").click()
        await expect(page.locator("h1")).to_have_text(f"{SCRIPT[:20]}.mp4")
        await _watch(page)
        await check_in_all_looks(page, "watch")
        await _cut(page)
        await _delete(page)
        assert len(await media.ids()) == 1


async def _upload_what_is_no_video(page: Page, folder: Path) -> None:
    wrong = folder / "notes.mp4"
    wrong.write_text("not a video at all\n" * 50)
    await page.get_by_role("button", name="Add videos").click()
    await page.locator("dialog input[type=file]").set_input_files(wrong)
    await page.locator("dialog").get_by_role("button", name="Upload").click()
    failed_film = page.locator(".film[data-status=failed]")
    await expect(failed_film).to_contain_text("notes.mp4", timeout=PATIENCE_MS)
    await expect(failed_film.locator(".film-error")).not_to_be_empty()


async def _watch(page: Page) -> None:
    player = page.locator("video.player")
    await expect(player).to_have_attribute("src", _hls(page))
    rows = page.locator("li.text")
    await expect(rows).to_have_count(3)
    await expect(page.locator(".timeline .tick")).to_have_count(3)
    await rows.filter(has_text="Winter river").get_by_role("button").click()
    await page.wait_for_function("() => document.querySelector('video').currentTime > 1")
    await expect(page.locator("li.text[data-now]").filter(has_text="Winter river")).to_be_visible()
    await expect(page.locator("li.text[data-now]").filter(has_text="Harbor lights")).to_have_count(0)
    await page.evaluate("() => { const v = document.querySelector('video'); v.muted = true; v.currentTime = 0; }")
    await page.evaluate("() => document.querySelector('video').play()")
    await page.wait_for_function(f"() => ({PLAYS})(document.querySelector('video'))")
    await page.wait_for_function("() => document.querySelector('video').currentTime > 0.3")
    await page.get_by_label("Search within this video").fill("HARBOR")
    await expect(rows).to_have_count(1)
    await page.get_by_label("Search within this video").fill("")
    await page.get_by_label("Only texts with").select_option("mention")
    await expect(rows).to_have_count(1)
    await expect(rows.locator(".chip")).to_have_text("@marta_builds")
    await page.get_by_label("Only texts with").select_option("emoji")
    await expect(page.locator(".texts [data-state=empty]")).to_be_visible()
    await page.get_by_label("Only texts with").select_option("")
    for kind in ("VTT", "SRT", "CSV", "JSON"):
        async with page.expect_download() as download:
            await page.get_by_role("link", name=kind).click()
        assert "Winter river" in Path(await (await download.value).path()).read_text()


def _hls(page: Page) -> str:
    return f"/videos/{page.url.rpartition('/')[2].partition('?')[0]}/hls/index.m3u8"


async def _cut(page: Page) -> None:
    await page.get_by_label("From, seconds").fill("2")
    await page.get_by_label("To", exact=True).fill("1")
    await page.get_by_role("button", name="Cut a clip").click()
    await expect(page.locator(".toast[data-tone=bad]")).to_contain_text("The clip was not cut")
    await page.locator("li.text").filter(has_text="Winter river").get_by_role("button").click()
    await page.get_by_label("Padding").fill("0")
    await page.get_by_role("button", name="Cut a clip").click()
    cut = page.locator(".clip-row[data-status=done]")
    await expect(cut).to_be_visible(timeout=PATIENCE_MS)
    async with page.expect_download() as download:
        await cut.get_by_role("link", name="Download").click()
    assert Path(await (await download.value).path()).read_bytes()[4:8] == b"ftyp"


async def _delete(page: Page) -> None:
    where = page.url
    await page.get_by_role("button", name="Delete").click()
    await page.locator("dialog").get_by_role("button", name="Back").click()
    await expect(page.locator("dialog")).to_have_count(0)
    assert page.url == where
    await page.get_by_role("button", name="Delete").click()
    await page.locator("dialog").get_by_role("button", name="Delete it").click()
    await page.wait_for_url("**/studio/videos")
    await expect(page.locator(".film")).to_have_count(1)


async def test_an_upload_that_is_cut_off_goes_on(tmp_path: Path, browser: Browser) -> None:
    film = tiny_film(tmp_path)
    async with media_server(tmp_path) as media, signed_in(browser, media.live.url, "/studio/videos") as page:
        requests: list[str] = []
        seen = asyncio.Event()

        async def refuse(route: Route) -> None:
            requests.append(route.request.method)
            if len(requests) == 1:
                return await route.abort("connectionreset")
            await seen.wait()
            return await route.continue_()

        await page.route("**/objects/**", refuse)
        await drop(page, film)
        await expect(page.locator(".sending [role=progressbar]")).to_be_visible()
        seen.set()
        await expect(page.locator(".film[data-status=queued]")).to_be_visible()
        await expect(page.locator(".sending")).to_have_count(0)
        assert (requests, len(await media.ids())) == (["PUT", "PUT"], 1)


async def test_an_upload_that_was_stopped_goes_on_with_the_same_file(tmp_path: Path, browser: Browser) -> None:
    film = tiny_film(tmp_path)
    async with media_server(tmp_path) as media, signed_in(browser, media.live.url, "/studio/videos") as page:
        await page.route("**/objects/**", lambda _: None)  # the network hangs
        await drop(page, film)
        await expect(page.locator(".film[data-status=uploading]")).to_be_visible()
        (begun,) = await media.ids()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".sending")).to_have_count(0)
        await page.locator(".film a").click()
        await expect(page.locator("[data-state=empty]")).to_contain_text("Drop the same file")
        await page.unroute("**/objects/**")
        await page.get_by_role("link", name="Videos").first.click()
        await drop(page, film)
        await expect(page.locator(".film[data-status=queued]")).to_be_visible()
        assert await media.ids() == [begun]


async def test_the_same_file_is_new_when_its_video_was_deleted(tmp_path: Path, browser: Browser) -> None:
    film = tiny_film(tmp_path)
    async with media_server(tmp_path) as media, signed_in(browser, media.live.url, "/studio/videos") as page:
        await page.route("**/objects/**", lambda _: None)
        await drop(page, film)
        await expect(page.locator(".film[data-status=uploading]")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        (begun,) = await media.ids()
        await media.live.client.delete(f"/videos/{begun}")
        await page.unroute("**/objects/**")
        await drop(page, film)
        await expect(page.locator(".film[data-status=queued]")).to_be_visible()
        (now,) = await media.ids()
        assert now != begun


async def test_the_library_shows_all_states_and_filters_by_link(tmp_path: Path, browser: Browser) -> None:
    async with media_server(tmp_path) as media:
        video_id = await media.ready("One", title=f"Board talk {SCRIPT}")
        await media.ready("Two", title="A" * 120)
        await media.failed(f"no video stream {SCRIPT}", title="Broken")
        await media.waiting(VideoStatus.UPLOADING, title="Half a file")
        await media.waiting(VideoStatus.QUEUED, title="In line")
        async with signed_in(browser, media.live.url, "/studio/videos") as page:
            await expect(page.locator(".film")).to_have_count(5)
            titled = page.locator(f"[data-video='{video_id}'] .film-title")
            await expect(titled).to_have_text(f"Board talk {SCRIPT}")
            await expect(page.locator(".film[data-status=failed]")).to_contain_text(f"no video stream {SCRIPT}")
            await check_in_all_looks(page, "videos")
            await _keeps_the_focus(page, page.locator(f"[data-video='{video_id}'] a"), "/videos?")
            await page.get_by_label("Status").select_option("failed")
            await expect(page.locator(".film")).to_have_count(1)
            await page.get_by_label("Title").fill("board")
            await expect(page.locator("[data-state=empty]")).to_contain_text("No video fits")
            await page.wait_for_url("**/studio/videos?text=board&status=failed")
            await page.reload()
            await expect(page.locator("[data-state=empty]")).to_contain_text("No video fits")
            await page.get_by_label("Status").select_option("")
            await expect(titled).to_be_visible()
            empty = tmp_path / "empty.mp4"
            empty.touch()
            await drop(page, empty)
            await expect(page.locator(".sending [role=alert]")).to_contain_text("The file is empty")
            assert len(await media.ids()) == 5


async def _keeps_the_focus(page: Page, held: Locator, path: str) -> None:
    """An unchanged element is not redrawn and keeps the focus."""
    await held.focus()
    for _ in range(2):
        async with page.expect_response(lambda answer: path in answer.url):
            pass
    await expect(held).to_be_focused()


async def test_who_may_only_look_sees_videos_without_buttons(tmp_path: Path, browser: Browser) -> None:
    async with media_server(tmp_path) as media:
        key = await media.live.text("ann", scopes=["jobs:read"])
        video_id = await media.ready("One", title="Hers", owner_id="ann")
        async with signed_in(browser, media.live.url, "/studio/videos", key=key) as page:
            await expect(page.locator(".film")).to_have_count(1)
            await expect(page.locator(".dropzone")).to_be_hidden()
            await expect(page.get_by_role("button", name="Add videos")).to_have_count(0)
            await page.goto(f"{media.live.url}/studio/videos/{video_id}")
            await expect(page.locator("h1")).to_have_text("Hers")
            await expect(page.get_by_role("button", name="Delete")).to_have_count(0)
            await page.goto(f"{media.live.url}/studio/compose")
            await expect(page.get_by_role("button", name="Make the video")).to_be_disabled()


async def test_search_marks_what_it_found_and_leads_there(tmp_path: Path, browser: Browser) -> None:
    async with media_server(tmp_path) as media:
        first = await media.ready("Quarterly results", "@marta_builds opens", "Budget 🎬 plan", title=f"Board {SCRIPT}")
        await media.ready(*(f"Budget line {n} {SCRIPT}" for n in range(25)), title="Long")
        async with signed_in(browser, media.live.url, "/studio/search") as page:
            hits = page.locator("[data-hit]")
            await expect(page.locator("[data-state=empty]")).to_contain_text("Search what is on screen")
            await page.get_by_label("Words on screen").fill("quartrly")  # a letter is missing
            await expect(hits).to_have_count(1)
            await expect(hits.locator("mark")).to_have_text("Quarterly")
            await expect(hits).to_contain_text(SCRIPT)
            await expect(hits.locator(".box")).to_be_visible()
            assert await hits.locator("img").evaluate("img => img.naturalWidth") == 640
            await page.get_by_label("Match").select_option("exact")
            await expect(page.locator("[data-state=empty]")).to_contain_text("Nothing found")
            await page.wait_for_url("**/studio/search?q=quartrly&mode=exact")
            await page.get_by_label("Match").select_option("fuzzy")
            await _entities_and_pages(page)
            await _odd_strings(page)
            await page.goto(f"{media.live.url}/studio/search?q=budget+plan")
            await expect(hits.first.locator("mark").first).to_have_text("Budget")
            await check_in_all_looks(page, "search")
            await hits.first.locator("a.open").click()
            await page.wait_for_url(f"**/studio/videos/{first}?t=2000")
            await expect(page.locator("h1")).to_have_text(f"Board {SCRIPT}")
            assert await page.title() != "broken"


async def _entities_and_pages(page: Page) -> None:
    hits, words = page.locator("[data-hit]"), page.get_by_label("Words on screen")
    await words.fill("")
    await page.get_by_label("Only with").select_option("mention")
    await expect(hits).to_have_count(1)
    await page.get_by_label("Its value").fill("@nobody")
    await expect(page.locator("[data-state=empty]")).to_contain_text("Nothing found")
    await page.get_by_label("Only with").select_option("")
    await words.fill("budget")
    await expect(hits).to_have_count(20)
    await expect(page.locator("[role=status]").filter(has_text="26 found").first).to_be_visible()
    await page.get_by_role("button", name="More", exact=True).click()
    await expect(hits).to_have_count(26)
    await expect(page.get_by_role("button", name="More", exact=True)).to_be_hidden()
    await words.fill("budget qua")
    await expect(page.locator("#suggestions option[value='budget quarterly']")).to_be_attached()


async def _odd_strings(page: Page) -> None:
    words = page.get_by_label("Words on screen")
    for text in ('"budget plan', "budget AND (plan OR *) NOT ^x:y", "-budget", "' OR 1=1; --", "%_\\", SCRIPT):
        async with page.expect_response(partial(_asks, text)) as response_info:
            await words.fill(text)
        assert (await response_info.value).status == 200, text
    await words.fill("🎬")
    await expect(page.locator("[data-hit], [data-state=empty]").first).to_be_visible()
    await words.evaluate("input => { input.value = 'wort '.repeat(2000); input.form.requestSubmit(); }")
    await expect(page.locator(".hits [data-state]")).to_be_visible()


def _asks(text: str, answer: Response) -> bool:
    request = httpx2.URL(answer.url)
    return request.path == "/search" and request.params["q"] == text


SHORT = f"""---
size: 320x180
---
# Sea {SCRIPT}

## Waves

Wind.
"""
LONG = SHORT + "".join(f"\n## Part {n}\n\nOne more sentence about the sea, number {n}.\n" for n in range(120))


@pytest.mark.timeout(300)  # a whole pipeline, beside others
async def test_a_script_becomes_a_video_that_can_be_searched(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHEET_MEDIA_ROOT", str(tmp_path / "media"))
    async with (
        media_server(tmp_path, worker=True) as media,
        signed_in(browser, media.live.url, "/studio/compose") as page,
    ):
        script, make = page.get_by_label("What is said and shown"), page.get_by_role("button", name="Make the video")
        await expect(page.locator("[data-state=empty]")).to_contain_text("Nothing yet")
        await script.fill("## Alone\n\n## Waves\nWind.")
        await make.click()
        bad = page.locator(".note[data-tone=bad]")
        await expect(bad).to_contain_text("line 1: the scene 'Alone' is empty", timeout=PATIENCE_MS)
        await script.fill(LONG)
        await make.click()
        await expect(page.locator(".track [aria-current=step]")).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.locator("[role=progressbar]")).to_be_visible()
        await page.get_by_role("button", name="Cancel").click(timeout=PATIENCE_MS)
        await expect(page.locator(".stage > .note")).to_contain_text("It was canceled", timeout=PATIENCE_MS)
        await check_on_a_phone(page, "compose")
        canceled = page.url
        await script.fill(SHORT)
        await make.click()
        await page.wait_for_url(lambda url: "job=" in url and url != canceled)
        await page.reload()  # the script and the job are still there
        await expect(script).to_have_value(SHORT)
        player = page.locator("video.player")
        await expect(player).to_be_visible(timeout=PATIENCE_MS)
        await page.wait_for_function(f"() => ({PLAYS})(document.querySelector('video'))")
        await check_in_all_looks(page, "composed")
        await page.get_by_role("button", name="Make it searchable").click()
        await page.wait_for_url("**/studio/videos/*")
        await expect(page.locator("h1")).to_have_text(f"Sea {SCRIPT}")
        assert len(await media.ids()) == 1
