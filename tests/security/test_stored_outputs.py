"""Stored outputs count for their requester, within its quota, until deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callsheet import Callsheet, Context
from callsheet.engine.quotas import Quotas
from callsheet.engine.stored import ARTIFACTS, OUTPUTS
from callsheet.kernel.job import Status
from callsheet.objects import Objects
from callsheet.objects.owned import with_folders
from tests.contracts.cortana.kit import Stack
from tests.http.conftest import url  # noqa: F401 - a fixture
from tests.security.of_objects import Place, placed


@pytest.fixture
async def here(url: str, tmp_path: Path) -> AsyncIterator[Place]:  # noqa: F811
    async with placed(url, tmp_path) as place:
        yield place


async def parts(place: Place | Stack, tenant: str = "acme") -> dict[str, int]:
    parts = (await place.live.state.quotas.bytes.of(tenant)).parts
    return {part: count for part, count in parts.items() if count}


async def really_there(objects: Objects, *folders: str) -> int:
    return sum([info.size_bytes for folder in folders for info in [i async for i in objects.list(folder)]])


async def run(app: Callsheet, name: str, **payload: object) -> Status:
    job = await app.tasks[name].enqueue(**payload, requester_id="acme", max_attempts=1)
    await app.worker(poll=0.01).run(burst=True)
    return (await job.get()).status


async def test_every_verb_that_writes_is_counted(here: Place, tmp_path: Path) -> None:
    seen: list[dict[str, int]] = []

    async def pieces() -> AsyncIterator[bytes]:
        yield b"x" * 60
        yield b"y" * 40

    @here.app.task
    async def store(ctx: Context) -> None:
        objects = ctx.objects
        await objects.put("outputs/acme/a", b"x" * 100)
        seen.append(await parts(here))
        await objects.put("outputs/acme/a", b"x" * 30)  # over it: the difference counts
        seen.append(await parts(here))
        await objects.put("outputs/acme/streamed", pieces())
        seen.append(await parts(here))
        (tmp_path / "file").write_bytes(b"z" * 500)
        await objects.put_file(f"jobs/{ctx.job_id}/steps/file", tmp_path / "file")
        seen.append(await parts(here))
        await objects.copy("outputs/acme/a", "outputs/acme/b")
        upload = await objects.begin_multipart("outputs/acme/c", part_bytes=5)
        await objects.put_part(upload, 1, b"12345")
        await objects.put_part(upload, 2, b"67")
        await objects.complete_multipart(upload)
        seen.append(await parts(here))
        await objects.delete("outputs/acme/streamed", "outputs/acme/never-was")
        await objects.delete_prefix("outputs/acme")
        seen.append(await parts(here))

    assert await run(here.app, "store") is Status.SUCCEEDED
    with_file = {ARTIFACTS: 500}
    assert seen == [
        {OUTPUTS: 100},
        {OUTPUTS: 30},
        {OUTPUTS: 130},
        {OUTPUTS: 130, **with_file},
        {OUTPUTS: 167, **with_file},
        with_file,
    ]


async def test_a_task_stores_no_more_than_its_requester_may(here: Place) -> None:
    """A server's published quota holds in workers without an own setting, and for concurrent tasks."""
    await here.live.state.quotas.set("acme", {"bytes": 1_000})

    @here.app.task
    async def fill(ctx: Context, name: str, size: int) -> None:
        await ctx.objects.put(f"outputs/acme/{name}", b"x" * size)

    tasks = here.app.tasks
    jobs = [await tasks["fill"].enqueue(name=str(n), size=300, requester_id="acme", max_attempts=5) for n in range(10)]
    await here.app.worker(poll=0.01, concurrency=10).run(burst=True)
    ended_jobs = [await job.get() for job in jobs]
    assert sorted(job.status for job in ended_jobs).count(Status.SUCCEEDED) == 3
    refusal = next(job for job in ended_jobs if job.status is not Status.SUCCEEDED)
    assert '"code":"quota_exceeded"' in (refusal.error or "").replace(" ", "")
    assert (refusal.status, refusal.attempt_count) == (Status.FAILED, 1), "another attempt would find the same"
    objects = await here.app.objects()
    assert (await really_there(objects, "outputs/acme"), await parts(here)) == (900, {OUTPUTS: 900})


async def test_a_stream_of_unknown_length_ends_at_the_quota(here: Place) -> None:
    await here.live.state.quotas.set("acme", {"bytes": 20_000_000})

    async def sea() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 1_000_000

    @here.app.task
    async def pour(ctx: Context) -> None:
        await ctx.objects.put("outputs/acme/sea", sea())

    assert await run(here.app, "pour") is Status.FAILED
    assert (await parts(here), await really_there(await here.app.objects(), "outputs")) == ({}, 0)


async def test_folders_of_somebody_else_are_counted_for_them(here: Place) -> None:
    """A clip cut by a team member belongs to the video, whose owner may delete it."""

    @here.app.task
    async def cut(ctx: Context) -> None:
        objects = with_folders(ctx.objects, ["videos/clips/v"], payer="owner")
        await objects.put("videos/clips/v/c.mp4", b"x" * 70)
        await objects.put("outputs/acme/log", b"x" * 5)
        await objects.delete("videos/clips/v/c.mp4", "outputs/acme/log")
        await objects.put("videos/clips/v/d.mp4", b"x" * 60)

    assert await run(here.app, "cut") is Status.SUCCEEDED
    assert (await parts(here), await parts(here, "owner")) == ({}, {OUTPUTS: 60})


async def test_defaults_of_a_server_hold_in_workers(here: Place) -> None:
    await here.live.state.quotas.publish()  # as at its start; the store was emptied since
    defaults = here.live.state.limits.share
    follower = Quotas(here.live.engine.store, None)
    await follower.refresh(now=True)
    assert follower.limits_of("acme") == defaults
    assert follower.limits_of("").bytes == 0
