"""The examples of workers that speak nothing but SQL: whole pipelines, and kill -9 in the middle of the work."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callsheet.catalog.postgres.store import PostgresCatalog
from callsheet.catalog.records import SERVICE, VideoStatus
from callsheet.contracts.cortana.jobs import PIPELINE
from callsheet.engine import Engine
from callsheet.engine.housekeeping import Housekeeping
from tests.catalog.test_jobs_insert import Place, place
from tests.catalog.test_jobs_moves import history, queued
from tests.contracts.redis_gateway import EXAMPLES, node_and_npm, node_folder

__all__ = ["place"]
LANGUAGES = ("python", "node")
PATIENCE_S = 60


@contextlib.asynccontextmanager
async def worker(
    place: Place, language: str, job_type: str, **settings: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run one example worker as a program; kill the program with signal 9 at the end."""
    assert isinstance(place.catalog, PostgresCatalog)
    program: list[str | Path] = [sys.executable, EXAMPLES / "sql_worker.py"]
    if language == "node":
        program = [node_and_npm()[0], Path(node_folder("sql-worker-node").name, "worker.mjs")]
    process = await asyncio.create_subprocess_exec(
        *program,
        place.catalog.target.dsn,
        job_type,
        f"{language}-worker",
        env={**os.environ, **settings},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def at_work(process: asyncio.subprocess.Process) -> str:
    """Return the id of the job that the worker prints."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return (await process.stdout.readline()).decode().split()[-1]


async def until_done(place: Place, job_id: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for _ in Engine(place.store).watch(job_id):
            pass


@pytest.mark.timeout(200)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_worker_killed_in_its_work_is_recovered(place: Place, language: str) -> None:
    _, job_id = await queued(place)
    async with worker(place, language, "transcode", WORK_S="3600") as process:
        assert await at_work(process) == job_id
        process.kill()
        await process.wait()
    assert await Housekeeping(Engine(place.store)).reap() == 0  # its lease still lasts
    await place.session.execute("UPDATE jobs SET locked_until = now() - interval '1 second'")
    assert await Housekeeping(Engine(place.store)).reap() == 1
    other = next(name for name in LANGUAGES if name != language)
    async with worker(place, other, "transcode") as process:
        assert await at_work(process) == job_id
        await until_done(place, job_id)
    events, attempts = await history(place, job_id)
    assert events == ["queued", "running", "lease_lost", "running", "done"]
    assert [outcome for _, _, outcome in attempts] == ["lease_lost", "succeeded"]
    rows = await place.session.fetch("SELECT job_type::text, status::text FROM jobs ORDER BY created_at, id")
    assert [tuple(row) for row in rows] == [("transcode", "done"), ("sample", "queued")]


@pytest.mark.timeout(200)
async def test_workers_of_two_languages_take_a_video_through_all_stages(place: Place) -> None:
    video_id, _ = await queued(place)
    for number, stage in enumerate(PIPELINE):
        async with worker(place, LANGUAGES[number % 2], stage) as process:
            await until_done(place, await at_work(process))
    video = await place.catalog.video(video_id, SERVICE)
    assert video is not None
    assert video.status is VideoStatus.READY
    assert list(json.loads(video.jobs)) == sorted(PIPELINE, key=lambda stage: (len(stage), stage))


def test_the_examples_know_nothing_of_us() -> None:
    tree = ast.parse((EXAMPLES / "sql_worker.py").read_text("utf-8"))
    imports = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imports |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imports if name.startswith("callsheet")]
    manifest = json.loads((EXAMPLES / "sql-worker-node" / "package.json").read_text("utf-8"))
    assert list(manifest["dependencies"]) == ["pg"]
    lock = json.loads((EXAMPLES / "sql-worker-node" / "package-lock.json").read_text("utf-8"))
    assert "resolved" not in json.dumps(lock)
