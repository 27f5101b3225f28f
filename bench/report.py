"""Writes RESULTS.md from the sections' results files: a table per section, and how to read the table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import drain_pairs, large, media, ocr, pipeline, sampling, search, studio, truth
from bench.http import report as http
from bench.measure import PAYLOAD, all_results
from bench.outbox import report as outbox
from bench.peers import report as peers
from bench.places import POSTGRES_SETTINGS, REDIS_SETTINGS

TARGET = Path(__file__).parent / "RESULTS.md"
TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
READING = """\
The limit loops (`limit_*.py`) are the least that one could write by hand for the same promise, on the very tables and
keys of the store: the same rows, the same three events, the same attempt, an exclusive and leased claim, an end that is
fenced by the claim's version. They have no slots, dependencies, idempotency, delays, outbox or hints, and know the one
shape of job that they carry, so a ratio says what all of the rest costs (docs/adr/0008). Both sides get the same ids,
which rise with time as the engine's do, and take turns on fresh databases; a figure is the median of the rounds with
the lowest and the highest beside it, and the ratio is the median of each round's own. Where lowest and highest lie far
apart the machine was busy with other things. Client and server share the cores of one machine, and nothing but store
verbs is measured: no handlers, no heartbeats, no HTTP. Latencies include the sync of each commit, so their tails are
mostly the disk's. A `--quick` run shows that the benches work; its tails rest on few
samples.
"""
Row = Sequence[object]


def write() -> None:
    """Render the results files of all sections."""
    results = {name: result for name, result in all_results().items() if name != "peers"}
    parts = ["# What it does, measured", _intro(results), *_environment(results)]
    if beside := peers.sections():
        parts += ["![Jobs a second and idle pick-up beside other queues](peers.png)", beside]
    parts += _http(results)
    parts += _workers(results)
    parts += _live(results)
    parts += _compose(results)
    parts += _outbox(results)
    parts += ["## The stores alone: how to read the rest", READING.strip()]
    for title, prefix, render in (
        ("Throughput beside hand-written loops", "store-", _store),
        ("Claims in a full store", "flat-", _flat),
        ("A forgotten transaction", "held_xmin-", _held),
        ("What a job costs to keep", "cost-", _cost),
    ):
        results_of = {name.removeprefix(prefix): r for name, r in results.items() if name.startswith(prefix)}
        if results_of:
            parts += [f"## {title}", *render({kind: results_of[kind] for kind in TITLES if kind in results_of})]
    parts += _media(results)
    parts += studio.parts(results, _table)
    TARGET.write_text("\n\n".join(parts) + "\n", "utf-8")


def _media(results: dict[str, Any]) -> list[str]:
    parts: list[str] = []
    for title, name, one in (
        ("ffmpeg in its box", "media-ffmpeg", media.sections),
        ("A large source", "large-s3", large.sections),
        ("Sampling a video", "sampling-ffmpeg", sampling.sections),
        ("Reading text in frames", "ocr-tesseract", ocr.sections),
        ("Text in videos", "truth-tesseract", truth.sections),
    ):
        if (record := results.get(name)) is not None:
            parts += [f"## {title}", *one(record, _table)]
    for title, prefix, many in (
        ("A video, from its upload to ready", "pipeline-", pipeline.sections),
        ("Search", "search-", search.sections),
        ("A drained job, beside an older commit", "drain_pairs-", drain_pairs.sections),
    ):
        if by_kind := {name.removeprefix(prefix): r for name, r in results.items() if name.startswith(prefix)}:
            parts += [f"## {title}", *many(by_kind, _table)]
    return parts


def _intro(results: dict[str, Any]) -> str:
    return (
        "Measured by `make bench` (`python -m bench`) on the machine below; this file is generated.\n"
        f"The payload is `{PAYLOAD}` where nothing else is said. Sections that are missing were not run"
        f"{'' if results else ': there are no results at all'}."
    )


def _environment(results: dict[str, Any]) -> list[str]:
    if not results:
        return []
    newest = max(results.values(), key=lambda r: str(r["at"]))
    facts = dict(newest["machine"])
    facts.pop("load average")
    for record in results.values():
        facts |= record["measured"].get("servers", {})
    runs = [
        (name, r["at"], "quick" if r["quick"] else "full", r["machine"]["load average"]) for name, r in results.items()
    ]
    durability = [
        (
            "SQLite",
            "WAL; `synchronous=FULL` syncs each commit, `NORMAL` does not: a power cut may lose the last ones",
        ),
        ("PostgreSQL", _settings(POSTGRES_SETTINGS)),
        ("Redis", _settings(REDIS_SETTINGS)),
    ]
    return [
        _table(("machine and versions", ""), list(facts.items())),
        _table(("durability", ""), durability),
        _table(("section", "measured", "size", "load average at its end"), runs),
    ]


def _store(figures: dict[str, Any]) -> list[str]:
    parts = ["Jobs in a second, median (lowest–highest). Target: a ratio of 0.60 or more at batches of 100 and 200."]
    header = ("batch", "jobs", "enqueue, ours", "by hand", "ratio", "claim + settle, ours", "by hand", "ratio")
    for record in figures.values():
        for subject in record["measured"]["subjects"]:
            rows = [
                (str(row["batch"]), f"{row['jobs']:,}", *_verdict(row["enqueue"]), *_verdict(row["drain"]))
                for row in subject["rows"]
            ]
            parts += [f"### {subject['name']}", _table(header, rows)]
    return parts


def _verdict(v: dict[str, Any]) -> tuple[str, str, str]:
    return _spread(v["ours"]), _spread(v["limit"]), f"**{v['ratio']:.2f}**"


def _spread(values: Sequence[float]) -> str:
    median, low, high = values
    return f"{median:,.0f} ({low:,.0f}–{high:,.0f})"


def _flat(results: dict[str, Any]) -> list[str]:
    parts = []
    header = ("claims of", "verb", "p50 small", "p50 big", "p99 small", "p99 big", "p99 big ÷ small")
    for kind, record in results.items():
        figures = record["measured"]
        big = f"{figures['big']:,}"
        parts.append(
            f"{TITLES[kind]}, milliseconds, {figures['rows'][0]['samples']:,} samples each, turn by turn: small is "
            f"1,000 queued jobs, big {big} queued, {big} ended and {big} future ones. Target: a claim's p99 in the big "
            "store is at most twice that in the small one."
        )
        rows = [
            (row["batch"], verb, *_pair(row[verb], "p50"), *_pair(row[verb], "p99"), _ratio(row[verb]))
            for row in figures["rows"]
            for verb in ("claim", "settle", "enqueue")
        ]
        parts.append(_table(header, rows))
    return parts


def _pair(timings: dict[str, Any], name: str) -> tuple[str, str]:
    return f"{timings['small'][name]:.2f}", f"{timings['big'][name]:.2f}"


def _ratio(timings: dict[str, Any]) -> str:
    return f"**{timings['big']['p99'] / timings['small']['p99']:.2f}**"


def _held(results: dict[str, Any]) -> list[str]:
    (record,) = results.values()
    figures = record["measured"]
    control, held = figures["control"]["windows"], figures["held"]["windows"]
    third = max(1, len(held) // 3)
    share = _mean(held, "done_per_s") / _mean(control, "done_per_s")
    climb = _middle(held[-third:], "claim_p99_ms") / _middle(held[:third], "claim_p99_ms")
    text = (
        f"PostgreSQL under {figures['offered_per_s']} offered jobs/s with two claimers, and one idle REPEATABLE READ "
        f"transaction open all the while: **{share:.0%}** of the control's throughput (target 90 %), claim p99 of the "
        f"last third **{climb:.2f}** times that of the first. Dead rows of `inbox_jobs` at the end: "
        f"{figures['held']['dead_rows']:,} (control {figures['control']['dead_rows']:,})."
    )
    header = ("run", "until", "done/s", "claim p50 ms", "claim p99 ms", "backlog", "load average")
    rows = [
        (
            name,
            f"{w['until_s']:.0f} s",
            f"{w['done_per_s']:.0f}",
            f"{w['claim_p50_ms']:.2f}",
            f"{w['claim_p99_ms']:.2f}",
            w["backlog"],
            f"{w['machine_load']:.1f}",
        )
        for name in ("control", "held")
        for w in figures[name]["windows"]
    ]
    return [text, _table(header, rows)]


def _mean(windows: list[dict[str, float]], name: str) -> float:
    return statistics.fmean(w[name] for w in windows)


def _middle(windows: list[dict[str, float]], name: str) -> float:
    return statistics.median(w[name] for w in windows)


def _cost(results: dict[str, Any]) -> list[str]:
    rows = [
        (
            TITLES[kind],
            row["payload"],
            f"{row['queued_bytes']:,.0f}",
            f"{row['ended_bytes']:,.0f}",
            f"{row['log_bytes']:,.0f}" if "log_bytes" in row else "",
        )
        for kind, record in results.items()
        for row in record["measured"]["rows"]
    ]
    counts = " or ".join(sorted({f"{record['measured']['jobs']:,}" for record in results.values()}))
    text = (
        f"Bytes for each of {counts} jobs, tables and indexes: SQLite's file, PostgreSQL's relations (with the dead "
        "rows that vacuum has not reached yet), Redis' memory. The log is PostgreSQL's WAL from enqueue to end in "
        "batches of 100, right after a checkpoint, so with its full page images."
    )
    return [text, _table(("store", "payload", "queued", "ended", "log"), rows)]


def _http(results: dict[str, Any]) -> list[str]:
    records = {kind: results[f"http-{kind}"] for kind in TITLES if f"http-{kind}" in results}
    return ["## The server over HTTP", *http.sections(records, TITLES, _table)] if records else []


WORKERS = """\
One API process{apart}; eight workers, each with one keep-alive connection and the smallest client there is. A cycle is a
claim and a completion of a no-op, one by one or {size} at a time (`max_jobs`, `/moves`). Pick-up is from before the
enqueue (through the engine, in another process) until a worker whose claim was parked has the job's answer. Parked:
{parked_claims:,} long polls for a queue that stays empty, while another connection reads one job {requests:,} times. Medians of
{rounds} rounds, lowest and highest beside them.
"""


def _fine(values: Sequence[float]) -> str:
    median, low, high = (f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in values)
    return f"{median} ({low}–{high})"


def _workers(results: dict[str, Any]) -> list[str]:
    records = _figures_of(results, "workers")
    if not records:
        return []
    first = next(iter(records.values()))
    apart = ", pinned to one core, all else on the others" if first["apart"] else ""
    return ["## Workers over HTTP", WORKERS.strip().format(**first["plan"], apart=apart, size=50), _by_store(records)]


LIVE = """\
{jobs} jobs in progress, each with one watcher of contract 004 on one server process, and {events_per_s} events a second
written by another process through the engine, for {seconds:g} s. Latencies run from before the writer asked for the
commit until the watcher's process has the frame. Medians of {rounds} rounds, lowest and highest beside them.
"""


def _live(results: dict[str, Any]) -> list[str]:
    records = _figures_of(results, "live")
    if not records:
        return []
    return ["## Live jobs", LIVE.strip().format(**next(iter(records.values()))["plan"]), _by_store(records)]


COMPOSE = "A script of a title and three scenes becomes a video of 720p, all stages, medians of three rounds."


def _compose(results: dict[str, Any]) -> list[str]:
    if "compose-ffmpeg" not in results:
        return []
    rows = [
        (row["script"], f"{row['duration_s']:.1f}", f"{row['speed']:.2f} ×", f"{row['cpu_s']:.1f}")
        for row in results["compose-ffmpeg"]["measured"]["rows"]
    ]
    header = ("script", "seconds of video", "of real time", "CPU seconds")
    return ["## From a script to a video", COMPOSE, _table(header, rows)]


def _figures_of(results: dict[str, Any], name: str) -> dict[str, Any]:
    return {kind: results[f"{name}-{kind}"]["measured"] for kind in TITLES if f"{name}-{kind}" in results}


def _by_store(records: dict[str, Any]) -> str:
    names = next(iter(records.values()))["found"]
    rows = [(name, *(_fine(one["found"][name]) for one in records.values())) for name in names]
    return _table(("", *(TITLES[kind] for kind in records)), rows)


def _outbox(results: dict[str, Any]) -> list[str]:
    records = {kind: results[f"outbox-{kind}"] for kind in TITLES if f"outbox-{kind}" in results}
    return ["## Webhooks", *outbox.sections(records, TITLES, _table)] if records else []


def _settings(settings: dict[str, str]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in settings.items())


def _table(header: Row, rows: Sequence[Row]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
