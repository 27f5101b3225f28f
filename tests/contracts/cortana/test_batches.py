"""Frames are read in batches; what is in the catalogue already is not read again, and a long list is a manifest."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from callsheet.catalog.records import Video, VideoStatus
from callsheet.contracts.cortana import ocr, paths, sample
from callsheet.contracts.cortana.jobs import stage_job
from callsheet.kernel.job import Status
from callsheet.media.ocr.records import Batch, Box, FrameText, Reading, Region
from callsheet.worker.signals import Snooze
from tests import stores
from tests.contracts.cortana.kit import TENANT, Stack, running

FRAMES = 150


def text_of(key: str) -> FrameText:
    return FrameText((Region(f"text of {key}", Box(1, 2, 30, 10), 0.9, "eng", ()),), "fake 1", retried=False)


class Engine:
    """Reads by name instead of by eye, and goes down after its first batch."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.read: list[str] = []

    @contextlib.asynccontextmanager
    async def read_frames(
        self, keys: Sequence[str], load: Any, options: Reading, **_: Any
    ) -> AsyncIterator[AsyncIterator[Batch]]:
        self.asked.append(len(keys))
        yield self._batches(keys, options)

    async def _batches(self, keys: Sequence[str], options: Reading) -> AsyncIterator[Batch]:
        for first in range(0, len(keys), options.batch):
            if first and len(self.asked) == 1:
                raise Snooze(0)  # this attempt ends here, and another follows at once
            some = tuple(keys[first : first + options.batch])
            self.read.extend(some)
            yield Batch(first, some, tuple(text_of(key) for key in some))


async def sampled(stack: Stack) -> tuple[str, list[str]]:
    """A video whose frames are listed in a manifest, and their keys."""
    video_id = str(uuid.uuid4())
    await stack.catalog.add_video(Video(video_id, TENANT, None, "x", VideoStatus.UPLOADING, paths.original(video_id)))
    frames = [{"timestamp_ms": at, "since_ms": at, "until_ms": at + 100} for at in range(0, FRAMES * 100, 100)]
    await stack.objects.put(paths.manifest(video_id), json.dumps({"frames": frames}).encode())
    return video_id, [paths.frame(video_id, frame["timestamp_ms"]) for frame in frames]


@pytest.mark.parametrize("listed", ["frames", "manifest"])
async def test_an_attempt_goes_on_after_the_last_batch_of_the_one_before(
    listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 50 <= ocr.BATCH <= 100
    engine = Engine()
    monkeypatch.setattr(ocr, "read_frames", engine.read_frames)
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id, keys = await sampled(stack)
        payload = {
            "video_id": video_id,
            "frame_paths": keys if listed == "frames" else [paths.manifest(video_id)],
            "languages": ["eng"],
            "min_confidence": 0.6,
        }
        new = stage_job("ocr", video_id, TENANT, payload)
        await stack.live.engine.enqueue([new])
        async for _ in stack.live.engine.watch(new.job_id):
            pass
        job = await stack.live.engine.get(new.job_id)
        assert job.status is Status.SUCCEEDED, job.error
        assert engine.asked == [FRAMES, FRAMES - ocr.BATCH]
        assert engine.read == keys, "each frame was read once"
        results = [segment for segment in await stack.catalog.detections_of(video_id) if segment.text]
        assert len(results) == FRAMES
        first = results[0]
        assert (first.t_start, first.t_end, first.confidence, first.language) == (0, 100, 0.9, "eng")
        assert (first.owner_id, first.team_id) == (TENANT, None)
        assert tuple(first.bounding_box) == (1, 2, 30, 10)
        assert first.normalized_text == first.text.lower()


def test_a_payload_of_the_most_paths_fits() -> None:
    longest = paths.frame(str(uuid.uuid4()), 10**10)
    assert len(json.dumps([longest] * sample.MOST_PATHS)) < 200_000
