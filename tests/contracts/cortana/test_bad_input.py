"""What cannot be right ends in the contract's state with an error that names what is wrong, and loses nothing."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callsheet.catalog.records import Video, VideoStatus
from callsheet.contracts.cortana import paths
from callsheet.contracts.cortana.jobs import clip_job, stage_job, start_job
from callsheet.kernel.job import NewJob, Status
from tests import stores
from tests.contracts.cortana.kit import TENANT, Stack, running
from tests.media.made_up import MadeUp

MakesVideo = Callable[[str], MadeUp]
ODD = {
    "sound_only": "NoSuchStream",
    "truncated": "TruncatedInput",
    "zero_length": "",  # whatever is wrong with it, it is not ready
}
GOOD = ("odd_size", "turned_90", "late_mp4")


async def placed(stack: Stack, raw: bytes | Path) -> str:
    """An original in its place, and the video in the catalogue."""
    video_id = str(uuid.uuid4())
    if isinstance(raw, Path):
        await stack.objects.put_file(paths.original(video_id), raw)
    else:
        await stack.objects.put(paths.original(video_id), raw)
    await stack.catalog.add_video(
        Video(video_id, TENANT, None, "made up", VideoStatus.UPLOADING, paths.original(video_id))
    )
    return video_id


async def ended(stack: Stack, new: NewJob) -> dict[str, Any]:
    """A job of the contract when it is over, in the contract's words."""
    await stack.live.engine.enqueue([new])
    async for _ in stack.live.engine.watch(new.job_id):
        pass
    response = await stack.live.client.get(f"/pipeline/jobs/{new.job_id}")
    body: dict[str, Any] = response.json()
    return body


@pytest.mark.parametrize("name", ODD)
async def test_a_file_that_is_no_whole_video_fails_with_its_reason(
    name: str, tmp_path: Path, video: MakesVideo
) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await placed(stack, video(name).path)
        job = await ended(stack, start_job(video_id, TENANT))
        assert job["status"] == "failed"
        error = job["payload"]["error"]
        assert ODD[name] in error["type"]
        assert set(error) == {"type", "message", "timestamp", "retry_count"}
        assert job["payload"]["original_payload"] == {
            "video_id": video_id,
            "s3_original_path": paths.original(video_id),
        }
        video_row = await stack.video(video_id)
        assert (video_row["status"], video_row["error"]["type"]) == ("failed", error["type"])


async def test_what_is_no_media_at_all_fails_at_once(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        for raw in (b"#!/bin/sh\necho hello\n" * 100, b"ffconcat version 1.0\nfile /etc/passwd\n", b""):
            job = await ended(stack, start_job(await placed(stack, raw), TENANT))
            assert (job["status"], job["retry_count"]) == ("failed", 0), raw


@pytest.mark.parametrize("name", GOOD)
async def test_a_strange_but_whole_video_becomes_ready(name: str, tmp_path: Path, video: MakesVideo) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await placed(stack, video(name).path)
        await stack.live.engine.enqueue([start_job(video_id, TENANT)])
        video_row = await stack.over(video_id)
        assert video_row["status"] == "ready", video_row["error"]
        assert (video_row["width"], video_row["height"]) == (video(name).width, video(name).height)


async def test_a_deleted_original_is_not_tried_again(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await placed(stack, b"x")
        await stack.objects.delete(paths.original(video_id))
        job = await ended(stack, start_job(video_id, TENANT))
        assert (job["status"], job["retry_count"]) == ("failed", 0)
        assert job["payload"]["error"]["type"] == "S3ObjectNotFound"
        assert (await stack.video(video_id))["status"] == "failed"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frame_paths": []}, "frame_paths"),
        ({"frame_paths": ["frames/another/1.jpg"]}, "no frame of this video"),
        ({"frame_paths": ["frames/{id}/first.jpg"]}, "has no time in its name"),
        ({"frame_paths": ["frames/{id}/100.jpg"]}, "is gone"),
        ({"languages": ["tlh"], "frame_paths": ["frames/{id}/100.jpg"]}, "tlh"),
        ({"languages": []}, "languages"),
        ({"min_confidence": 2}, "min_confidence"),
        ({"more": 1}, "more"),
    ],
)
async def test_a_wrong_ocr_payload_fails_without_another_try(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await placed(stack, b"x")
        right = {"video_id": video_id, "frame_paths": [f"frames/{video_id}/100.jpg"], "languages": ["eng"]}
        payload = json.loads(json.dumps({**right, "min_confidence": 0.6, **change}).replace("{id}", video_id))
        job = await ended(stack, stage_job("ocr", video_id, TENANT, payload))
        assert (job["status"], job["retry_count"]) == ("failed", 0)
        assert message in job["payload"]["error"]["message"]


async def test_an_original_of_somebody_else_cannot_be_named(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        mine, other = await placed(stack, b"x"), await placed(stack, b"y")
        payload = {"video_id": mine, "s3_original_path": paths.original(other)}
        job = await ended(stack, stage_job("transcode", mine, TENANT, payload))
        assert job["payload"]["error"]["type"] == "InvalidPayload"


async def test_a_job_that_another_contract_made_is_refused(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await placed(stack, b"x")
        new = start_job(video_id, "globex")._replace(contract="callsheet")
        await stack.live.engine.enqueue([new])
        async for _ in stack.live.engine.watch(new.job_id):
            pass
        job = await stack.live.engine.get(new.job_id)
        assert job.status is Status.DEAD_LETTER
        assert json.loads(job.error or "{}")["code"] == "task_reserved"
        assert (await stack.video(video_id))["status"] == "uploading"


async def test_a_video_of_another_requester_is_as_one_that_never_was(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await placed(stack, b"x")
        clip = clip_job(video_id, "clip-1", (0, 1000), 0, "globex")
        for new in (start_job(video_id, "globex"), clip):
            await stack.live.engine.enqueue([new])
            async for _ in stack.live.engine.watch(new.job_id):
                pass
            job = await stack.live.engine.get(new.job_id)
            assert json.loads(job.error or "{}")["code"] == "video_not_found"
        assert (await stack.video(video_id))["status"] == "uploading"


async def test_clips_outside_of_the_video_are_refused_and_padding_stays_inside(
    tmp_path: Path, video: MakesVideo
) -> None:
    film = video("price")
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await placed(stack, film.path)
        for span, message in (((5000, 5000), "after t_start"), ((10**7, 10**7 + 1), "after the end")):
            new = clip_job(video_id, f"clip-{span[0]}", span, 0, TENANT)
            job = await ended(stack, new)
            assert (job["status"], job["retry_count"]) == ("failed", 0)
            assert message in job["payload"]["error"]["message"]
        end = film.duration_ms
        new = clip_job(video_id, "last", (end - 500, end + 5000), 1000, TENANT)
        assert (await ended(stack, new))["status"] == "done"
        job_of = await stack.live.engine.get(new.job_id)
        result = json.loads(job_of.result or "{}")
        assert (result["t_start"], result["t_end"]) == (end - 1500, end)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"size": 0},
        {"size": 1, "upload_id": "x"},
        {"size": 1, "options": {"languages": []}},
        {"size": 1, "options": {"target_fps": 0}},
        {"size": 1, "options": {"unknown": 1}},
        {"size": 1, "title": "x" * 501},
    ],
)
async def test_a_wrong_new_video_is_told_of(body: dict[str, Any], tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        response = await stack.client.post("/videos", json=body)
        assert (response.status_code, response.json()["code"]) == (422, "validation_failed")
        assert (await stack.client.get("/videos")).json()["videos"] == []


async def test_search_takes_any_text(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        for text in (
            '"',
            "a AND",
            "NEAR(",
            "*",
            "-",
            '""',
            "🎬🎬",
            "a\u0000b",
            "'; DROP TABLE videos",
            "%_%",
            ":" * 50,
        ):
            assert (await stack.client.get("/search", params={"q": text})).status_code == 200, text
        long = await stack.client.get("/search", params={"q": "word " * 2000})
        assert long.status_code in (200, 422)
        assert (await stack.client.get("/search", params={"q": ""})).status_code in (200, 422)


async def test_unknown_languages_are_refused_when_the_video_is_added(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        new = {"name": "a.mp4", "size": 5}
        for codes in (["klingon"], ["eng", "xx"], ["en"]):
            answer = await stack.client.post("/videos", json={**new, "options": {"languages": codes}})
            assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")
            assert codes[-1] in answer.text
        known_names = {**new, "options": {"languages": ["eng", "deu", "chi_sim"]}}
        assert (await stack.client.post("/videos", json=known_names)).status_code == 201
