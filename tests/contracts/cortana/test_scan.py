"""The scanner: originals that lie in the storage are started, once each, however many scanners run."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from callsheet.catalog.records import Clip, Video, VideoStatus, Writer
from callsheet.contracts.cortana import paths, scan
from callsheet.contracts.cortana.maintenance import Keeping
from callsheet.contracts.cortana.scan import Owner, video_of
from callsheet.kernel import commands
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, JobQuery
from tests import stores
from tests.contracts.cortana.kit import TENANT, Stack, running

OWNER = Owner(TENANT)


async def kinds(stack: Stack) -> list[str]:
    return [job.kind for job in (await stack.live.engine.find(JobQuery(limit=200))).jobs]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_many_scanners_start_each_video_once(kind: str, tmp_path: Path) -> None:
    async with running(stores.fresh_url(kind), tmp_path, worker=False) as stack:
        ids = {str(uuid.uuid4()) for _ in range(12)}
        for video_id in ids:
            await stack.objects.put(paths.original(video_id), b"video")
        parts = (stack.live.engine, stack.catalog, stack.objects, OWNER)
        scans = await asyncio.gather(*(scan.scan(*parts) for _ in range(5)))
        started_jobs = [video_id for one in scans for video_id in one.started_ids]
        assert sorted(started_jobs) == sorted(ids)
        assert await kinds(stack) == ["video.transcode"] * len(ids)
        assert (await scan.scan(*parts)).started_ids == ()
        listing = (await stack.client.get("/videos")).json()["videos"]
        assert {video["video_id"] for video in listing} == ids
        assert {video["status"] for video in listing} == {"queued"}


async def test_only_originals_are_videos(tmp_path: Path) -> None:
    video_id = str(uuid.uuid4())
    good = f"videos/original/{video_id}/master.mp4"
    assert video_of(good) == video_id
    odd = [f"videos/original/{video_id}/other.mp4", "videos/original/7/master.mp4", "videos/original/master.mp4"]
    assert [video_of(key) for key in odd] == [None] * 3
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        for key in (good, *odd, f"videos/proxy/{video_id}/index.m3u8"):
            await stack.objects.put(key, b"x")
        scans = await scan.scan(stack.live.engine, stack.catalog, stack.objects, OWNER)
        assert (scans.seen, scans.started_ids, set(scans.odd)) == (1, (video_id,), set(odd))


async def test_a_scanner_that_died_half_way_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first scan had stored the video without starting its pipeline."""
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        video_id = str(uuid.uuid4())
        key = paths.original(video_id)
        await stack.objects.put(key, b"x")
        await stack.catalog.add_video(Video(video_id, TENANT, None, "x", VideoStatus.UPLOADING, key))
        parts = (stack.live.engine, stack.catalog, stack.objects, OWNER)
        assert (await scan.scan(*parts)).started_ids == (), "somebody may be about to start it"
        monkeypatch.setattr(scan, "PATIENCE_MS", -1)
        assert (await scan.scan(*parts)).started_ids == (video_id,)
        assert (await scan.scan(*parts)).started_ids == ()
        assert await kinds(stack) == ["video.transcode"]


async def test_a_video_whose_worker_was_lost_for_good_is_failed_by_the_chores(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        video_id = str(uuid.uuid4())
        await stack.objects.put(paths.original(video_id), b"x")
        await scan.scan(stack.live.engine, stack.catalog, stack.objects, OWNER)
        engine = stack.live.engine
        (job,) = await engine.claim(ClaimRequest("w", lease_ms=60_000))
        await stack.catalog.begin(video_id, Writer(job.job_id, job.claim_version), "transcode")
        keeping = Keeping(engine, stack.catalog, stack.objects)
        assert await keeping.fail_lost() == 0, "it still runs"
        await engine.settle([commands.dead_letter(job, JobError("worker_lost", "three workers died of it"))])
        assert await keeping.fail_lost() == 1
        video = await stack.video(video_id)
        assert (video["status"], video["error"]["type"]) == ("failed", "WorkerLost")
        retried = await stack.live.client.post(f"/pipeline/jobs/{job.job_id}/retry")
        assert retried.json()["status"] == "queued"
        assert (await stack.video(video_id))["status"] == "queued"
        assert (await stack.client.post(f"/pipeline/jobs/{job.job_id}/retry")).status_code == 403


async def test_old_clips_are_removed_with_their_files(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        video_id = str(uuid.uuid4())
        key = paths.original(video_id)
        await stack.catalog.add_video(Video(video_id, TENANT, None, "x", VideoStatus.UPLOADING, key))
        for clip_id, expires_at in (("old", 1_000), ("new", 5_000)):
            path = paths.clip(video_id, clip_id)
            await stack.objects.put(path, b"clip")
            await stack.catalog.add_clip(Clip(clip_id, video_id, TENANT, None, str(uuid.uuid4()), 0, 1, 0, path))
            await stack.catalog.note_clip(clip_id, (0, 1), expires_at)
        assert await Keeping(stack.live.engine, stack.catalog, stack.objects).remove_clips(2_000) == 1
        assert await stack.keys(paths.clips(video_id)) == {paths.clip(video_id, "new")}
        assert (await stack.client.get("/clips/old")).json()["code"] == "clip_not_found"
        assert (await stack.client.get("/clips/new")).status_code == 200


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_an_original_that_was_half_written_is_found_when_it_is_whole(kind: str, tmp_path: Path) -> None:
    async with running(stores.fresh_url(kind), tmp_path, worker=False) as stack:
        video_id = str(uuid.uuid4())
        parts = (stack.live.engine, stack.catalog, stack.objects, OWNER)
        for size in (10, 30):
            await stack.objects.put(paths.original(video_id), b"x" * size)
            assert (await scan.scan(*parts)).started_ids == (video_id,)
            assert (await scan.scan(*parts)).started_ids == (), "it is in the queue"
            (job,) = await stack.live.engine.claim(ClaimRequest("w", limit=1))
            fatal = commands.fail(job, JobError("truncated", "half of it", retryable=False), rand=0)
            await stack.live.engine.settle([fatal])
            await stack.catalog.fail(video_id, Writer(job.job_id, job.claim_version, job.created_at), "{}")
            assert (await scan.scan(*parts)).started_ids == (), "nothing new is there"
        assert (await stack.video(video_id))["status"] == "failed"
