"""The section `http` of RESULTS.md: figures beside their targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Table = Callable[[Sequence[object], Sequence[Sequence[object]]], str]
READING = """\
Real processes on one machine: the server{apart}. `POST /v1/jobs` comes over {connections} keep-alive connections that
each send the next request when they have an answer, with a key from the store; it is answered when the job is
committed. The empty route is the same app without the job: the same server, `Front`, key check and validation, then a
constant. In each of {rounds} rounds all have a server and a fresh store of their own, and get the load in turns, {slices}
slices of {seconds:g} s each; a ratio is the median of the rounds' own, with the lowest and the highest. The load alone reaches {ceiling} requests/s at a server that
does nothing. CPU is the server process' share of its core, and what others had of it stands beside: where that is much,
the machine was busy with other things, and the CPU time of each request (and "by CPU", the empty route's share in it)
says more than rates and latencies do.
"""
STREAMS = """\
Idle: {idle_streams:,} streams on one server process, each of a job of its own, for {idle_s:g} s with the pings in them.
Busy: {streams} streams over {jobs} running jobs, {events_per_s} events/s written by another process through the engine
(what is due every 10 ms in one `settle`), so {deliveries:,} deliveries/s, for {seconds:g} s after {warm_s:g} s that do
not count; medians of {rounds} round(s). Latencies run until the reader's process has the frame: from the moment before
the writer asked for the commit, and from the commit's acknowledgement to the writer; all by CLOCK_MONOTONIC, which the
processes share.
"""
RATIOS = {
    "jobs granian/jobs uvicorn": "new jobs",
    "empty granian/empty uvicorn": "empty route",
}


def sections(records: dict[str, Any], titles: dict[str, str], table: Table) -> list[str]:
    """The parts under the section's title."""
    figures = {titles[kind]: record["measured"] for kind, record in records.items()}
    parts = [_reading(figures), _posts(figures, table)]
    first = next(iter(figures.values()))["streams"]["plan"]
    deliveries = first["events_per_s"] * first["streams"] // first["jobs"]
    parts += ["### Event streams", STREAMS.strip().format(**first, deliveries=deliveries)]
    parts += [_idle(figures, table), _busy(figures, table)]
    if any(next(iter(RATIOS)) in m["posts"]["ratios"] for m in figures.values()):
        parts += ["### uvicorn or granian", _choice(figures, table)]
    return parts


def _reading(figures: dict[str, Any]) -> str:
    first = next(iter(figures.values()))
    apart = " is pinned to one core, load and databases to the others" if first["apart"] else " is not pinned"
    ceiling = min(m["posts"]["ceiling"] for m in figures.values())
    return READING.strip().format(**{**first["posts"], "apart": apart, "ceiling": f"{ceiling:,.0f}"})


def _posts(figures: dict[str, Any], table: Table) -> str:
    header = (
        "store",
        "route",
        "requests/s",
        "of empty",
        "target",
        "by CPU",
        "p50 ms",
        "p99 ms",
        "CPU",
        "others",
        "CPU µs each",
    )
    rows = []
    for title, m in figures.items():
        summaries, ratios = m["posts"]["found"], m["posts"]["ratios"]
        jobs, empty = summaries["jobs uvicorn"], summaries["empty uvicorn"]
        target = "≥ 0.60" if title != "PostgreSQL" else ""
        rows += [
            (title, "`POST /v1/jobs`", *_row(jobs, empty, ratios["jobs uvicorn/empty uvicorn"], target)),
            ("", "empty", *_row(empty)),
        ]
        if "deep uvicorn" in summaries:
            deep = summaries["deep uvicorn"]
            behind = deep["rate"][0] / empty["rate"][0]
            rows.append(("", f"`POST /v1/jobs`, {m['posts']['deep']:,} queued before", *_row(deep, empty, (behind,))))
    return table(header, rows)


def _row(
    one: dict[str, Any], empty: dict[str, Any] | None = None, ratio: Sequence[float] = (), target: str = ""
) -> tuple[str, ...]:
    return (
        _whole(one["rate"]),
        _ratio(ratio),
        target,
        f"{empty['cpu_us'][0] / one['cpu_us'][0]:.2f}" if empty else "",
        _fine(one["p50"]),
        _fine(one["p99"]),
        f"{one['cpu']:.0%}",
        f"{one['others']:.0%}",
        _whole(one["cpu_us"]),
    )


def _idle(figures: dict[str, Any], table: Table) -> str:
    header = ("store", "server", "idle streams", "RSS without", "RSS with", "target", "CPU idle", "opened in", "lost")
    rows = [
        (
            title,
            program,
            f"{m['streams']['plan']['idle_streams']:,}",
            f"{idle['empty_mb']:.0f} MB",
            f"**{idle['rss_mb']:.0f} MB**",
            "≤ 300 MB",
            f"{idle['cpu']:.1%}",
            f"{idle['open_s']:.1f} s",
            idle["lost"],
        )
        for title, m in figures.items()
        for program, idle in m["streams"]["idle"].items()
    ]
    return table(header, rows)


def _busy(figures: dict[str, Any], table: Table) -> str:
    header = (
        "store",
        "server",
        "deliveries/s",
        "asked → client p50 ms",
        "p99 ms",
        "target",
        "committed → client p50 ms",
        "p99 ms",
        "CPU",
        "others",
        "CPU µs each",
        "missing",
    )
    rows = [
        (
            title,
            program,
            _whole(busy["rate"]),
            _fine(busy["asked_p50"]),
            f"**{_fine(busy['asked_p99'])}**",
            "≤ 150",
            _fine(busy["committed_p50"]),
            _fine(busy["committed_p99"]),
            f"{busy['cpu']:.0%}",
            f"{busy['others']:.0%}",
            _whole(busy["cpu_us"]),
            busy["missing"],
        )
        for title, m in figures.items()
        for program, busy in m["streams"]["busy"].items()
    ]
    return table(header, rows)


def _choice(figures: dict[str, Any], table: Table) -> str:
    """What granian would bring, as ratios of one run."""
    header = (
        "store",
        "requests/s, granian ÷ uvicorn",
        "CPU of a request, likewise",
        "of a delivery",
        "idle streams' RSS",
    )
    rows = []
    for title, m in figures.items():
        if next(iter(RATIOS)) not in m["posts"]["ratios"]:
            continue
        reasons = (
            ", ".join(f"{name} {_ratio(m['posts'][figure][pair])}" for pair, name in RATIOS.items())
            for figure in ("ratios", "costs")
        )
        rows.append((title, *reasons, *_streams_of(m["streams"])))
    rates, costs = (
        [m["posts"][figure][pair][0] for m in figures.values() for pair in RATIOS if pair in m["posts"][figure]]
        for figure in ("ratios", "costs")
    )
    verdict = "dearer" if min(costs) > 1 else "cheaper" if max(costs) < 1 else "neither cheaper nor dearer throughout"
    text = (
        "The same ASGI app on both, one process and one core, uvicorn with httptools, both on uvloop. By the CPU time of "
        f"a request, which a busy machine moves least, granian is {verdict}: {min(costs):.2f} to {max(costs):.2f} times "
        f"uvicorn's; its rates are {min(rates):.2f} to {max(rates):.2f} of uvicorn's (medians of each row)."
    )
    return f"{text}\n\n{table(header, rows)}"


def _streams_of(rows: dict[str, Any]) -> tuple[str, str]:
    """Return granian's CPU time per delivery relative to uvicorn's, and the memory of both."""
    busy, idle = rows["busy"], rows["idle"]
    if "granian" not in busy:
        return "", ""
    return (
        f"{busy['granian']['cpu_us'][0] / busy['uvicorn']['cpu_us'][0]:.2f}",
        f"{idle['granian']['rss_mb']:.0f} MB for {idle['uvicorn']['rss_mb']:.0f} MB",
    )


def _whole(spread: Sequence[float]) -> str:
    median, low, high = spread
    return f"{median:,.0f} ({low:,.0f}–{high:,.0f})"


def _fine(spread: Sequence[float]) -> str:
    median, low, high = spread
    return f"{median:.1f} ({low:.1f}–{high:.1f})"


def _ratio(values: Sequence[float]) -> str:
    if len(values) < 3:
        return "".join(f"{value:.2f}" for value in values)
    median, low, high = values
    return f"**{median:.2f}** ({low:.2f}–{high:.2f})"
