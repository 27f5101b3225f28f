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
from callsheet.outbox import Deliveries, DeliveryOptions, Endpoints, Rules
from callsheet.outbox.guard import networks
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
    """Both parts, with the contract's own settings, and with as many slots as a busy server would give.

    Everything that is compared takes turns: what the machine does meanwhile falls on both sides.
    """
    rounds, events, slices = (1, 2_000, 2) if quick else (3, 5_000, 6)
    settings = {"5 slots": CONTRACTS_OWN, "16 slots": WIDE}
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in settings}
    with database_apart(kind), _pinned():
        async with _sink() as (sink, ports):
            for _ in range(rounds):
                for name, options in settings.items():
                    rates[name].append(await _throughput(kind, sink, ports, options, events))
            fair = await _fairness(kind, sink, ports, slices)
    measured: dict[str, Any] = {
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
                "per_s": Spread.of([r["per_s"] for r in found]),
                "per_cpu_s": Spread.of([r["per_cpu_s"] for r in found]),
                "rss_growth_mb": max(r["rss_growth_mb"] for r in found),
            }
            for name, found in rates.items()
        },
        "fairness": fair,
    }
    measured["servers"] = await server_versions()
    keep(f"outbox-{kind}", measured, quick=quick)


@contextlib.contextmanager
def _pinned() -> Any:
    """This process, which delivers, on the core of servers."""
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
            found = Endpoints(engine.store, VaultSealer(LocalKeyring(first_keys())), RULES)
            for requester_id in REQUESTERS:
                await found.new_own_secret(requester_id)
            yield engine, found


async def _throughput(
    kind: str, sink: Helper, ports: Sequence[int], options: DeliveryOptions, events: int
) -> dict[str, float]:
    async with _open(kind) as (engine, found):
        await _add(engine, events, lambda n: ports[n % HEALTHY])
        rss = _rss_mb()
        cpu, begun = time.process_time(), time.perf_counter()
        deliveries = Deliveries(engine, found, options)
        async with deliveries:
            while deliveries.delivered < events:  # noqa: ASYNC110 - 50 looks in a second cost nothing
                await asyncio.sleep(0.02)
            cpu, took = time.process_time() - cpu, time.perf_counter() - begun
        came = await sink.ask("take")
        assert len(came) == events, len(came)
        grown = _rss_mb() - rss
    say(f"outbox {kind}: {events / took:,.0f} deliveries/s, {events / cpu:,.0f} in a second of CPU")
    return {"per_s": events / took, "per_cpu_s": events / cpu, "rss_growth_mb": grown}


async def _fairness(kind: str, sink: Helper, ports: Sequence[int], slices: int) -> dict[str, Any]:
    """The p99 of 20 healthy endpoints, without and with a slow one before them, in turns of a few seconds."""
    async with _served(kind, ports, backlog=0) as alone, _served(kind, ports, backlog=BACKLOG) as beside:
        sides = {"alone": alone, "beside": beside}
        for engine in sides.values():
            await _steady(engine, ports, WARM_S)  # does not count: who is new begins with one slot
        await asyncio.sleep(1)
        await sink.ask("take")
        taken: dict[str, list[list[float]]] = {name: [] for name in sides}
        for turn in range(slices):
            for name in sorted(sides, reverse=turn % 2 == 1):
                taken[name].append(await _latencies(sides[name], sink, ports))
    whole = {name: [ms for part in parts for ms in part] for name, parts in taken.items()}
    found: dict[str, Any] = {
        "p50_ms": percentile(whole["alone"], 0.5),
        "p99_ms": percentile(whole["alone"], 0.99),
        "p50_slow_ms": percentile(whole["beside"], 0.5),
        "p99_slow_ms": percentile(whole["beside"], 0.99),
    }
    found["ratio"] = found["p99_slow_ms"] / found["p99_ms"]
    found["ratios"] = [
        percentile(slow, 0.99) / percentile(own, 0.99)
        for own, slow in zip(taken["alone"], taken["beside"], strict=True)
    ]
    say(f"outbox {kind}: p99 {found['p99_ms']:.1f} ms alone, {found['p99_slow_ms']:.1f} beside {BACKLOG:,} slow ones")
    return found


@contextlib.asynccontextmanager
async def _served(kind: str, ports: Sequence[int], *, backlog: int) -> AsyncIterator[Engine]:
    """A store with a deliverer. As many events are written on both sides; without a backlog they have ended already."""
    async with _open(kind) as (engine, found):
        await _add(engine, BACKLOG, lambda _: ports[-1], REQUESTERS[:1])
        while not backlog:
            events = await engine.store.outbox_claim("bench", limit=MOST, lease_ms=60_000)
            if not events:
                break
            await engine.store.outbox_settle(
                [OutboxSettlement(event.event_id, event.claim_version, Delivery.DELIVERED) for event in events]
            )
        async with Deliveries(engine, found, CONTRACTS_OWN._replace(drain_s=0.1)):
            yield engine


async def _latencies(engine: Engine, sink: Helper, ports: Sequence[int]) -> list[float]:
    """From commit to arrival, of one turn."""
    written = await _steady(engine, ports, SLICE_S)
    came: dict[str, int] = {}
    async with asyncio.timeout(LATEST_S):
        while written.keys() - came.keys():
            came |= await sink.ask("take")
            await asyncio.sleep(0.05)
    return [(came[event_id] - at) / 1e6 for event_id, at in written.items()]


async def _steady(engine: Engine, ports: Sequence[int], seconds: float) -> dict[str, int]:
    """RATE events in a second for the healthy ones in turn; when each was committed."""
    begun, done = time.monotonic(), 0
    written: dict[str, int] = {}
    while (since := time.monotonic() - begun) < seconds:
        due = int(since * RATE) - done
        if due > 0:
            turn = REQUESTERS[done % len(REQUESTERS) :] + REQUESTERS[: done % len(REQUESTERS)]
            ids = await _add(engine, due, lambda n, done=done: ports[(done + n) % HEALTHY], turn)  # type: ignore[misc]
            written |= dict.fromkeys(ids, time.monotonic_ns())
            done += due
        await asyncio.sleep(TICK_S)
    return written


async def _add(
    engine: Engine, count: int, port: Callable[[int], int], requesters: Sequence[str] = REQUESTERS
) -> list[str]:
    """Events, by jobs that succeed, of requesters in turn."""
    ids: list[str] = []
    for first in range(0, count, MOST):
        size = min(MOST, count - first)
        made = [
            NewJob(job_id, "t", requester_id=requesters[(first + n) % len(requesters)])
            for n, job_id in enumerate(new_ids(size))
        ]
        await engine.enqueue(made)
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
