"""Pipelines: the order of jobs, each created with its predecessor's end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callsheet import Callsheet, Context, Fatal, Pipeline
from callsheet.kernel.errors import InvalidTask
from callsheet.kernel.job import Job, Status
from callsheet.store.protocol import JobQuery
from tests.running_worker import until, working


def declared(app: Callsheet, seen: list[tuple[str, dict[str, Any]]]) -> Pipeline:
    episode = Pipeline(app, "episode", key="episode_id", retry=[0, 0])

    @episode.stage
    async def fetch(ctx: Context, episode_id: str, url: str) -> dict[str, Any]:
        seen.append(("fetch", {"url": url}))
        return {"path": f"/{episode_id}.wav", "bytes": 7}

    @episode.stage(queue="slow")
    async def read(ctx: Context, episode_id: str, path: str, language: str = "en") -> list[str]:
        seen.append(("read", {"path": path, "language": language}))
        return ["not", "a", "mapping"]

    @episode.stage(name="tell")
    async def told(ctx: Context, episode_id: str, url: str = "") -> None:
        seen.append(("tell", {"url": url}))

    return episode


async def all_jobs(app: Callsheet) -> list[Job]:
    engine = await app.engine()
    return list(reversed((await engine.find(JobQuery(limit=100))).jobs))


async def test_each_stage_starts_the_next_with_what_it_takes(app: Callsheet) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    episode = declared(app, seen)
    job = await episode.start(episode_id="42", url="https://example.org/a")
    async with working(app, queues=("default", "slow")):
        await until(lambda: len(seen) == 3)
    assert seen == [
        ("fetch", {"url": "https://example.org/a"}),
        ("read", {"path": "/42.wav", "language": "en"}),
        ("tell", {"url": ""}),
    ]
    jobs = await all_jobs(app)
    assert [item.kind for item in jobs] == ["episode.fetch", "episode.read", "episode.tell"]
    assert json.loads(jobs[1].payload) == {"episode_id": "42", "path": "/42.wav", "language": "en"}
    assert {item.correlation_id for item in jobs[1:]} == {job.job_id}


async def test_asking_twice_starts_it_once(small: Callsheet) -> None:
    episode = declared(small, [])
    first = await episode.start(episode_id="42", url="a")
    second = await episode.start(episode_id="42", url="b")
    other = await episode.start(episode_id="43", url="b")
    assert second.job_id == first.job_id
    assert other.job_id != first.job_id


async def test_a_stage_that_fails_starts_nothing(small: Callsheet) -> None:
    pipeline = Pipeline(small, "short", key="id")

    @pipeline.stage
    async def first(ctx: Context, id: str) -> None:
        raise Fatal("no")

    @pipeline.stage
    async def second(ctx: Context, id: str) -> None: ...

    job = await pipeline.start(id="1")
    await small.worker().run(burst=True)
    assert (await job.get()).status is Status.FAILED
    assert [item.kind for item in await all_jobs(small)] == ["short.first"]


async def test_it_can_begin_in_the_middle(small: Callsheet) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    episode = declared(small, seen)
    await episode.start("read", episode_id="42", path="/x.wav", ignored=1)
    await small.worker(queues=("default", "slow")).run(burst=True)
    assert [name for name, _ in seen] == ["read", "tell"]
    with pytest.raises(InvalidTask, match="it has fetch, read, tell"):
        await episode.start("nowhere", episode_id="42")


async def test_what_is_no_stage_is_told_at_once(small: Callsheet) -> None:
    pipeline = Pipeline(small, "odd", key="id")
    with pytest.raises(InvalidTask, match="an async function of ctx, id"):

        @pipeline.stage
        async def keyless(ctx: Context, url: str) -> None: ...

    with pytest.raises(InvalidTask, match="an async function of ctx, id"):

        @pipeline.stage
        def plain(ctx: Context, id: str) -> None: ...

    @pipeline.stage(name="same")
    async def one(ctx: Context, id: str) -> None: ...

    with pytest.raises(InvalidTask, match="already"):

        @pipeline.stage(name="same")
        async def two(ctx: Context, id: str) -> None: ...


async def test_what_is_kept_is_recalled_by_the_next_attempt(app: Callsheet) -> None:
    seen: list[Any] = []

    @app.task(retry=[0])
    async def count(ctx: Context) -> int:
        remembered_value = await ctx.recall("done")
        seen.append(remembered_value)
        if remembered_value is None:
            await ctx.keep("done", {"frames": 1})
            await ctx.keep("done", {"frames": 64})
            raise RuntimeError("once")
        return int(remembered_value["frames"])

    job = await count.enqueue()
    await app.worker().run(burst=True)
    assert await job.result() == 64
    assert seen == [None, {"frames": 64}]


async def test_a_next_stage_that_is_active_already_is_not_doubled(app: Callsheet) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    episode = declared(app, seen)
    waiting = await episode.start("read", episode_id="42", path="/earlier.wav")
    first = await episode.start(episode_id="42", url="a")
    await app.worker(queues=("default",)).run(burst=True)
    assert (await first.get()).status is Status.SUCCEEDED
    reading = [job for job in await all_jobs(app) if job.kind == "episode.read"]
    assert [job.job_id for job in reading] == [waiting.job_id]
