"""The studio in Chromium on `callsheet serve`, with 100,000 jobs in the store: first paint, first rows, filters.

All times are taken within the page: from the start of navigation, or from a change of the filter, until the first frame
with new rows. `python -m bench studio --soak 60` is bench/studio_soak.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from playwright.async_api import Browser, Page

from bench import places, studio_soak
from bench.measure import keep, say
from bench.studio_stage import RARE_KIND, RARE_QUEUE, RARE_TEAM, RARE_WORD, Site, chromium, fill, serve, signed_in

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
        async with serve(url) as site, chromium() as browser:
            await _open_page(browser, site, "/studio", ".figures")  # a server's first answers read its files
            figures = {
                "overview": await _overview(browser, site, times),
                "rows": await _rows(browser, site, times),
                "filters": await _filters(browser, site, times),
            }
    keep(
        f"studio-{kind}",
        {"jobs": jobs, "times": times, **figures, "servers": await places.server_versions()},
        quick=quick,
    )


async def _open_page(browser: Browser, site: Site, path: str, until: str, script: str = "") -> Page:
    """Open a page for a new visitor: signed in, with an empty cache."""
    page = await (await signed_in(browser, site)).new_page()
    if script:
        await page.add_init_script(script)
    await page.goto(site.url + path)
    await page.wait_for_selector(until)
    return page


async def _overview(browser: Browser, site: Site, times: int) -> dict[str, Any]:
    paints: list[float] = []
    ready: list[float] = []
    sizes: list[float] = []
    for _ in range(times):
        page = await _open_page(browser, site, "/studio", ".figures")
        page_figures = await page.evaluate(
            """() => ({
              paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
              ready: performance.now(),
              bytes: [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
                .reduce((sum, entry) => sum + entry.transferSize, 0),
            })"""
        )
        paints.append(page_figures["paint"])
        ready.append(page_figures["ready"])
        sizes.append(page_figures["bytes"] / 1024)
        await page.context.close()
    figures = {"paint": Measured.of(paints), "figures": Measured.of(ready), "kb": Measured.of(sizes)}
    say("overview: " + ", ".join(f"{name} {one.median:.0f} ({one.worst:.0f})" for name, one in figures.items()))
    return figures


async def _rows(browser: Browser, site: Site, times: int) -> dict[str, Measured]:
    """Measure the first rows in a new browser context, and after a click within the studio."""
    open_ms: list[float] = []
    within: list[float] = []
    for _ in range(times):
        page = await _open_page(browser, site, "/studio/jobs", "[data-row]", FIRST_ROW)
        open_ms.append(await _first_row_ms(page))
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
    figures = {"opened": Measured.of(open_ms), "within": Measured.of(within)}
    say("first rows: " + ", ".join(f"{name} {one.median:.0f} ({one.worst:.0f})" for name, one in figures.items()))
    return figures


async def _first_row_ms(page: Page) -> float:
    while (at := await page.evaluate("() => window.firstRowMs ?? 0")) == 0:
        await page.wait_for_timeout(20)
    return float(at)


async def _filters(browser: Browser, site: Site, times: int) -> dict[str, dict[str, float]]:
    page = await _open_page(browser, site, "/studio/jobs", "[data-row]")
    figures_of: dict[str, dict[str, float]] = {}
    for name, fields in FILTERS.items():
        times_ms: list[float] = []
        for _ in range(times):
            page_figures = await page.evaluate(FILTER, fields)
            times_ms.append(page_figures["ms"])
            await page.evaluate(FILTER, {})
        one = Measured.of(times_ms)
        figures_of[name] = {"median": one.median, "worst": one.worst, "rows": page_figures["rows"]}
        say(f"filter {name:28} {page_figures['rows']:3} rows  {one.median:5.0f} ms ({one.worst:.0f})")
    await page.context.close()
    return figures_of


TEXT = """\
`callsheet serve` on a store with {jobs:,} jobs of six days, in Chromium on the same machine; medians of {times}, the worst
beside them, in milliseconds. Each page is opened with an empty cache. Times are taken within the page, up to the frame
after the rows were put there; a filter's from the change of its field until the list is complete, which for typed ones has
{typing} ms of waiting for more keys in it, and for rare ones all jobs that had to be looked at. Targets: Overview paints
within {paint:,} ms and takes under {kb} KB, first rows within {rows} ms, a filter within {filter} ms.
"""
TYPING_MS = 150


def parts(results: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the parts for RESULTS.md that have figures: the page loads and the soak."""
    sections: list[str] = []
    if figures_of := {kind: results[f"studio-{kind}"]["measured"] for kind in TITLES if f"studio-{kind}" in results}:
        sections += ["## The studio", *_sections(figures_of, table)]
    if (hour := results.get("studio_soak-sqlite")) is not None:
        sections += ["## The studio, left open", *studio_soak.sections(hour, table)]
    return sections


def _sections(figures_of: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    first = next(iter(figures_of.values()))
    targets = {"paint": PAINT_MS, "kb": PAGE_KB, "rows": ROWS_MS, "filter": FILTER_MS, "typing": TYPING_MS}
    rows: list[tuple[str, ...]] = [
        (
            "Overview, first contentful paint",
            *(_cell(one["overview"]["paint"], PAINT_MS) for one in figures_of.values()),
        ),
        ("Overview, figures shown", *(_cell(one["overview"]["figures"], PAINT_MS) for one in figures_of.values())),
        ("Overview, KB transferred", *(_cell(one["overview"]["kb"], PAGE_KB) for one in figures_of.values())),
        ("Jobs, first rows, by its address", *(_cell(one["rows"]["opened"], ROWS_MS) for one in figures_of.values())),
        (
            "Jobs, first rows, from another page",
            *(_cell(one["rows"]["within"], ROWS_MS) for one in figures_of.values()),
        ),
    ]
    for name in first["filters"]:
        cells = [one["filters"][name] for one in figures_of.values()]
        rows.append((f"filter {name}", *(_cell((c["median"], c["worst"]), FILTER_MS) for c in cells)))
    text = TEXT.strip().format(jobs=first["jobs"], times=first["times"], **targets)
    return [text, table(("", *(TITLES[kind] for kind in figures_of)), rows)]


def _cell(figures: Any, most: float) -> str:
    median, worst = figures
    text = f"{median:,.0f} ({worst:,.0f})"
    return text if median <= most else f"**{text}**"
