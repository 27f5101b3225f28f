"""Tools for tests of the studio: a server with all routes, jobs in every state, and a page that is signed in."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from callsheet.asgi import ROUTERS
from callsheet.engine.ids import new_id
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent, NewJob
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.http.live import ADMIN, Live, serving

from .conftest import opened, picture

expect.set_options(timeout=60_000)  # a busy machine is slow; what is wrong stays wrong
SCRIPT = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
# A message that fades in is pale for a moment, no colour of ours. Endless ones (a spinner) are left alone.
ANIMATIONS_END = """() => Promise.all(
    document.getAnimations()
        .filter((animation) => Number.isFinite(animation.effect.getComputedTiming().endTime))
        .map((animation) => animation.finished.catch(() => null))
)"""


@contextlib.asynccontextmanager
async def studio_server(folder: Path, **options: Any) -> AsyncIterator[Live]:
    """A server on SQLite with all that `callsheet up` serves."""
    settings = {"objects_url": f"file://{folder}/objects", **options}
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, **settings) as live:
        yield live


@contextlib.asynccontextmanager
async def signed_in(
    browser: Browser, url: str, path: str = "/studio", *, key: str = ADMIN, dark: bool = False, width: int = 1280
) -> AsyncIterator[Page]:
    """Open a page of the studio after signing in."""
    async with opened(browser, dark=dark, width=width) as page:
        await sign_in(page, url + path, key)
        yield page


async def sign_in(page: Page, url: str, key: str = ADMIN) -> None:
    """Go to a page of the studio and enter the key on the sign-in form."""
    await page.goto(url)
    await page.fill("input[name=key]", key)
    await page.click("button[type=submit]")
    await expect(page.locator(".shell")).to_be_visible()


async def put(live: Live, kind: str = "resize", **fields: Any) -> str:
    """A new job that waits."""
    job_id = new_id()
    await live.engine.enqueue([NewJob(job_id, kind, **fields)])
    return job_id


async def run(live: Live, kind: str = "resize", worker: str = "gpu-a", **fields: Any) -> Job:
    """Add a running job, in its own queue unless `queue` is given."""
    queue = fields.pop("queue", new_id())
    await put(live, kind, queue=queue, **fields)
    (job,) = await live.engine.claim(ClaimRequest(worker, (queue,), lease_ms=600_000))
    return job


async def end_badly(live: Live, job: Job, message: str = "it broke") -> None:
    """Make a dead letter of a running job."""
    await live.engine.settle([commands.dead_letter(job, JobError("broke", message))])


async def note(live: Live, job: Job, *texts: str, kind: str = "log") -> None:
    """Write events of a running job in one batch."""
    await live.engine.settle([commands.note(job, NewEvent(kind, "", json.dumps({"message": text}))) for text in texts])


# Between light and dark a colour is neither for a tenth of a second.
COLOURS_STAND = """
new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))
  .then(() => document.getAnimations().filter((one) => one instanceof CSSTransition).map((one) => one.finished))
  .then((ends) => Promise.allSettled(ends))
  .then(() => undefined)
"""


async def check(page: Page) -> None:
    """Everybody can use this page: assert that axe reports no violation and the page is not wider than its window."""
    await page.evaluate(COLOURS_STAND)
    await page.evaluate(ANIMATIONS_END)
    result = await Axe().run(page)
    assert result.violations_count == 0, result.generate_report()
    await fits(page)


async def fits(page: Page) -> None:
    """Return whether the page is not wider than its window."""
    over = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0, f"{over} px wider than the window"


async def change_look(page: Page, *, dark: bool, width: int) -> None:
    """The same page in another light and size."""
    await page.emulate_media(color_scheme="dark" if dark else "light")
    await page.set_viewport_size({"width": width, "height": 900})
    await expect(page.locator(f"html[data-theme={'dark' if dark else 'light'}]")).to_be_attached()


LOOKS = [(False, 1280), (True, 390), (True, 1280), (False, 390)]


async def check_in_all_looks(page: Page, name: str) -> None:
    """Light and dark, desktop and phone; take a picture of each look.

    The first two looks cover both themes and both sizes.
    """
    for n, (dark, width) in enumerate(LOOKS):
        await change_look(page, dark=dark, width=width)
        await (check(page) if n < 2 else fits(page))
        await picture(page, f"{name}-{'dark' if dark else 'light'}-{width}")
    await change_look(page, dark=False, width=1280)


async def check_on_a_phone(page: Page, name: str) -> None:
    """Check a page in the dark theme on a phone: for details of a page that other tests check in all looks."""
    await change_look(page, dark=True, width=390)
    await check(page)
    await picture(page, f"{name}-dark-390")
    await change_look(page, dark=False, width=1280)
