"""The stage `ocr` reads the text of all key frames in batches. After a crash, finished batches are not read again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from callsheet.catalog.records import Box, NewSegment, VideoFacts
from callsheet.kernel.wire import encode
from callsheet.media.ocr.reader import read_frames
from callsheet.media.ocr.records import Batch, FrameText, Reading, Region
from callsheet.media.reading.normalise import normalized, text_hash
from callsheet.objects import ObjectNotFound
from callsheet.worker.signals import Fatal

from . import paths
from .outcomes import NOT_FOUND
from .parts import StageContext

BATCH = 64
FRAME_BYTES = MANIFEST_BYTES = 64 * 1024 * 1024
PERIOD_MS = 100
READ = "read"  # name of the checkpoint with the counts


class KeyFrame(NamedTuple):
    """A key frame and the time range, in milliseconds, in which it shows the screen."""

    key: str
    t_start: int
    t_end: int


class Counts(NamedTuple):
    """Counts of the frames read so far, by this attempt and earlier attempts."""

    frames: int = 0
    frames_with_text: int = 0
    detections: int = 0
    confidence: float = 0.0  # the sum over all detections
    engine: str = ""

    def plus(self, texts: Sequence[FrameText], segments: Sequence[NewSegment]) -> Counts:
        """Return the counts with one more batch."""
        return Counts(
            self.frames + len(texts),
            self.frames_with_text + sum(1 for text in texts if text.regions),
            self.detections + len(segments),
            round(self.confidence + sum(segment.confidence for segment in segments), 4),
            texts[0].engine if texts else self.engine,
        )

    def coverage(self) -> dict[str, Any]:
        """Return the counts for the video's coverage."""
        mean = round(self.confidence / self.detections, 4) if self.detections else None
        return {"frames_with_text": self.frames_with_text, "detections": self.detections, "mean_confidence": mean}


async def ocr(
    stage: StageContext, frame_paths: Sequence[str], languages: tuple[str, ...], min_confidence: float
) -> dict[str, Any]:
    """Read all frames. The checkpoint of a batch is written after its detections are in the catalogue."""
    ctx, catalog = stage.ctx, stage.parts.catalog
    frames = await _frames(stage, frame_paths)
    counts = await ctx.recall(READ)
    if counts is None:  # detections of an earlier OCR run must not mix with this run's
        await catalog.clear_detections(stage.video_id, stage.writer)
    progress = Counts(*counts) if counts is not None else Counts()
    left = frames[progress.frames :]
    options = Reading(languages, min_confidence, engine=stage.parts.ocr_engine, batch=BATCH)
    if left:
        keys = [frame.key for frame in left]
        async with read_frames(keys, _loading(stage), options, start=ctx.children.start) as batches:
            async for batch in batches:
                detections = _detections(stage.video_id, batch, left)
                await catalog.add_detections(stage.video_id, stage.writer, detections)
                progress = progress.plus(batch.texts, detections)
                await ctx.keep(READ, progress)
                _ = ctx.progress(99.0 * progress.frames / len(frames))
    result = {
        **progress.coverage(),
        "engine": progress.engine,
        "languages": list(languages),
        "min_confidence": min_confidence,
    }
    coverage = encode({**json.loads(stage.video.coverage), **result})
    await catalog.note(stage.video_id, stage.writer, VideoFacts(coverage=coverage))
    return {"frames": len(frames), **result}


def _loading(stage: StageContext) -> Callable[[str], Awaitable[bytes]]:
    async def load(key: str) -> bytes:
        try:
            return await stage.objects.get(key, max_bytes=FRAME_BYTES)
        except ObjectNotFound:
            raise Fatal(f"the frame {key} is gone; sample the video again", code=NOT_FOUND) from None

    return load


def _detections(video_id: str, batch: Batch, frames: Sequence[KeyFrame]) -> list[NewSegment]:
    space = uuid.UUID(video_id)
    return [
        _detection(space, frames[batch.first + place], number, region)
        for place, text in enumerate(batch.texts)
        for number, region in enumerate(text.regions)
    ]


def _detection(space: uuid.UUID, frame: KeyFrame, number: int, region: Region) -> NewSegment:
    """Return the catalogue row of a text region. Its id comes from frame and position, so rereads give equal rows."""
    form = normalized(region.text)
    return NewSegment(
        str(uuid.uuid5(space, f"seen:{frame.key}:{number}:{form}")),
        frame.t_start,
        frame.t_end,
        region.text,
        form,
        text_hash(region.text),
        region.confidence,
        Box(*region.box),
        region.language or None,
    )


async def _frames(stage: StageContext, frame_paths: Sequence[str]) -> list[KeyFrame]:
    """Return the frames by time, each with its range: from the manifest, else until the next frame starts."""
    folder, manifest = f"{paths.frames(stage.video_id)}/", paths.manifest(stage.video_id)
    if wrong := [path for path in frame_paths if not path.startswith(folder)]:
        raise Fatal(f"{wrong[0][:200]!r} is no frame of this video; they are below {folder}", code="invalid_payload")
    by_key = await _manifest_frames(stage, manifest)
    if list(frame_paths) == [manifest]:
        if not by_key:
            raise Fatal(f"there is no {manifest}; sample the video again", code=NOT_FOUND)
        return _lasting(by_key.values())
    if list(frame_paths) == [folder]:
        frame_paths = await _in_folder(stage, folder)
    times = sorted((time_of(path), path) for path in dict.fromkeys(frame_paths))
    last = times[-1][0] + PERIOD_MS if times else 0
    ends = [at for at, _ in times[1:]] + [stage.video.duration_ms or last]
    plain = [KeyFrame(path, at, max(end, at + 1)) for (at, path), end in zip(times, ends, strict=False)]
    return _lasting([by_key.get(frame.key, frame) for frame in plain])


async def _in_folder(stage: StageContext, folder: str) -> list[str]:
    """Return the keys of all frames in the video's folder: a sampler that works by SQL lists no frame paths."""
    keys = [info.key async for info in stage.objects.list(paths.frames(stage.video_id))]
    return [key for key in keys if key.endswith(".jpg") and key.startswith(folder)]


def _lasting(frames: Iterable[KeyFrame]) -> list[KeyFrame]:
    """Return the frames sorted by time, without frames whose range is empty because a later frame replaced them."""
    return sorted(
        (frame for frame in frames if frame.t_end > frame.t_start), key=lambda frame: (frame.t_start, frame.key)
    )


def time_of(path: str) -> int:
    """Return the milliseconds in a frame's name; raises Fatal."""
    name = path.rpartition("/")[2].removesuffix(".jpg")
    if not name.isdecimal() or len(name) > 12:  # noqa: PLR2004 - thirty years
        raise Fatal(
            f"{path[:200]!r} has no time in its name: frames are called {{timestamp_ms}}.jpg", code="invalid_payload"
        )
    return int(name)


async def _manifest_frames(stage: StageContext, manifest: str) -> dict[str, KeyFrame]:
    try:
        coverage = json.loads(await stage.objects.get(manifest, max_bytes=MANIFEST_BYTES))
    except ObjectNotFound:
        return {}
    frames = [
        KeyFrame(paths.frame(stage.video_id, frame["timestamp_ms"]), frame["since_ms"], frame["until_ms"])
        for frame in coverage["frames"]
    ]
    return {frame.key: frame for frame in frames}
