"""`POST /clips` and `clip_generate`: the payload, several at once, and what is there already."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from pathlib import Path

import pytest

from callsheet.catalog.records import Clip, Video, VideoFacts, VideoStatus, Writer
from callsheet.contracts.cortana import paths
from callsheet.contracts.cortana.jobs import clip_job
from callsheet.kernel import commands
from callsheet.kernel.job import Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.contracts.cortana.kit import OTHER, TEAM, TENANT, Stack, running

DAY_MS = 24 * 3600 * 1000


async def watched(stack: Stack, team_id: str | None = None) -> str:
    """A video of a minute, as far as the catalogue knows."""
    video_id = str(uuid.uuid4())
    await stack.catalog.add_video(
        Video(video_id, TENANT, team_id, "x", VideoStatus.UPLOADING, paths.original(video_id))
    )
    writer = Writer(str(uuid.uuid4()), 1)
    await stack.catalog.begin(video_id, writer, "transcode")
    await stack.catalog.note(video_id, writer, VideoFacts(duration_ms=60_000))
    return video_id


async def test_a_request_makes_a_job_with_the_contracts_payload(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        video_id = await watched(stack)
        body = {"video_id": video_id, "t_start": 1500, "t_end": 3000}
        response = await stack.client.post("/clips", json=body)
        reply = response.json()
        assert (response.status_code, reply["status"]) == (202, "queued")
        job = (await stack.client.get(f"/pipeline/jobs/{reply['job_id']}")).json()
        assert (job["job_type"], job["status"]) == ("clip_generate", "queued")
        assert job["payload"] == {
            **body,
            "clip_id": reply["clip_id"],
            "padding_ms": 2000,
            "s3_original_path": f"videos/original/{video_id}/master.mp4",
        }


async def test_a_video_may_have_several_clip_jobs_and_a_clip_has_one(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        video_id = await watched(stack)
        request = [{"video_id": video_id, "t_start": at, "t_end": at + 500} for at in (0, 1000, 2000)]
        clips = [(await stack.client.post("/clips", json=one)).json() for one in request]
        assert len({one["job_id"] for one in clips}) == 3
        again = (await stack.client.post("/clips", json={**request[0], "clip_id": clips[0]["clip_id"]})).json()
        assert again == clips[0]


async def test_a_clip_that_failed_comes_back_within_the_quota_of_whom_it_is_cut_for(tmp_path: Path) -> None:
    """One of a team asks for it: the job is theirs, so their quota holds, and not that of the video's owner."""
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        engine, video_id = stack.live.engine, await watched(stack, team_id=TEAM)
        async with await stack.live.key(OTHER, teams=[TEAM]) as mate:
            body = {"video_id": video_id, "t_start": 0, "t_end": 500, "clip_id": "one"}
            reply = (await mate.post("/clips", json=body)).json()
            (job,) = await engine.claim(ClaimRequest("w", ((await engine.get(reply["job_id"])).queue,)))
            await engine.settle([commands.dead_letter(job, JobError("broke", "it broke"))])
            await stack.live.state.quotas.set(OTHER, {"queued": 1})
            await mate.post("/clips", json={**body, "clip_id": "two"})
            refusal = await mate.post("/clips", json=body)
        assert (refusal.status_code, refusal.json()["code"]) == (429, "quota_exceeded"), refusal.text
        assert await engine.store.queued_of([OTHER, TENANT], most=9) == [1, 0]


async def test_a_clip_that_is_there_is_not_cut_again_and_is_kept_for_thirty_days(tmp_path: Path) -> None:
    """There is no original: whoever tried to cut would fail."""
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await watched(stack)
        key = paths.clip(video_id, "one")
        await stack.objects.put(key, b"cut before")
        new = clip_job(video_id, "one", (1500, 3000), 2000, TENANT)
        await stack.catalog.add_clip(Clip("one", video_id, TENANT, None, new.job_id, 1500, 3000, 2000, key))
        start = round(time.time() * 1000)
        await stack.live.engine.enqueue([new])
        async for _ in stack.live.engine.watch(new.job_id):
            pass
        job = await stack.live.engine.get(new.job_id)
        assert job.status is Status.SUCCEEDED, job.error
        clip_result = {"clip_id": "one", "s3_path": key, "t_start": 0, "t_end": 5000, "skipped": True}
        assert json.loads(job.result or "{}") == clip_result
        assert await stack.objects.get(key) == b"cut before"
        assert await stack.catalog.expired_clips(start + 30 * DAY_MS - 1, 10) == []
        assert [clip.clip_id for clip in await stack.catalog.expired_clips(start + 31 * DAY_MS, 10)] == ["one"]


@pytest.mark.parametrize(("known", "expected_span"), [(None, (0, 5000)), ((0, 4200), (0, 4200))])
async def test_a_clip_of_a_video_of_unknown_length_is_not_cut_again_either(
    tmp_path: Path, known: tuple[int, int] | None, expected_span: tuple[int, int]
) -> None:
    """Whoever transcodes by SQL writes the document's columns, and no length. The original is missing."""
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = str(uuid.uuid4())
        video = Video(video_id, TENANT, None, "x", VideoStatus.UPLOADING, paths.original(video_id))
        await stack.catalog.add_video(video)
        await stack.objects.put(paths.clip(video_id, "one"), b"cut before")
        body = {"video_id": video_id, "t_start": 1500, "t_end": 3000, "clip_id": "one"}
        if known:
            clip = Clip("one", video_id, TENANT, None, str(uuid.uuid4()), 1500, 3000, 2000, paths.clip(video_id, "one"))
            await stack.catalog.add_clip(clip)
            await stack.catalog.note_clip("one", known, round(time.time() * 1000) + DAY_MS)
        reply = (await stack.client.post("/clips", json=body)).json()
        async for _ in stack.live.engine.watch(reply["job_id"]):
            pass
        job = await stack.live.engine.get(reply["job_id"])
        assert job.status is Status.SUCCEEDED, job.error
        result = json.loads(job.result or "{}")
        assert (result["skipped"], result["t_start"], result["t_end"]) == (True, *expected_span)
        assert await stack.objects.get(paths.clip(video_id, "one")) == b"cut before"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_many_requests_at_once_for_one_clip_make_one(kind: str, tmp_path: Path) -> None:
    async with running(stores.fresh_url(kind), tmp_path, worker=False) as stack:
        video_id = await watched(stack)
        for round_ in range(3):
            body = {"video_id": video_id, "t_start": 0, "t_end": 500, "clip_id": f"clip-{round_}"}
            answers = await asyncio.gather(*(stack.client.post("/clips", json=body) for _ in range(8)))
            assert [answer.status_code for answer in answers] == [202] * 8
            assert len({answer.json()["job_id"] for answer in answers}) == 1
        rows = (await stack.client.get("/pipeline/jobs", params={"job_type": "clip_generate"})).json()["jobs"]
        assert sorted(job["payload"]["clip_id"] for job in rows) == ["clip-0", "clip-1", "clip-2"]
