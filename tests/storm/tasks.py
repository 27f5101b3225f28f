"""A storm's app: tasks that write their actions to the history. Workers get it as `tests.storm.tasks:app`.

Each function records its start, its return, and its deliberate errors; its result names the claim that it ran under.
STORM_DISK names a file: while it is there, this machine's disk is full (see `no_room`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callsheet import Backoff, Callsheet, Context, Fatal, RetryPolicy
from callsheet.worker import disk
from tests.storm.history import FOLDER, note

app = Callsheet(os.environ.get("CALLSHEET_DATABASE_URL") or "sqlite:////nowhere/at/all.db")
# Many workers die here: a job that each of them held would else be a dead letter, and rightly so.
ENDLESS = 10_000
AT_ONCE = Backoff(table_ms=(50,))
PATIENT = RetryPolicy(
    max_attempts=ENDLESS, max_lease_losses=ENDLESS, backoff=AT_ONCE, lost_lease_backoff=Backoff(table_ms=(0, 200))
)
WATCH_S = 0.1
FULL = Path(os.environ.get("STORM_DISK") or "/nowhere/at/all")


def no_room(folder: Path) -> disk.Usage | None:
    """Return a folder's disk usage, with no free space while the storm says so."""
    return disk.Usage(1 << 30, 0) if FULL.exists() else disk.usage_of(folder)


disk.DiskRoom.__init__.__defaults__ = (no_room,)


def write(path: Path, data: bytes) -> None:
    """Write a file; on a disk that is full for the storm alone, the system's own error comes from /dev/full."""
    target = Path("/dev/full") if FULL.exists() else path
    with target.open("wb", buffering=0) as file:
        file.write(data)


@contextlib.contextmanager
def noted(ctx: Context, **facts: Any) -> Iterator[dict[str, Any]]:
    """Note the beginning of an execution, and its end unless it raises; gives what identifies it."""
    run = {"job": ctx.job_id, "claim": ctx.job.claim_version}
    note("began", **run, task=ctx.job.kind, part=os.environ.get("POD_NAME", ""), **facts)
    yield run
    note("returned", **run)


def raise_as_asked(ctx: Context, fails: int) -> None:
    """Raise an error in the first `count` attempts."""
    if ctx.attempt <= fails:
        note("raised", job=ctx.job_id, claim=ctx.job.claim_version)
        raise RuntimeError(f"attempt {ctx.attempt} fails, as it was asked to")


@app.task(retry=PATIENT)
async def count(ctx: Context, mark: str, n: int, ms: int = 0, fails: int = 0) -> dict[str, Any]:
    """Report progress with some waiting between, keep a step, use a folder, and every tenth time ask for more."""
    with noted(ctx, ms=ms) as run:
        ctx.progress(10)
        await asyncio.sleep(ms / 6000)
        raise_as_asked(ctx, fails)
        async with ctx.step("half") as step:
            if not step.done:
                note("stepped", **run)
                step.result = n
        ctx.progress(60, "half")
        if n % 3 == 0:
            write(ctx.workspace / "scratch", os.urandom(4096))
        await asyncio.sleep(ms / 1500)
        ctx.progress(40, "it must not fall")
        ctx.emit("token", text=str(n))
        await asyncio.sleep(ms / 3000)
        if n % 10 == 0:
            ctx.enqueue(follow, mark=f"after {ctx.job_id}")
    return {"n": n, "claim": run["claim"]}


@app.task(retry=PATIENT)
async def follow(ctx: Context, mark: str) -> dict[str, Any]:
    """Follow a success."""
    with noted(ctx, mark=mark) as run:
        pass
    return {"claim": run["claim"]}


@app.task(retry=PATIENT)
async def keyed(ctx: Context, mark: str, ms: int = 0) -> dict[str, Any]:
    """Hold a key for a while: a unique key or a limited key."""
    with noted(ctx, ms=ms) as run:
        await asyncio.sleep(ms / 1000)
    return {"claim": run["claim"]}


@app.task(retry=PATIENT)
async def vigil(ctx: Context, mark: str, ms: int = 0) -> dict[str, Any]:
    """Wait, and return only while no later claim has begun: the worker must stop lost jobs."""
    claims = Path(os.environ[FOLDER], "vigils", ctx.job_id)
    claims.mkdir(parents=True, exist_ok=True)
    with noted(ctx, ms=ms) as run:
        (claims / str(run["claim"])).touch()
        await asyncio.sleep(ms / 1000)
        while any(int(path.name) > run["claim"] for path in claims.iterdir()):
            await asyncio.sleep(WATCH_S)
    return {"claim": run["claim"]}


@app.task(retry=PATIENT)
async def doomed(ctx: Context, mark: str) -> None:
    """Fail for good."""
    with noted(ctx) as run:
        note("raised", **run)
        raise Fatal("as it was asked to")


@app.task(retry=PATIENT, executor="process")
def grind(ctx: Context, mark: str, ms: int = 0) -> dict[str, Any]:
    """Work in a child process, with a folder."""
    with noted(ctx, ms=ms) as run:
        write(ctx.workspace / "scratch", os.urandom(4096))
        ctx.progress(50)
        time.sleep(ms / 1000)
    return {"claim": run["claim"]}


@app.task(retry=PATIENT)
async def tick(ctx: Context, mark: str) -> dict[str, Any]:
    """Run for one slot of a schedule."""
    with noted(ctx, mark=mark) as run:
        pass
    return {"claim": run["claim"]}


@app.task(retry=PATIENT, contract="euterpe", queue="films")
async def film(
    ctx: Context, *, mark: str, status_webhook_url: str, metadata: dict[str, Any], ms: int = 0, fails: int = 0
) -> dict[str, Any]:
    """Run contract 000's stages with an object from our storage, so that callbacks report each stage."""
    with noted(ctx, ms=ms) as run:
        await ctx.stage("fetching")
        await asyncio.sleep(ms / 2000)
        await ctx.stage("processing")
        raise_as_asked(ctx, fails)
        await asyncio.sleep(ms / 2000)
        await ctx.stage("uploading")
        key = f"jobs/{ctx.job_id}/film"
        await ctx.objects.put(key, mark.encode())
        stored_row = await ctx.objects.get(key)
        note("stored", **run, same=stored_row == mark.encode())
    return {"outputs": [{"key": key}], "claim": run["claim"]}
