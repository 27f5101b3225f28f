"""Pages in the system's Chromium.

`make test` installs Chromium where possible; where it cannot, these tests cannot run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tools.check_types import node

# Playwright's own node wants libatomic, which small machines lack; that of the wheel wants nothing more
os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", str(node()[0]))
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@functools.cache
def _chromium() -> str | None:
    """Return this machine's Chromium, under any name; a stub that only explains the installation does not count."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if (path := shutil.which(name)) is not None:
            process = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)
            if process.returncode == 0 and re.search(r"\d+\.\d+\.\d+", process.stdout):
                return path
    return None


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    chromium = _chromium()
    if chromium is None:
        pytest.skip("there is no Chromium here that runs, and make could not install it")
    async with async_playwright() as playwright:
        result = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield result
        await result.close()


@contextlib.asynccontextmanager
async def opened(browser: Browser, *, dark: bool = False, width: int = 1280) -> AsyncIterator[Page]:
    """A page; any error on the page's console fails the test."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    context.set_default_timeout(60_000)  # a busy machine is slow; what is wrong stays wrong
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        yield page
    finally:
        await context.close()  # also when a test fails: servers wait for pages that are open
    assert errors == []


async def picture(page: Page, name: str) -> None:
    """Keep a screenshot where CALLSHEET_SCREENSHOTS says, to be looked at."""
    if folder := os.environ.get("CALLSHEET_SCREENSHOTS"):
        await page.screenshot(path=Path(folder, f"{name}.png"), full_page=True)
