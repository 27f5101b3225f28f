"""Live jobs (contract 004): as many watchers as jobs in progress, and when each event reaches its watcher."""

from __future__ import annotations

from typing import Any, NamedTuple

from bench.http.processes import database_apart
from bench.http.streams import LAST_S, check, open_stage
from bench.measure import Spread, keep, say
from bench.places import server_versions


class Plan(NamedTuple):
    """The sizes of one measurement; each job has one watcher and on average one event per second."""

    jobs: int
    events_per_s: int
    warm_s: float
    seconds: float
    rounds: int


FULL = Plan(jobs=500, events_per_s=500, warm_s=1.0, seconds=8.0, rounds=3)
QUICK = Plan(jobs=50, events_per_s=50, warm_s=0.2, seconds=1.0, rounds=1)


async def measure(kind: str, *, quick: bool) -> None:
    plan = QUICK if quick else FULL
    with database_apart(kind):
        rounds = [await _round(kind, plan) for _ in range(plan.rounds)]
    figures = {name: Spread.of([one[name] for one in rounds]) for name in rounds[0]}
    say(f"{kind}: " + ", ".join(f"{name} {spread.median:,.2f}" for name, spread in figures.items()))
    keep(f"live-{kind}", {"plan": plan._asdict(), "found": figures, "servers": await server_versions()}, quick=quick)


async def _round(kind: str, plan: Plan) -> dict[str, Any]:
    async with open_stage(kind, "uvicorn", plan.jobs) as stage:
        where = {"port": stage.server.port, "key": stage.key, "jobs": stage.jobs}
        await stage.readers.ask("open", **where, keeps=True, under="/api/jobs")
        pace = {"jobs": plan.jobs, "rate": plan.events_per_s, "type": "warning"}
        await stage.writer.ask("write", **pace, seconds=plan.warm_s)
        before = stage.server.usage()
        writes = await stage.writer.ask("write", **pace, seconds=plan.seconds)
        after = stage.server.usage()
        arrivals = await stage.readers.ask("collect", writes=writes, wait_s=max(LAST_S, plan.seconds / 4))
        closing = await stage.readers.ask("close")
    due = sum(count for _, count, _, _ in writes)
    check(due, arrivals, closing)
    return {
        "p50 ms": arrivals["asked_ms"]["p50"],
        "p99 ms": arrivals["asked_ms"]["p99"],
        "events/s": arrivals["rate"],
        "core": after.share_since(before),
        "MB": after.rss_mb,
        "missing": float(due - arrivals["deliveries"]),
    }
