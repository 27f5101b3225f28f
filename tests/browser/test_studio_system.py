"""Dead letters, Webhooks, Workers and Keys in a real browser; and what the studio's policy lets a page load."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect

from callsheet.kernel.job import Status
from callsheet.objects import Credentials, HeldCredentials
from callsheet.objects.s3 import S3Objects
from callsheet.objects.s3_wire import Bucket
from callsheet.outbox.breaker import Destination, Health
from tests.http.dead import dead
from tests.http.live import Live
from tests.outbox import kit
from tests.outbox.sink import Sink, answer

from .studio import SCRIPT, check_in_all_looks, check_on_a_phone, end_badly, run, signed_in, studio_server

KEPT = {"housekeeping": True}  # operations on many dead letters are worked off by it


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with studio_server(tmp_path) as live:
        live.state.endpoints = kit.endpoints(live.engine.store)
        yield live


async def press(page: Page, *names: str) -> None:
    """Press buttons of the page, then of the dialog that each opens."""
    await page.locator(".main").get_by_role("button", name=names[0]).first.click()
    for name in names[1:]:
        await page.locator("dialog[open]").get_by_role("button", name=name, exact=True).click()


async def close(page: Page) -> None:
    await page.locator("dialog[open]").get_by_role("button", name="Close").click()
    await expect(page.locator("dialog")).to_have_count(0)


async def statuses(live: Live, job_ids: list[str]) -> set[Status | None]:
    return {job and job.status for job in await live.engine.store.get(job_ids)}


async def test_a_dead_letter_is_looked_into_replayed_and_deleted(tmp_path: Path, browser: Browser) -> None:
    async with studio_server(tmp_path, **KEPT) as live, signed_in(browser, live.url, "/studio/dead-letters") as page:
        await expect(page.locator("[data-state=empty]")).to_contain_text("No dead letters")
        await check_on_a_phone(page, "dead-letters-none")
        ids = []
        for n in range(5):
            job = await run(live, "resize" if n else f"kind-{n}", payload=f'{{"n": {n}}}')
            await end_badly(live, job, f"it broke {SCRIPT}")
            ids.append(job.job_id)
        await page.reload()
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(5)
        await expect(rows.first).to_contain_text(SCRIPT)
        await check_in_all_looks(page, "dead-letters")
        await page.locator(f"[data-row='{ids[4]}']").get_by_role("button", name="Inspect").click()
        await expect(page.locator("dialog")).to_contain_text(f"it broke {SCRIPT}")
        await expect(page.locator("dialog pre")).to_contain_text('"n": 4')
        await check_on_a_phone(page, "dead-letter-inside")
        await page.locator("dialog").get_by_role("button", name="Replay").click()
        await expect(rows).to_have_count(4)
        assert await statuses(live, [ids[4]]) == {Status.QUEUED}
        await page.locator(f"[data-row='{ids[3]}']").get_by_role("button", name="Inspect").click()
        await page.locator("dialog").get_by_role("button", name="Delete").click()
        await expect(rows).to_have_count(3)
        assert await statuses(live, [ids[3]]) == {None}
        await page.get_by_label("Kind").fill("resize")
        await expect(rows).to_have_count(2)
        await page.wait_for_url("**/dead-letters?task=resize")
        await press(page, "Replay all", "Back")
        await press(page, "Replay all", "Replay them")
        await expect(page.locator("[data-state=empty]")).to_be_visible()
        assert await statuses(live, ids[1:3]) == {Status.QUEUED}
        await page.get_by_label("Kind").fill("")
        await expect(rows).to_have_count(1)
        await press(page, "Delete all", "Delete them")
        await expect(page.locator("[data-state=empty]")).to_be_visible()
        assert await statuses(live, ids[:1]) == {None}


async def test_who_may_only_look_changes_nothing_and_sees_no_keys(live: Live, browser: Browser) -> None:
    await end_badly(live, await run(live, requester_id="acme"))
    key = await live.text("acme", scopes=["jobs:read"])
    async with signed_in(browser, live.url, "/studio/dead-letters", key=key) as page:
        await expect(page.locator("tbody tr")).to_have_count(1)
        await expect(page.get_by_role("button", name="Replay")).to_have_count(0)
        await page.get_by_role("button", name="Look").click()
        await expect(page.locator("dialog")).to_contain_text("it broke")
        await expect(page.locator("dialog").get_by_role("button", name="Delete")).to_have_count(0)
        await close(page)
        for name in ("Keys", "Workers"):
            await expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
        await page.goto(f"{live.url}/studio/webhooks")
        await expect(page.locator("[data-state=empty]").first).to_contain_text("No endpoints yet")
        await expect(page.get_by_role("button", name="New endpoint")).to_have_count(0)
        await page.goto(f"{live.url}/studio/keys")
        await expect(page.locator("[data-state]")).to_contain_text("no such page", ignore_case=True)


async def test_an_endpoint_lives_from_its_secret_to_its_end(live: Live, browser: Browser) -> None:
    async with signed_in(browser, live.url, "/studio/webhooks") as page:
        await expect(page.locator("[data-state=empty]").first).to_contain_text("No endpoints yet")
        await press(page, "New endpoint")
        await page.get_by_label("URL").fill("https://10.0.0.1/inside")
        await press_in_dialog(page, "Make it")
        await expect(page.locator("dialog [role=alert]")).not_to_be_empty()
        await page.get_by_label("URL").fill("https://hooks.example.org/callsheet")
        await page.get_by_label("Description").fill(SCRIPT)
        await press_in_dialog(page, "Make it")
        first = await page.locator("dialog .secret").inner_text()
        assert first.startswith("whsec_")
        await close(page)
        one = page.locator(".endpoint")
        await expect(one).to_contain_text(SCRIPT)
        assert first not in await page.content()
        await press(page, "New secret", "Make it")
        second = await page.locator("dialog .secret").inner_text()
        assert second not in ("", first)
        await close(page)
        await press(page, "Disable")
        await expect(one.locator(".badge")).to_have_text("Disabled")
        await press(page, "Enable")
        await expect(one.locator(".badge")).to_have_text("Enabled")
        held = one.get_by_role("button", name="New secret")
        await held.focus()
        for _ in range(2):  # it looks again, and draws nothing anew
            async with page.expect_response(lambda report: "/destinations" in report.url):
                pass
        await expect(held).to_be_focused()
        await press(page, "Delete", "Delete it")
        await expect(one).to_have_count(0)


async def press_in_dialog(page: Page, name: str) -> None:
    await page.locator("dialog[open]").get_by_role("button", name=name, exact=True).click()


async def test_deliveries_are_looked_into_and_sent_again(live: Live, browser: Browser) -> None:
    endpoints = live.state.endpoints
    assert endpoints is not None
    async with Sink() as sink:
        sink.turns = [answer("410 Gone", f"go away {SCRIPT}".encode()), answer(), answer()]
        await endpoints.create("", sink.url, SCRIPT)
        await endpoints.new_own_secret("")
        async with kit.delivering(live.engine, endpoints):
            (dead,) = await kit.add_events(live.engine, sink.url, requester_id="")
            await kit.until(live.engine, [dead], "dead_letter")
            async with signed_in(browser, live.url, "/studio/webhooks") as page:
                row = page.locator(f"[data-row='{dead}']")
                await expect(row.locator(".badge")).to_have_attribute("data-status", "dead_letter")
                await check_in_all_looks(page, "webhooks")
                await row.locator(".open").click()
                inside = page.locator("dialog")
                await expect(inside).to_contain_text(f"go away {SCRIPT}")
                await expect(inside).to_contain_text("attempt 1: http_410")
                await expect(inside.locator("pre")).to_contain_text(dead)
                await check_on_a_phone(page, "delivery")
                await press_in_dialog(page, "Send it again")
                await kit.until(live.engine, [dead], "delivered")
                await expect(row.locator(".badge")).to_have_attribute("data-status", "delivered")
                await page.get_by_role("combobox", name="Deliveries").select_option("dead_letter")
                await page.wait_for_url("**/webhooks?status=dead_letter")
                await expect(page.locator("[data-state=empty]")).to_contain_text("None of these")
                async with page.expect_response("**/v1/webhooks/deliveries/replay") as response_info:
                    await press(page, "Send all that were given up", "Send them")
                assert await (await response_info.value).json() == {"replayed": 0, "more": False}


async def test_a_destination_that_is_left_alone_is_told(live: Live, browser: Browser) -> None:
    health, now = Health(live.engine.store), await live.engine.store.now()
    for _ in range(10):
        await health.record(Destination("", "https://down.example.org"), ok=False, now=now)
    async with signed_in(browser, live.url, "/studio/webhooks") as page:
        note = page.locator(".note[data-tone=bad]")
        await expect(note).to_contain_text("https://down.example.org")
        await expect(note).to_contain_text("10 failures in a row. It is left alone until")
        await check_on_a_phone(page, "left-alone")


async def test_no_replay_is_offered_where_none_is_possible(live: Live, browser: Browser) -> None:
    keyed_id = await dead(live, "500", contract="euterpe", concurrency_key="k", concurrency_limit=5)
    other = await dead(live, "500", contract="euterpe")
    async with signed_in(browser, live.url, "/studio/dead-letters") as page:
        for job_id, count in ((keyed_id, 0), (other, 1)):
            await page.locator(f"[data-row='{job_id}']").get_by_role("button", name="Inspect").click()
            await expect(page.locator("dialog pre")).to_be_visible()
            await expect(page.locator("dialog").get_by_role("button", name="Replay")).to_have_count(count)
            await expect(page.locator("dialog").get_by_text("It cannot be replayed")).to_have_count(1 - count)
            await close(page)


async def test_a_worker_is_invited_drained_and_revoked(live: Live, browser: Browser) -> None:
    async with signed_in(browser, live.url, "/studio/workers") as page:
        await expect(page.locator("[data-state=empty]")).to_contain_text("No remote workers")
        await press(page, "Invite a worker")
        await page.get_by_label("Queues it may work for").fill("media, gpu")
        await press_in_dialog(page, "Invite")
        command = await page.locator("dialog pre").inner_text()
        token = command.removeprefix("CALLSHEET_TOKEN=").partition(" ")[0]
        assert command.endswith(f" callsheet worker --url {live.url}")
        await check_on_a_phone(page, "invitation")
        await close(page)
        await press(page, "Invite a worker")
        await press_in_dialog(page, "Invite")
        withdrawn = (await page.locator("dialog pre").inner_text()).removeprefix("CALLSHEET_TOKEN=").partition(" ")[0]
        await press_in_dialog(page, "Take it back")
        await expect(page.locator("dialog")).to_have_count(0)
        late = {"enrolment_token": withdrawn, "worker_name": "gpu-0"}
        assert (await live.bare().post("/internal/worker/enroll", json=late)).status_code == 401
        body = {"enrolment_token": token, "worker_name": "gpu-1", "labels": ["gpu"]}
        worker = (await live.bare().post("/internal/worker/enroll", json=body)).json()
        await check_open_invitations(page, live)
        row = page.locator(f"[data-row='{worker['worker_id']}']")
        await expect(row).to_contain_text("media, gpu")
        await check_in_all_looks(page, "workers")
        await row.get_by_role("button", name="Drain").click()
        await expect(row.get_by_role("button", name="Take jobs again")).to_be_visible()
        await row.get_by_role("button", name="Take jobs again").click()
        await expect(row.get_by_role("button", name="Drain")).to_be_visible()
        await row.get_by_role("button", name="Revoke").click()
        await press_in_dialog(page, "Revoke it")
        await expect(row.locator(".badge")).to_have_text("Revoked")
        await expect(row.get_by_role("button")).to_have_count(0)


async def check_open_invitations(page: Page, live: Live) -> None:
    """Those that a worker can still use stand below the workers, and can be taken back there."""
    card = page.get_by_role("region", name="Invitations")
    await expect(card).to_be_hidden()
    body = {"queues": ["media"], "tenants": ["acme"], "uses": 3}
    reply = (await live.client.post("/v1/workers/enrolments", json=body)).json()
    row = card.locator(f"[data-row='{reply['enrolment_id']}']")
    await expect(row).to_contain_text("acme")
    await check_in_all_looks(page, "invitations")
    await row.get_by_role("button", name="Take it back").click()
    await expect(card).to_be_hidden()


async def test_a_key_is_shown_once_and_revoked(live: Live, browser: Browser) -> None:
    async with signed_in(browser, live.url, "/studio/keys") as page:
        await expect(page.locator("[data-state=empty]")).to_contain_text("No keys are kept")
        await press(page, "New key")
        await check_on_a_phone(page, "new-key")
        await page.get_by_label("Name").fill(SCRIPT)
        await page.get_by_label("Role").select_option("viewer")
        await page.get_by_label("Requester").fill("acme")
        await page.get_by_label("Teams").fill("red, blue")
        await press_in_dialog(page, "Make it")
        text = await page.locator("dialog .secret").inner_text()
        await close(page)
        row = page.locator("tbody tr")
        await expect(row).to_contain_text(SCRIPT)
        await expect(row).to_contain_text("red, blue")
        assert text not in await page.content()
        await check_in_all_looks(page, "keys")
        async with httpx2.AsyncClient(base_url=live.url, headers={"Authorization": f"Bearer {text}"}) as client:
            assert (await client.get("/v1/jobs")).status_code == 200
            assert (await client.post("/v1/jobs", json={"task": "chat", "payload": {}})).status_code == 403
        await row.get_by_role("button", name="Revoke").click()
        await press_in_dialog(page, "Revoke it")
        await expect(row.locator(".badge")).to_have_text("Revoked")
        await expect(row.get_by_role("button")).to_have_count(0)


async def test_the_policy_names_the_storage_that_uploads_go_to(live: Live) -> None:
    async def policy() -> dict[str, str]:
        told = (await live.client.get("/studio")).headers["content-security-policy"]
        return dict(part.strip().split(" ", 1) for part in told.split(";"))

    assert (await policy())["connect-src"] == "'self'"
    bucket = Bucket("films", "https://user:word@s3.example.org:9000/below", "us-east-1")
    live.state.objects = S3Objects(bucket, HeldCredentials(Credentials("key", "a-secret")))
    result = await policy()
    assert result["connect-src"] == "'self' https://s3.example.org:9000"
    assert result["media-src"] == "'self' https://s3.example.org:9000 blob:"
    assert result["script-src"] == "'self'"
    signed_url = await live.state.objects.sign_put("a", 60)
    assert signed_url.url.startswith("https://")
    live.state.objects = S3Objects(Bucket("films", "", "eu-west-1"), HeldCredentials(Credentials("key", "a-secret")))
    assert (await policy())["connect-src"] == "'self' https://films.s3.eu-west-1.amazonaws.com"
    assert (await live.state.objects.sign_put("a", 60)).url.startswith("https://films.s3.eu-west-1.amazonaws.com/")
