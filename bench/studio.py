"""The studio in Chromium on `callsheet serve`, with 100,000 jobs in the store: first paint, first rows, filters.

All times are taken within the page: from the start of its navigation, or from the change of a filter, until the frame
after the rows were put there. `python -m bench studio --soak 60` is bench/studio_soak.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from playwright.async_api import Browser, Page

from bench import places, studio_soak
from bench.measure import keep, say
from bench.studio_stage import (
    RARE_KIND,
    RARE_QUEUE,
    RARE_TEAM,
    RARE_WORD,
    ServerState,
    chromium,
    fill,
    served,
    signed_in,
)

JOBS, QUICK_JOBS = 100_000, 5_000
TIMES, QUICK_TIMES = 5, 2
PAINT_MS, ROWS_MS, FILTER_MS, PAGE_KB = 1_000, 300, 500, 200
TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}

# Notes when the first row stands in the page: the frame after that is what a person sees.
FIRST_ROW = """
(() => {
  const look = () => {
    if (window.firstRowMs || !document.querySelector("[data-row]")) return;
    watch.disconnect();
    requestAnimationFrame(() => (window.firstRowMs = performance.now()));
  };
  const watch = new MutationObserver(look);
  watch.observe(document, { childList: true, subtree: true });
})();
"""
# Sets fields of the filters together, or clears all, and waits until the list is read to its end.
FILTER = """
(fields) => new Promise((done) => {
  const list = document.querySelector("[data-list]");
  const rows = () => list.querySelectorAll("[data-row]").length;
  const isSet = () => new URLSearchParams(fields).size === new URLSearchParams(location.search).size;
  let began = 0;
  const watch = new MutationObserver(() => {
    if (list.getAttribute("aria-busy") === "true" || !isSet()) return;
    watch.disconnect();
    requestAnimationFrame(() => done({ ms: performance.now() - began, rows: rows() }));
  });
  watch.observe(list, { attributes: true });
  began = performance.now();
  if (!Object.keys(fields).length) document.querySelector(".filters button").click();
  for (const [name, value] of Object.entries(fields)) {
    const field = document.querySelector(`[name=${name}]`);
    field.value = value;
    field.dispatchEvent(new Event(field.tagName === "SELECT" ? "change" : "input", { bubbles: true }));
  }
})
"""
FILTERS: dict[str, dict[str, str]] = {
    "status: failed": {"status": "error"},
    "status: running (few)": {"status": "running"},
    "status: canceled (few)": {"status": "canceled"},
    "kind": {"task": "ocr"},
    "kind, five old jobs": {"task": RARE_KIND},
    "queue": {"queue": "gpu"},
    "queue, five old jobs": {"queue": RARE_QUEUE},
    "requester": {"requester": "team-07"},
    "requester, five old jobs": {"requester": RARE_TEAM},
    "time: last day": {"time": "24h"},
    "time: last 15 minutes, none": {"time": "15m"},
    "text": {"text": "lantern"},
    "text, in five old jobs": {"text": RARE_WORD},
    "text, in none": {"text": "nowhere to be found"},
    "status and kind": {"status": "error", "task": "ocr"},
    "text and queue": {"text": "lantern", "queue": "gpu"},
}


class Measured(NamedTuple):
    """Milliseconds of some rounds."""

    median: float
    worst: float

    @classmethod
    def of(cls, values: list[float]) -> Measured:
        return cls(statistics.median(values), max(values))


async def measure(kind: str, *, quick: bool) -> None:
    """Fill, serve, look; kept as `studio-<kind>`."""
    jobs, times = (QUICK_JOBS, QUICK_TIMES) if quick else (JOBS, TIMES)
    async with places.fresh(kind) as url:
        await fill(url, jobs)
        async with served(url) as site, chromium() as browser:
            await _opened(browser, site, "/studio", ".figures")  # a server's first answers read its files
            found = {
                "overview": await _overview(browser, site, times),
                "rows": await _rows(browser, site, times),
                "filters": await _filters(browser, site, times),
            }
    keep(
        f"studio-{kind}",
        {"jobs": jobs, "times": times, **found, "servers": await places.server_versions()},
        quick=quick,
    )


async def _opened(browser: Browser, site: ServerState, path: str, until: str, script: str = "") -> Page:
    """A page of a new visitor: signed in, nothing in the cache."""
    page = await (await signed_in(browser, site)).new_page()
    if script:
        await page.add_init_script(script)
    await page.goto(site.url + path)
    await page.wait_for_selector(until)
    return page


async def _overview(browser: Browser, site: ServerState, times: int) -> dict[str, Any]:
    paints: list[float] = []
    ready: list[float] = []
    sizes: list[float] = []
    for _ in range(times):
        page = await _opened(browser, site, "/studio", ".figures")
        told = await page.evaluate(
            """() => ({
              paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
              ready: performance.now(),
              bytes: [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
                .reduce((sum, entry) => sum + entry.transferSize, 0),
            })"""
        )
        paints.append(told["paint"])
        ready.append(told["ready"])
        sizes.append(told["bytes"] / 1024)
        await page.context.close()
    found = {"paint": Measured.of(paints), "figures": Measured.of(ready), "kb": Measured.of(sizes)}
    say("overview: " + ", ".join(f"{name} {one.median:.0f} ({one.worst:.0f})" for name, one in found.items()))
    return found


async def _rows(browser: Browser, site: ServerState, times: int) -> dict[str, Measured]:
    """From an empty browser, and by a click within the studio."""
    opened: list[float] = []
    within: list[float] = []
    for _ in range(times):
        page = await _opened(browser, site, "/studio/jobs", "[data-row]", FIRST_ROW)
        opened.append(await _first_row_ms(page))
        await page.click(".side [data-nav='/studio']")
        await page.wait_for_selector(".figures")
        within.append(
            await page.evaluate(
                """() => new Promise((done) => {
                  const watch = new MutationObserver(() => {
                    if (!document.querySelector("[data-row] .open[href^='/studio/jobs/']")) return;
                    watch.disconnect();
                    requestAnimationFrame(() => done(performance.now() - began));
                  });
                  watch.observe(document.getElementById("main"), { childList: true, subtree: true });
                  const began = performance.now();
                  document.querySelector(".side [data-nav='/studio/jobs']").click();
                })"""
            )
        )
        await page.context.close()
    found = {"opened": Measured.of(opened), "within": Measured.of(within)}
    say("first rows: " + ", ".join(f"{name} {one.median:.0f} ({one.worst:.0f})" for name, one in found.items()))
    return found


async def _first_row_ms(page: Page) -> float:
    while (at := await page.evaluate("() => window.firstRowMs ?? 0")) == 0:
        await page.wait_for_timeout(20)
    return float(at)


async def _filters(browser: Browser, site: ServerState, times: int) -> dict[str, dict[str, float]]:
    page = await _opened(browser, site, "/studio/jobs", "[data-row]")
    found: dict[str, dict[str, float]] = {}
    for name, fields in FILTERS.items():
        spent: list[float] = []
        for _ in range(times):
            told = await page.evaluate(FILTER, fields)
            spent.append(told["ms"])
            await page.evaluate(FILTER, {})
        one = Measured.of(spent)
        found[name] = {"median": one.median, "worst": one.worst, "rows": told["rows"]}
        say(f"filter {name:28} {told['rows']:3} rows  {one.median:5.0f} ms ({one.worst:.0f})")
    await page.context.close()
    return found


TEXT = """\
`callsheet serve` on a store with {jobs:,} jobs of six days, in Chromium on the same machine; medians of {times}, the worst
beside them, in milliseconds. Each page is opened with an empty cache. Times are taken within the page, up to the frame
after the rows were put there; a filter's from the change of its field until the list is complete, which for typed ones has
{typing} ms of waiting for more keys in it, and for rare ones all jobs that had to be looked at. Targets: Overview paints
within {paint:,} ms and takes under {kb} KB, first rows within {rows} ms, a filter within {filter} ms.
"""
TYPING_MS = 150


def parts(results: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    """For RESULTS.md: both measurements, as far as they were made."""
    made: list[str] = []
    if found := {kind: results[f"studio-{kind}"]["measured"] for kind in TITLES if f"studio-{kind}" in results}:
        made += ["## The studio", *_sections(found, table)]
    if (hour := results.get("studio_soak-sqlite")) is not None:
        made += ["## The studio, left open", *studio_soak.sections(hour, table)]
    return made


def _sections(found: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    first = next(iter(found.values()))
    targets = {"paint": PAINT_MS, "kb": PAGE_KB, "rows": ROWS_MS, "filter": FILTER_MS, "typing": TYPING_MS}
    rows: list[tuple[str, ...]] = [
        ("Overview, first contentful paint", *(_cell(one["overview"]["paint"], PAINT_MS) for one in found.values())),
        ("Overview, figures shown", *(_cell(one["overview"]["figures"], PAINT_MS) for one in found.values())),
        ("Overview, KB transferred", *(_cell(one["overview"]["kb"], PAGE_KB) for one in found.values())),
        ("Jobs, first rows, by its address", *(_cell(one["rows"]["opened"], ROWS_MS) for one in found.values())),
        ("Jobs, first rows, from another page", *(_cell(one["rows"]["within"], ROWS_MS) for one in found.values())),
    ]
    for name in first["filters"]:
        cells = [one["filters"][name] for one in found.values()]
        rows.append((f"filter {name}", *(_cell((c["median"], c["worst"]), FILTER_MS) for c in cells)))
    text = TEXT.strip().format(jobs=first["jobs"], times=first["times"], **targets)
    return [text, table(("", *(TITLES[kind] for kind in found)), rows)]


def _cell(measured: Any, most: float) -> str:
    median, worst = measured
    text = f"{median:,.0f} ({worst:,.0f})"
    return text if median <= most else f"**{text}**"
