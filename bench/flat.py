"""Whether a claim stays as fast in a full store: 1,000 queued jobs beside a million queued, ended and future ones.

Turn by turn one claim on the small and one on the big store; what was claimed is settled and as many jobs come new.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import AsyncIterator
from typing import Any

from bench.fill import ENDED_JOBS, FUTURE, SEED, WAITING, multiply_postgres, multiply_sqlite, seed
from bench.measure import LEASE_MS, PAYLOAD, RESULT, WORKER, keep, new_ids, percentile, say
from bench.places import fresh, server_versions
from callsheet.kernel import commands
from callsheet.kernel.job import NewJob
from callsheet.store import store_from_url
from callsheet.store.protocol import ClaimRequest, Store

BIG = 1_000_000
QUICK_BIG = 100_000
SAMPLES = 2_000
QUICK_SAMPLES = 500
WARM_UP = 20
BATCHES = (1, 20)
VERBS = ("claim", "settle", "enqueue")
Timings = dict[str, list[float]]


async def measure(kind: str, *, quick: bool) -> None:
    """Latencies of one kind of store, small beside big."""
    big = QUICK_BIG if quick else BIG
    async with _full_store(kind, 0) as small_store, _full_store(kind, big) as big_store:
        stores = {"small": small_store, "big": big_store}
        rows = [await _alternate(stores, size, QUICK_SAMPLES if quick else SAMPLES) for size in BATCHES]
    for row in rows:
        small, full = row["claim"]["small"], row["claim"]["big"]
        say(
            f"flat {kind}, claims of {row['batch']}: p50 {small['p50']:.2f} → {full['p50']:.2f} ms, "
            f"p99 {small['p99']:.2f} → {full['p99']:.2f} ms"
        )
    keep(f"flat-{kind}", {"big": big, "rows": rows, "servers": await server_versions()}, quick=quick)


@contextlib.asynccontextmanager
async def _full_store(kind: str, more: int) -> AsyncIterator[Store]:
    """An open store with SEED queued jobs, or with `more` jobs in each of three states."""
    async with fresh(kind) as url:
        store = store_from_url(url)
        await store.migrate()
        await store.open()
        try:
            if more:
                await _fill(store, kind, url, more)
            else:
                await seed(store, WAITING)
            yield store
        finally:
            await store.close()


async def _fill(store: Store, kind: str, url: str, more: int) -> None:
    for state in (ENDED_JOBS, FUTURE, WAITING):
        began = time.perf_counter()
        example = (await seed(store, state))[0]
        copies = more // SEED - 1
        if kind == "sqlite":
            await multiply_sqlite(url.removeprefix("sqlite:///"), state, example, copies)
        else:
            await multiply_postgres(url, state, example, copies)
        say(f"flat {kind}: {more:,} {state.name} jobs written in {time.perf_counter() - began:.0f} s")


async def _alternate(stores: dict[str, Store], size: int, samples: int) -> dict[str, Any]:
    timings: dict[str, Timings] = {name: {verb: [] for verb in VERBS} for name in stores}
    gc.collect()
    for turn in range(WARM_UP + samples):
        for name, store in stores.items():
            took = await _turn(store, size)
            if turn >= WARM_UP:
                for verb, seconds in zip(VERBS, took, strict=True):
                    timings[name][verb].append(seconds * 1000)
    return {
        "batch": size,
        "samples": samples,
        **{verb: {name: _summary(timings[name][verb]) for name in stores} for verb in VERBS},
    }


async def _turn(store: Store, size: int) -> tuple[float, float, float]:
    """Claim, settle and bring as many again; how long each took."""
    new = [NewJob(i, "bench", PAYLOAD) for i in new_ids(size)]
    t0 = time.perf_counter()
    jobs = await store.claim(ClaimRequest(WORKER, limit=size, lease_ms=LEASE_MS))
    t1 = time.perf_counter()
    if len(jobs) != size:
        raise RuntimeError(f"claimed {len(jobs)} of {size} jobs from a store that holds more")
    settlements = [commands.succeed(job, RESULT) for job in jobs]
    t2 = time.perf_counter()
    await store.settle(settlements)
    t3 = time.perf_counter()
    await store.enqueue(new)
    return t1 - t0, t3 - t2, time.perf_counter() - t3


def _summary(milliseconds: list[float]) -> dict[str, float]:
    return {"p50": percentile(milliseconds, 0.5), "p99": percentile(milliseconds, 0.99), "max": max(milliseconds)}
