"""`POST /v1/jobs` at 32 connections: the real route beside an empty one, uvicorn beside granian, round by round."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.http.processes import Helper, Server, Usage, helper, new_key, server, trivial_server
from bench.measure import PAYLOAD, Spread, percentile, say
from bench.places import fresh
from callsheet.engine import Engine
from callsheet.engine.ids import new_ids
from callsheet.kernel.job import NewJob

CONNECTIONS = 32
BODY = f'{{"task":"chat","payload":{PAYLOAD}}}'
DEEP = 50_000
BATCH = 500


class Plan(NamedTuple):
    """The sizes of one measurement. Slices are short, so that other load on the machine slows all contestants alike."""

    rounds: int
    slices: int
    seconds: float
    warm_s: float
    deep: int


FULL = Plan(rounds=5, slices=8, seconds=0.25, warm_s=0.5, deep=DEEP)
QUICK = Plan(rounds=1, slices=2, seconds=0.25, warm_s=0.2, deep=0)
BETWEEN_S = 0.05  # what does not count of a slice: its connections are new


class Contestant(NamedTuple):
    """A route on a server program; `queued_jobs` are enqueued in its store before."""

    name: str
    app: str
    program: str
    queued_jobs: int = 0


class Refused(Exception):
    """A request got no answer, or an answer other than 202: the figures mean nothing."""


async def measure(kind: str, programs: Sequence[str], *, quick: bool) -> dict[str, Any]:
    plan = QUICK if quick else FULL
    field = [Contestant(f"{app} {program}", app, program) for program in programs for app in ("jobs", "empty")]
    if plan.deep:
        field.append(Contestant("deep uvicorn", "jobs", "uvicorn", plan.deep))
    rounds_of: dict[str, list[dict[str, Any]]] = {one.name: [] for one in field}
    async with helper("load") as load:
        ceiling = await _ceiling(load, plan)
        for n in range(plan.rounds):
            for name, one in (await _round(kind, field, load, plan, n)).items():
                rounds_of[name].append(one)
    summaries = {name: _summary(rounds) for name, rounds in rounds_of.items()}
    ratios = {name: _ratio(rounds_of, "rate", *name.split("/")) for name in _pairs(rounds_of)}
    costs = {name: _ratio(rounds_of, "cpu_us", *name.split("/")) for name in _pairs(rounds_of)}
    for name, summary in summaries.items():
        say(
            f"{kind}, {name}: {summary['rate'].median:,.0f} requests/s, {summary['cpu_us'].median:.0f} µs of CPU, p99 {summary['p99'].median:.1f} ms"
        )
    say(f"{kind}: " + ", ".join(f"{n} = {r.median:.2f} (CPU {costs[n].median:.2f})" for n, r in ratios.items()))
    return {
        "rounds": plan.rounds,
        "slices": plan.slices,
        "seconds": plan.seconds,
        "connections": CONNECTIONS,
        "deep": plan.deep,
        "ceiling": ceiling,
        "found": summaries,
        "ratios": ratios,
        "costs": costs,
    }


class Slice(NamedTuple):
    """What one slice of load has found, and its server has used."""

    load: dict[str, Any]
    before: Usage
    after: Usage


async def _ceiling(load: Helper, plan: Plan) -> float:
    """Return the requests per second that the load program reaches at a trivial server."""
    async with trivial_server() as one:
        loads = [(await _slice(load, one, "no-key", BETWEEN_S, plan.seconds)).load for _ in range(3)]
    return max(float(len(one["took_ms"]) / one["seconds"]) for one in loads)


async def _round(
    kind: str, field: Sequence[Contestant], load: Helper, plan: Plan, number: int
) -> dict[str, dict[str, Any]]:
    """Start all contestants, each on a fresh store, and load them in turns."""
    slices_of: dict[str, list[Slice]] = {one.name: [] for one in field}
    async with contextlib.AsyncExitStack() as stack:
        servers = []
        for one in field:
            url = await stack.enter_async_context(fresh(kind))
            key = await new_key(url)
            await _fill(url, one.queued_jobs)
            running_server = await stack.enter_async_context(server(one.app, one.program, url))
            await _slice(load, running_server, key, 0.0, plan.warm_s)
            servers.append((one.name, running_server, key))
        for n in range(plan.slices):
            turn = (n + number) % len(servers)
            for name, running_server, key in servers[turn:] + servers[:turn]:
                slices_of[name].append(await _slice(load, running_server, key, BETWEEN_S, plan.seconds))
    return {name: _together(slices) for name, slices in slices_of.items()}


async def _slice(load: Helper, one: Server, key: str, warm_s: float, seconds: float) -> Slice:
    arguments = {"port": one.port, "key": key, "body": BODY, "connections": CONNECTIONS}
    before = one.usage()
    figures: dict[str, Any] = await load.ask("run", **arguments, warm_s=warm_s, seconds=seconds)
    if figures["refused"] or figures["sent"] != figures["answered"]:
        raise Refused(f"{figures['sent']} requests had {figures['answered']} answers, refused: {figures['refused']}")
    return Slice(figures, before, one.usage())


def _together(slices: Sequence[Slice]) -> dict[str, Any]:
    """Merge the slices of one contestant's round into one record."""
    took = [ms for one in slices for ms in one.load["took_ms"]]
    if not took:
        raise Refused("there was no answer in all of a round")
    cpu_s = sum(one.after.cpu_s - one.before.cpu_s for one in slices)
    return {
        "rate": len(took) / sum(one.load["seconds"] for one in slices),
        "p50": percentile(took, 0.5),
        "p99": percentile(took, 0.99),
        "cpu": statistics.fmean(one.after.share_since(one.before) for one in slices),
        "cpu_us": cpu_s / sum(one.load["answered"] for one in slices) * 1e6,
        "others": statistics.fmean(one.after.others_since(one.before) for one in slices),
        "rss_mb": slices[-1].after.rss_mb,
        "load_cpu": statistics.fmean(one.load["load_cpu"] for one in slices),
    }


async def _fill(url: str, count: int) -> None:
    """Enqueue jobs as the route would have created them."""
    async with Engine.from_url(url) as engine:
        ids = new_ids(count)
        for i in range(0, count, BATCH):
            part = ids[i : i + BATCH]
            await engine.enqueue([NewJob(job_id, "chat", PAYLOAD, contract="redis_gateway") for job_id in part])


def _summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        **{name: Spread.of([r[name] for r in rounds]) for name in ("rate", "p50", "p99", "cpu_us")},
        "cpu": statistics.median(r["cpu"] for r in rounds),
        "others": statistics.median(r["others"] for r in rounds),
        "rss_mb": statistics.median(r["rss_mb"] for r in rounds),
        "load_cpu": statistics.median(r["load_cpu"] for r in rounds),
    }


def _pairs(rounds_of: dict[str, Any]) -> list[str]:
    """Return the compared pairs: real and empty route, granian and uvicorn, deep and empty queue."""
    pairs = [("jobs uvicorn", "empty uvicorn"), ("jobs granian", "empty granian"), ("deep uvicorn", "jobs uvicorn")]
    pairs += [(f"{app} granian", f"{app} uvicorn") for app in ("jobs", "empty")]
    return [f"{a}/{b}" for a, b in pairs if a in rounds_of and b in rounds_of]


def _ratio(rounds_of: dict[str, list[dict[str, Any]]], figure: str, a: str, b: str) -> Spread:
    return Spread.of([x[figure] / y[figure] for x, y in zip(rounds_of[a], rounds_of[b], strict=True)])
