"""The section `workers`: parked claims, whole cycles and pick-up, on one kind of store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import NamedTuple

from bench.control_plane.wire import Line
from bench.http.processes import APART, Server, database_apart, server
from bench.measure import PAYLOAD, Spread, keep, percentile, say
from bench.places import fresh, server_versions
from callsheet.engine import Engine
from callsheet.engine.ids import new_ids
from callsheet.http.keys import ApiKeys
from callsheet.kernel.job import NewJob

WORKERS = 8
BATCH = 500
CLAIM, MOVES, COMPLETE = "/internal/worker/claim", "/internal/worker/moves", "/internal/worker/complete"
CLAIM_FIELDS = ("job_id", "attempt_id", "lease_token")


class Plan(NamedTuple):
    """The sizes of one measurement."""

    parked_claims: int
    requests: int
    jobs: int
    pickups: int
    rounds: int


FULL = Plan(parked_claims=2_000, requests=2_000, jobs=10_000, pickups=300, rounds=3)
QUICK = Plan(parked_claims=100, requests=100, jobs=500, pickups=20, rounds=1)


async def measure(kind: str, *, quick: bool) -> None:
    plan = QUICK if quick else FULL
    with database_apart(kind):
        rounds = [await _round(kind, plan) for _ in range(plan.rounds)]
    figures = {name: Spread.of([one[name] for one in rounds]) for name in rounds[0]}
    for name, spread in figures.items():
        say(f"{kind}, {name}: {spread.median:,.2f}")
    keep(
        f"workers-{kind}",
        {"plan": plan._asdict(), "apart": APART, "found": figures, "servers": await server_versions()},
        quick=quick,
    )


async def _round(kind: str, plan: Plan) -> dict[str, float]:
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(fresh(kind))
        engine = Engine.from_url(url)
        await engine.store.migrate()
        await stack.enter_async_context(engine)
        key, _ = await ApiKeys(engine.store).create("bench", scopes=["admin"], rate=1e9)
        running_server = await stack.enter_async_context(server("workers", "uvicorn", url))
        single = await _cycles(engine, running_server, key, plan.jobs // 5, 1)
        batch_rate = await _cycles(engine, running_server, key, plan.jobs, 50)
        waits = await _pickups(engine, running_server, key, plan.pickups)
        return {
            **await _with_parked_claims(engine, running_server, key, plan),
            "jobs/s, one by one": single,
            "jobs/s, by 50": batch_rate,
            "pick-up p50 ms": percentile(waits, 0.5),
            "pick-up p99 ms": percentile(waits, 0.99),
        }


async def _fill(engine: Engine, count: int, queue: str) -> None:
    ids = new_ids(count)
    for i in range(0, count, BATCH):
        await engine.enqueue([NewJob(job_id, "noop", PAYLOAD, queue) for job_id in ids[i : i + BATCH]])


async def _cycles(engine: Engine, running_server: Server, key: str, jobs: int, size: int) -> float:
    """Claim and complete all jobs of a queue; return jobs per second."""
    queue = f"cycle{size}"
    await _fill(engine, jobs, queue)
    start = time.perf_counter()
    counts = await asyncio.gather(*(_worker(running_server.port, key, queue, f"w{n}", size) for n in range(WORKERS)))
    took = time.perf_counter() - start
    if sum(counts) != jobs:
        raise RuntimeError(f"{sum(counts)} of {jobs} jobs were done")
    return jobs / took


async def _worker(port: int, key: str, queue: str, name: str, size: int) -> int:
    count = 0
    async with Line(port, key) as line:
        while True:
            response = await line.post(CLAIM, {"worker_id": name, "streams": [queue], "max_jobs": size})
            if not response["claimed"]:
                return count
            jobs = response.get("jobs", [response])
            if size == 1:
                await line.post(COMPLETE, {"worker_id": name, **{n: response[n] for n in CLAIM_FIELDS}, "result": 1})
            else:
                moves = [{"do": "complete", **{n: job[n] for n in CLAIM_FIELDS}, "result": 1} for job in jobs]
                answer = await line.post(MOVES, {"worker_id": name, "moves": moves})
                if not answer["ok"]:
                    raise RuntimeError(str(answer)[:300])
            count += len(jobs)


async def _pickups(engine: Engine, running_server: Server, key: str, times: int) -> list[float]:
    """Return the milliseconds from before each enqueue until the parked worker has the job."""
    waits = []
    async with Line(running_server.port, key) as line:
        for _ in range(times):
            asking = asyncio.create_task(
                line.post(CLAIM, {"worker_id": "parked", "streams": ["pickup"], "max_wait_ms": 30_000})
            )
            await asyncio.sleep(0.02)
            start = time.perf_counter()
            await _fill(engine, 1, "pickup")
            answer = await asking
            waits.append((time.perf_counter() - start) * 1000)
            await line.post(COMPLETE, {"worker_id": "parked", **{n: answer[n] for n in CLAIM_FIELDS}, "result": 1})
    return waits


async def _with_parked_claims(engine: Engine, running_server: Server, key: str, plan: Plan) -> dict[str, float]:
    """What another endpoint takes while nobody waits, and while many do; slices in turn are not possible here."""
    (job_id,) = new_ids(1)
    await engine.enqueue([NewJob(job_id, "noop", PAYLOAD, "looked-at")])
    async with contextlib.AsyncExitStack() as stack:
        reader = await stack.enter_async_context(Line(running_server.port, key))
        await _ask(reader, job_id, plan.requests // 4)
        idle = await _ask(reader, job_id, plan.requests)
        before = running_server.usage()
        lines = [await stack.enter_async_context(Line(running_server.port, key)) for _ in range(plan.parked_claims)]
        body = {"streams": ["nothing-comes-here"], "max_wait_ms": 60_000}
        waiting = [
            asyncio.create_task(line.post(CLAIM, {"worker_id": f"p{n}", **body})) for n, line in enumerate(lines)
        ]
        await asyncio.sleep(3.0)
        parked_ms = await _ask(reader, job_id, plan.requests)
        used = running_server.usage()
        await asyncio.sleep(2.0)
        share = running_server.usage().share_since(used)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return {
        "GET p99 ms, none parked": percentile(idle, 0.99),
        "GET p99 ms, parked": percentile(parked_ms, 0.99),
        "GET p50 ratio, parked ÷ none": percentile(parked_ms, 0.5) / percentile(idle, 0.5),
        "GET p99 ratio, parked ÷ none": percentile(parked_ms, 0.99) / percentile(idle, 0.99),
        "MB for all parked": used.rss_mb - before.rss_mb,
        "core used while parked": share,
    }


async def _ask(line: Line, job_id: str, times: int) -> list[float]:
    took = []
    for _ in range(times):
        start = time.perf_counter()
        await line.get(f"/v1/jobs/{job_id}")
        took.append((time.perf_counter() - start) * 1000)
    return took
