"""The studio's files: one page for all its paths, nothing outside its folder, a policy that lets no script in."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

import callsheet.studio
from callsheet.studio import mount
from tests import stores
from tests.http.live import Live, problem, serving
from tests.http.raw import exchange, head, parts_of

STATIC = Path(callsheet.studio.__file__).parent / "static"
FILES = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    async with serving(stores.fresh_url("sqlite"), routers=[mount.router]) as live:
        yield live


@pytest.fixture
async def client(live: Live) -> AsyncIterator[httpx2.AsyncClient]:
    async with live.bare() as client:
        yield client


async def test_every_path_of_the_app_is_its_one_page_with_a_strict_policy(client: httpx2.AsyncClient) -> None:
    pages = [await client.get(path) for path in ("/studio", "/studio/", "/studio/jobs", "/studio/jobs/x/y")]
    assert {page.text for page in pages} == {(STATIC / "index.html").read_text("utf-8")}
    for page in pages:
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["x-content-type-options"].startswith("nosniff")


async def test_the_bare_address_leads_to_the_studio(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/studio")


async def test_the_old_page_of_live_jobs_leads_to_compose(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/studio/live.html")
    assert (answer.status_code, answer.headers["location"]) == (308, "/studio/compose")


async def test_files_do_not_drown_the_log_but_errors_are_told(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "callsheet.access")
    await client.get("/studio/app.js")
    await client.get("/studio/nothing.js")
    (line,) = [line.getMessage() for line in caplog.records if line.name == "callsheet.access"]
    assert line.startswith("GET /studio/{path:path} 404 in ")


async def test_every_file_is_served_as_what_it_is_and_not_sent_twice(client: httpx2.AsyncClient) -> None:
    for name in FILES:
        answer = await client.get(f"/studio/{name}")
        assert answer.content == (STATIC / name).read_bytes()
        assert answer.headers["content-type"].partition(";")[0] == mount.TYPES[Path(name).suffix]
        again = await client.get(f"/studio/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_there_are_no_other_files_to_be_had(live: Live, client: httpx2.AsyncClient) -> None:
    for path in (
        "nothing.js",
        "pages/nothing.js",
        "mount.py",
        "%2e%2e/mount.py",
        "..%2fmount.py",
        "static/app.js",
        "a.b",
    ):
        problem(await client.get(f"/studio/{path}"), 404, "not_found")
    status_code, _, _ = parts_of(await exchange(live, head(live, "GET /studio/../mount.py", "Connection: close")))
    assert status_code == 404


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".js", ".html"))])
def test_no_text_of_a_user_can_become_markup(name: str) -> None:
    text = (
        (STATIC / name).read_text("utf-8").replace('"innerHTML", "outerHTML", "srcdoc"', "").replace("no innerHTML", "")
    )
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "new Function"):
        assert way not in text, f"{name} has {way}"
    assert " style=" not in text or not name.endswith(".html")
    assert "<script>" not in text
