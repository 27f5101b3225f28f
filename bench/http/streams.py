"""Event streams of one server process: many idle streams, and 5,000 deliveries per second.

All clocks are this machine's CLOCK_MONOTONIC, which its processes share. A latency begins before the writer asks for
the commit, or when the commit was acknowledged to it, and ends when the reader's process has the bytes of the frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from bench.http.processes import REQUESTER, Helper, Server, helper, new_key, server
from bench.measure import Spread, say
from bench.places import fresh


class Plan(NamedTuple):
    """The sizes of one measurement."""

    idle_streams: int
    calm_s: float
    idle_s: float
    rounds: int
    streams: int
    jobs: int
    events_per_s: int
    warm_s: float
    seconds: float


FULL = Plan(2_000, calm_s=2.0, idle_s=20.0, rounds=3, streams=500, jobs=50, events_per_s=500, warm_s=1.0, seconds=8.0)
QUICK = Plan(300, calm_s=0.2, idle_s=1.0, rounds=1, streams=500, jobs=50, events_per_s=500, warm_s=0.5, seconds=1.5)
LAST_S = 0.5


class CountsDiffer(Exception):
    """Events were lost, or arrived twice: the figures mean nothing."""


class Stage(NamedTuple):
    """A server with readers and a writer, on a store with jobs that run."""

    server: Server
    readers: Helper
    writer: Helper
    key: str
    jobs: list[str]


async def measure(kind: str, programs: Sequence[str], *, quick: bool) -> dict[str, Any]:
    plan = QUICK if quick else FULL
    idle: dict[str, dict[str, Any]] = {}
    rounds_of: dict[str, list[dict[str, Any]]] = {program: [] for program in programs}
    for n in range(plan.rounds):
        for program in programs if n % 2 == 0 else reversed(programs):
            async with open_stage(kind, program, plan.jobs if n else plan.idle_streams) as stage:
                if n == 0:
                    idle[program] = await _idle(stage, plan)
                rounds_of[program].append(await _busy(stage, plan))
    busy = {program: _summary(rounds) for program, rounds in rounds_of.items()}
    for program in programs:
        say(
            f"{kind}, {program}: {plan.idle_streams} idle streams {idle[program]['rss_mb']:.0f} MB, "
            f"{idle[program]['cpu']:.1%} of a core; {busy[program]['rate'].median:,.0f} deliveries/s at "
            f"{busy[program]['cpu']:.0%} (others {busy[program]['others']:.0%}), p99 {busy[program]['asked_p99'].median:.0f} ms"
        )
    return {"plan": plan._asdict(), "idle": idle, "busy": busy}


@contextlib.asynccontextmanager
async def open_stage(kind: str, program: str, jobs: int) -> AsyncIterator[Stage]:
    """A server, and jobs that run."""
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(fresh(kind))
        key = await new_key(url)
        readers = await stack.enter_async_context(helper("listen"))
        writer = await stack.enter_async_context(helper("write"))
        one = await stack.enter_async_context(server("jobs", program, url))
        ids = await writer.ask("open", url=url, jobs=jobs, requester_id=REQUESTER)
        stack.push_async_callback(writer.ask, "close")
        yield Stage(one, readers, writer, key, ids)


async def _idle(stage: Stage, plan: Plan) -> dict[str, Any]:
    """Open one stream per job and measure the idle server; its pings every 15 s are included."""
    empty_mb = stage.server.usage().rss_mb
    opening = await stage.readers.ask("open", port=stage.server.port, key=stage.key, jobs=stage.jobs, keeps=False)
    await asyncio.sleep(plan.calm_s)
    before = stage.server.usage()
    await asyncio.sleep(plan.idle_s)
    after = stage.server.usage()
    closing = await stage.readers.ask("close")
    return {
        "empty_mb": empty_mb,
        "rss_mb": after.rss_mb,
        "cpu": after.share_since(before),
        "open_s": opening["took_s"],
        **closing,
    }


async def _busy(stage: Stage, plan: Plan) -> dict[str, Any]:
    watched_jobs = [stage.jobs[n % plan.jobs] for n in range(plan.streams)]
    pace = {"jobs": plan.jobs, "rate": plan.events_per_s}
    await stage.readers.ask("open", port=stage.server.port, key=stage.key, jobs=watched_jobs, keeps=True)
    await stage.writer.ask("write", **pace, seconds=plan.warm_s)
    before = stage.server.usage()
    writes = await stage.writer.ask("write", **pace, seconds=plan.seconds)
    after = stage.server.usage()
    arrivals = await stage.readers.ask("collect", writes=writes, wait_s=max(LAST_S, plan.seconds / 4))
    closing = await stage.readers.ask("close")
    due = sum(count for _, count, _, _ in writes) * plan.streams // plan.jobs
    check(due, arrivals, closing)
    return {
        **arrivals,
        **closing,
        "missing": due - arrivals["deliveries"],
        "cpu": after.share_since(before),
        "cpu_us": (after.cpu_s - before.cpu_s) / max(1, arrivals["deliveries"]) * 1e6,
        "others": after.others_since(before),
    }


def check(due: int, arrivals: dict[str, Any], closing: dict[str, Any]) -> None:
    """Raise CountsDiffer unless each event that was due arrived exactly once and no stream was lost."""
    if arrivals["deliveries"] != due or arrivals["repeats"] or closing["lost"]:
        raise CountsDiffer(
            f"{due} deliveries were due: {arrivals['deliveries']} arrived, {arrivals['repeats']} twice; "
            f"{closing['lost']} streams were lost"
        )


def _summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    spreads = {
        f"{since}_{rank}": Spread.of([r[f"{since}_ms"][rank] for r in rounds])
        for since in ("asked", "committed")
        for rank in ("p50", "p99", "p999")
    }
    return {
        "rate": Spread.of([r["rate"] for r in rounds]),
        **spreads,
        "cpu": statistics.median(r["cpu"] for r in rounds),
        "cpu_us": Spread.of([r["cpu_us"] for r in rounds]),
        "others": statistics.median(r["others"] for r in rounds),
        "missing": sum(r["missing"] for r in rounds),
        "lost": sum(r["lost"] for r in rounds),
    }
