"""Lists agree with bodies: a job is listed under the status in its body, and under no other.

Jobs of every contract live random lives (a seed has the same ones each time), and are left where these end.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callsheet.api import dead_letters
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import Video, VideoStatus, Writer
from callsheet.cli import jobs as cli_jobs
from callsheet.contracts.aura import routes as aura
from callsheet.contracts.cortana import pipeline_jobs
from callsheet.contracts.redis_gateway import routes as gateway
from callsheet.engine.ids import new_id
from callsheet.kernel import commands
from callsheet.kernel.contracts import CONTRACTS
from callsheet.kernel.errors import IllegalMove
from callsheet.kernel.job import Job, NewJob, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import ClaimRequest, JobQuery
from tests import stores
from tests.contracts.cortana.kit import TENANT, running
from tests.http.live import Live, serving

ROUTERS = [aura.router, gateway.router, pipeline_jobs.router, dead_letters.router]
BROKE = JobError("broke", "it broke")
MOVES: tuple[Callable[[Job], Settlement], ...] = (
    commands.start,
    lambda job: commands.advance(job, "Voice" if job.contract == "aura" else "fetching"),
    lambda job: commands.retry(job, BROKE, delay_ms=0),
    lambda job: commands.retry(job, BROKE, delay_ms=10**9),
    lambda job: commands.wait(job, BROKE, waits_for="storage", rand=0.5),
    commands.release,
    *[commands.succeed] * 3,
    commands.cancel,
    commands.request_cancel,
    lambda job: commands.fail(job, BROKE._replace(retryable=False), rand=0.5),
    lambda job: commands.dead_letter(job, BROKE),
    commands.requeue,
)
LISTS = {
    "/api/jobs": ("jobId", ["Queued", "Running", "Done", "Failed", "Canceled"]),
    "/v1/jobs": ("job_id", ["queued", "running", "done", "error", "canceled"]),
    "/pipeline/jobs": ("id", ["queued", "processing", "done", "failed"]),
}


async def live_some_lives(live: Live, chance: random.Random, most: int = 100) -> None:
    """Create jobs in separate queues and move each several times."""
    for n in range(most):
        contract = chance.choice([*CONTRACTS, "aura"])
        queue = f"line{n}"
        payload = '{"video_id":"v1"}' if contract == "cortana" else "{}"
        kind = "video.transcode" if contract == "cortana" else "work"
        await live.engine.enqueue([NewJob(new_id(), kind, payload, queue, contract=contract, max_attempts=3)])
        for _ in range(chance.randrange(8)):
            await move_once(live, queue, chance)


async def move_once(live: Live, queue: str, chance: random.Random) -> None:
    """Move the one job of a queue by whatever its contract allows; or claim a job if possible."""
    (job,) = (await live.engine.find(JobQuery(queue=queue))).jobs
    if job.status is Status.QUEUED and chance.random() < 0.7:
        await live.engine.claim(ClaimRequest("w", (queue,), 1, 600_000, start=chance.random() < 0.7))
        return
    with contextlib.suppress(IllegalMove):
        await live.engine.settle([chance.choice(MOVES)(job)])


async def pages(live: Live, path: str, **query: Any) -> list[dict[str, Any]]:
    """Read a whole list, by small pages."""
    jobs: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await live.client.get(path, params={**query, **cursor, "limit": 3})
        assert answer.status_code == 200, answer.text
        jobs += answer.json()["jobs"]
        if not (following := answer.json()["next"]):
            return jobs
        cursor = {"cursor": following}


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_job_is_in_the_list_of_the_status_that_its_body_shows_alone(url: str, seed: int) -> None:
    async with serving(url, routers=ROUTERS) as live:
        await live_some_lives(live, random.Random(seed))
        for path, (name, words) in LISTS.items():
            whole = await pages(live, path)
            status_of = {body[name]: body["status"] for body in whole}
            assert set(status_of.values()) == set(words), f"{path}: these lives say too little"
            for word in words:
                listing = await pages(live, path, status=word)
                assert [body["status"] for body in listing] == [word] * len(listing), (path, word)
                expected = [body[name] for body in whole if body["status"] == word]
                assert [body[name] for body in listing] == expected, (path, word)
            for body in whole[:20]:
                one = (await live.client.get(f"{path}/{body[name]}")).json()
                assert one["status"] == body["status"]


async def live_a_video(catalog: Catalog, chance: random.Random) -> None:
    """Add a video and let its pipeline write it a few times, as far as that goes."""
    video_id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    await catalog.add_video(
        Video(video_id, TENANT, None, f"film {chance.randrange(9)}", VideoStatus.UPLOADING, "x", size_bytes=1)
    )
    for claim_version in range(1, 1 + chance.randrange(5)):
        writer = Writer(str(uuid.UUID(int=7)), claim_version)
        await catalog.queue(video_id)
        if chance.random() < 0.8:
            await catalog.begin(video_id, writer, "segment_index")
            if chance.random() < 0.6:
                await catalog.replace_segments(video_id, writer, [], [])
            elif chance.random() < 0.6:
                await catalog.fail(video_id, writer, '{"type": "Broke"}')


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_video_is_in_the_list_of_the_status_that_its_body_shows_alone(kind: str, tmp_path: Path) -> None:
    async with running(stores.fresh_url(kind), tmp_path, worker=False) as stack:
        chance = random.Random(5)
        for _ in range(40):
            await live_a_video(stack.catalog, chance)

        async def listed(**query: str) -> list[dict[str, Any]]:
            videos: list[dict[str, Any]] = []
            place: dict[str, str] = {}
            while True:
                answer = await stack.client.get("/videos", params={**query, **place, "limit": 3})
                assert answer.status_code == 200, answer.text
                videos += answer.json()["videos"]
                if not (following := answer.json()["next"]):
                    return videos
                place = {"before": following}

        whole = await listed()
        assert len(whole) == 40
        for status in VideoStatus:
            expected = [body for body in whole if body["status"] == status]
            assert expected, f"these lives say too little of {status}"
            assert await listed(status=status.value) == expected
            assert await listed(status=status.value, text="FILM 3") == [x for x in expected if x["title"] == "film 3"]
        for body in whole[:20]:
            assert await stack.video(body["video_id"]) == body


async def test_words_of_a_list_may_be_asked_for_together(url: str) -> None:
    async with serving(url, routers=ROUTERS) as live:
        await live_some_lives(live, random.Random(3))
        whole = await pages(live, "/api/jobs")
        for words in (["Queued", "Running"], ["Queued", "Done"], ["Running", "Failed", "Canceled"], ["Succeeded"]):
            words_wanted = {"Done" if word == "Succeeded" else word for word in words}
            expected = [body["jobId"] for body in whole if body["status"] in words_wanted]
            assert [body["jobId"] for body in await pages(live, "/api/jobs", status=words)] == expected, words


async def test_dead_letters_and_the_command_line_list_what_they_show(url: str) -> None:
    async with serving(url, routers=ROUTERS) as live:
        await live_some_lives(live, random.Random(4))
        for word in ("dead_letter", "failed"):
            answer = await live.client.get("/v1/dead-letters", params={"status": word, "limit": 200})
            assert {body["status"] for body in answer.json()["dead_letters"]} == {word}
        everything = (await live.engine.find(JobQuery(limit=200))).jobs
        for status in Status:
            filters: Any = {"task": None, "queue": None, "limit": 200}
            page = await live.engine.find(cli_jobs._query(filters, (status,)))
            assert page.jobs == [job for job in everything if job.status is status], status
