"""The section `outbox`: deliveries to a sink on this machine, signed and written down, by one deliverer on one core."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from bench.http.processes import APART, LINE_BYTES, OTHER_CORES, ROOT, SERVER_CORES, Helper, database_apart
from bench.measure import Spread, keep, new_ids, percentile, say
from bench.places import fresh, server_versions
from callsheet.app.sealing import VaultSealer
from callsheet.engine import Engine
from callsheet.kernel import commands
from callsheet.kernel.job import Delivery, NewJob, NewOutboxEvent
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.net.guard import Rules, networks
from callsheet.outbox import Deliveries, DeliveryOptions, Endpoints
from callsheet.store.protocol import ClaimRequest
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring

HEALTHY = 20
BACKLOG = 10_000
RATE = 100
SLICE_S, WARM_S, LATEST_S = 3.0, 2.0, 30.0
TICK_S = 0.01
MOST = 500
REQUESTERS = ("one", "two", "three", "four")
RULES = Rules(http=True, networks=networks(["127.0.0.0/8"]), any_port=True)
CONTRACTS_OWN = DeliveryOptions()
WIDE = DeliveryOptions(batch=25, concurrency=16)


async def measure(kind: str, *, quick: bool) -> None:
    """Measure throughput and fairness, with the contract's own settings and with 16 slots.

    Compared sides take turns, so that other load on the machine slows both.
    """
    rounds, events, slices = (1, 2_000, 2) if quick else (3, 5_000, 6)
    settings = {"5 slots": CONTRACTS_OWN, "16 slots": WIDE}
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in settings}
    with database_apart(kind), _on_server_cores():
        async with _sink() as (sink, ports):
            for _ in range(rounds):
                for name, options in settings.items():
                    rates[name].append(await _throughput(kind, sink, ports, options, events))
            fair = await _fairness(kind, sink, ports, slices)
    figures: dict[str, Any] = {
        "apart": APART,
        "plan": {
            "events": events,
            "healthy": HEALTHY,
            "backlog": BACKLOG,
            "rate": RATE,
            "slices": slices,
            "seconds": SLICE_S,
        },
        "rates": {
            name: {
                "per_s": Spread.of([r["per_s"] for r in rate]),
                "per_cpu_s": Spread.of([r["per_cpu_s"] for r in rate]),
                "rss_growth_mb": max(r["rss_growth_mb"] for r in rate),
            }
            for name, rate in rates.items()
        },
        "fairness": fair,
    }
    figures["servers"] = await server_versions()
    keep(f"outbox-{kind}", figures, quick=quick)


@contextlib.contextmanager
def _on_server_cores() -> Any:
    """Pin this process, which delivers, to the cores of servers."""
    before = os.sched_getaffinity(0)
    if APART:
        os.sched_setaffinity(0, SERVER_CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.asynccontextmanager
async def _sink() -> AsyncIterator[tuple[Helper, list[int]]]:
    command = ["taskset", "-c", ",".join(map(str, OTHER_CORES))] if APART else []
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process = await asyncio.create_subprocess_exec(
        *command, sys.executable, "-m", "bench.outbox.sink", stdin=PIPE, stdout=PIPE, limit=LINE_BYTES, env=environ
    )
    helper = Helper(process)
    try:
        yield helper, await helper.ask("open", ports=HEALTHY)
    finally:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def _open(kind: str) -> AsyncIterator[tuple[Engine, Endpoints]]:
    async with fresh(kind) as url:
        engine = Engine.from_url(url)
        await engine.store.migrate()
        async with engine:
            endpoints = Endpoints(engine.store, VaultSealer(LocalKeyring(first_keys())), RULES)
            for requester_id in REQUESTERS:
                await endpoints.new_own_secret(requester_id)
            yield engine, endpoints


async def _throughput(
    kind: str, sink: Helper, ports: Sequence[int], options: DeliveryOptions, events: int
) -> dict[str, float]:
    async with _open(kind) as (engine, endpoints):
        await _add(engine, events, lambda n: ports[n % HEALTHY])
        rss = _rss_mb()
        cpu, start = time.process_time(), time.perf_counter()
        deliveries = Deliveries(engine, endpoints, options)
        async with deliveries:
            while deliveries.delivered < events:  # noqa: ASYNC110 - 50 looks in a second cost nothing
                await asyncio.sleep(0.02)
            cpu, took = time.process_time() - cpu, time.perf_counter() - start
        _check(events, deliveries.delivered, await _arrivals(sink))
        growth_mb = _rss_mb() - rss
    say(f"outbox {kind}: {events / took:,.0f} deliveries/s, {events / cpu:,.0f} in a second of CPU")
    return {"per_s": events / took, "per_cpu_s": events / cpu, "rss_growth_mb": growth_mb}


class CountsDiffer(Exception):
    """An event was lost or arrived twice: the figures mean nothing."""


async def _arrivals(sink: Helper) -> dict[str, int]:
    """Return when each event arrived since the last call; raise CountsDiffer if one arrived twice."""
    answer = await sink.ask("take")
    if answer["repeats"]:
        raise CountsDiffer(f"the receiver got {answer['repeats']} events twice")
    return dict(answer["arrivals"])


def _check(written: int, delivered: int, arrivals: dict[str, int]) -> None:
    if not written == delivered == len(arrivals):
        raise CountsDiffer(f"{written} events were written, {delivered} delivered, and {len(arrivals)} arrived")


async def _fairness(kind: str, sink: Helper, ports: Sequence[int], slices: int) -> dict[str, Any]:
    """Measure the p99 of 20 healthy endpoints with and without a slow endpoint, in turns of a few seconds."""
    async with _delivering(kind, ports, backlog=0) as alone, _delivering(kind, ports, backlog=BACKLOG) as beside:
        sides = {"alone": alone, "beside": beside}
        for engine in sides.values():
            await _steady(engine, ports, WARM_S)  # does not count: who is new begins with one slot
        await asyncio.sleep(1)
        await sink.ask("take")
        latencies_of: dict[str, list[list[float]]] = {name: [] for name in sides}
        for turn in range(slices):
            for name in sorted(sides, reverse=turn % 2 == 1):
                latencies_of[name].append(await _latencies(sides[name], sink, ports))
    whole = {name: [ms for part in parts for ms in part] for name, parts in latencies_of.items()}
    figures: dict[str, Any] = {
        "p50_ms": percentile(whole["alone"], 0.5),
        "p99_ms": percentile(whole["alone"], 0.99),
        "p50_slow_ms": percentile(whole["beside"], 0.5),
        "p99_slow_ms": percentile(whole["beside"], 0.99),
    }
    figures["ratio"] = figures["p99_slow_ms"] / figures["p99_ms"]
    figures["ratios"] = [
        percentile(slow, 0.99) / percentile(own, 0.99)
        for own, slow in zip(latencies_of["alone"], latencies_of["beside"], strict=True)
    ]
    say(
        f"outbox {kind}: p99 {figures['p99_ms']:.1f} ms alone, {figures['p99_slow_ms']:.1f} beside {BACKLOG:,} slow ones"
    )
    return figures


@contextlib.asynccontextmanager
async def _delivering(kind: str, ports: Sequence[int], *, backlog: int) -> AsyncIterator[Engine]:
    """Open a store with a deliverer.

    Both sides get the same backlog; `backlog=0` delivers all events before the block.
    """
    async with _open(kind) as (engine, endpoints):
        await _add(engine, BACKLOG, lambda _: ports[-1], REQUESTERS[:1])
        while not backlog:
            events = await engine.store.outbox_claim("bench", limit=MOST, lease_ms=60_000)
            if not events:
                break
            await engine.store.outbox_settle(
                [OutboxSettlement(event.event_id, event.claim_version, Delivery.DELIVERED) for event in events]
            )
        async with Deliveries(engine, endpoints, CONTRACTS_OWN._replace(drain_s=0.1)):
            yield engine


async def _latencies(engine: Engine, sink: Helper, ports: Sequence[int]) -> list[float]:
    """From commit to arrival, of one turn."""
    written_at = await _steady(engine, ports, SLICE_S)
    came: dict[str, int] = {}
    async with asyncio.timeout(LATEST_S):
        while written_at.keys() - came.keys():
            came |= await _arrivals(sink)
            await asyncio.sleep(0.05)
    return [(came[event_id] - at) / 1e6 for event_id, at in written_at.items()]


async def _steady(engine: Engine, ports: Sequence[int], seconds: float) -> dict[str, int]:
    """Write RATE events per second for the healthy endpoints in turn; return each event's commit time."""
    start, count = time.monotonic(), 0
    written_at: dict[str, int] = {}
    while (since := time.monotonic() - start) < seconds:
        due = int(since * RATE) - count
        if due > 0:
            turn = REQUESTERS[count % len(REQUESTERS) :] + REQUESTERS[: count % len(REQUESTERS)]
            ids = await _add(engine, due, lambda n, count=count: ports[(count + n) % HEALTHY], turn)  # type: ignore[misc]
            written_at |= dict.fromkeys(ids, time.monotonic_ns())
            count += due
        await asyncio.sleep(TICK_S)
    return written_at


async def _add(
    engine: Engine, count: int, port: Callable[[int], int], requesters: Sequence[str] = REQUESTERS
) -> list[str]:
    """Events, by jobs that succeed, of requesters in turn."""
    ids: list[str] = []
    for first in range(0, count, MOST):
        size = min(MOST, count - first)
        events = [
            NewJob(job_id, "t", requester_id=requesters[(first + n) % len(requesters)])
            for n, job_id in enumerate(new_ids(size))
        ]
        await engine.enqueue(events)
        jobs = await engine.claim(ClaimRequest("bench", limit=size))
        names = [f"evt_{job.job_id}" for job in jobs]
        ids += names
        await engine.settle(
            [
                commands.succeed(job, outbox=(_event(name, port(first + n)),))
                for n, (job, name) in enumerate(zip(jobs, names, strict=True))
            ]
        )
    return ids


def _event(name: str, port: int) -> NewOutboxEvent:
    body = f'{{"event_id":"{name}","status":"succeeded","outputs":["https://example.org/out.mp4"]}}'
    return NewOutboxEvent(name, f"http://127.0.0.1:{port}/hook", body)


def _rss_mb() -> float:
    import psutil  # noqa: PLC0415 - after the pinning

    return float(psutil.Process().memory_info().rss / 2**20)
