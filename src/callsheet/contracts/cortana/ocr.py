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
from .parts import Bench

BATCH = 64
FRAME_BYTES = MANIFEST_BYTES = 64 * 1024 * 1024
PERIOD_MS = 100
READ = "read"  # name of the checkpoint with the counts


class Shown(NamedTuple):
    """A key frame and the time range, in milliseconds, in which it shows the screen."""

    key: str
    t_start: int
    t_end: int


class Done(NamedTuple):
    """Counts of the frames read so far, by this attempt and earlier attempts."""

    frames: int = 0
    frames_with_text: int = 0
    detections: int = 0
    confidence: float = 0.0  # the sum over all detections
    engine: str = ""

    def plus(self, texts: Sequence[FrameText], made: Sequence[NewSegment]) -> Done:
        """Return the counts with one more batch."""
        return Done(
            self.frames + len(texts),
            self.frames_with_text + sum(1 for text in texts if text.regions),
            self.detections + len(made),
            round(self.confidence + sum(segment.confidence for segment in made), 4),
            texts[0].engine if texts else self.engine,
        )

    def told(self) -> dict[str, Any]:
        """Return the counts for the video's coverage."""
        mean = round(self.confidence / self.detections, 4) if self.detections else None
        return {"frames_with_text": self.frames_with_text, "detections": self.detections, "mean_confidence": mean}


async def ocr(
    bench: Bench, frame_paths: Sequence[str], languages: tuple[str, ...], min_confidence: float
) -> dict[str, Any]:
    """Read all frames. The checkpoint of a batch is written after its detections are in the catalogue."""
    ctx, catalog = bench.ctx, bench.parts.catalog
    frames = await _frames(bench, frame_paths)
    kept = await ctx.recall(READ)
    if kept is None:  # detections of an earlier OCR run must not mix with this run's
        await catalog.clear_detections(bench.video_id, bench.writer)
    done = Done(*kept) if kept is not None else Done()
    left = frames[done.frames :]
    options = Reading(languages, min_confidence, engine=bench.parts.ocr_engine, batch=BATCH)
    if left:
        keys = [frame.key for frame in left]
        async with read_frames(keys, _loading(bench), options, start=ctx.children.start) as batches:
            async for batch in batches:
                made = _detections(bench.video_id, batch, left)
                await catalog.add_detections(bench.video_id, bench.writer, made)
                done = done.plus(batch.texts, made)
                await ctx.keep(READ, done)
                _ = ctx.progress(99.0 * done.frames / len(frames))
    coverage: dict[str, Any] = json.loads(bench.video.coverage)
    told = {**done.told(), "engine": done.engine, "languages": list(languages), "min_confidence": min_confidence}
    await catalog.note(bench.video_id, bench.writer, VideoFacts(coverage=encode({**coverage, **told})))
    return {"frames": len(frames), **told}


def _loading(bench: Bench) -> Callable[[str], Awaitable[bytes]]:
    async def load(key: str) -> bytes:
        try:
            return await bench.objects.get(key, max_bytes=FRAME_BYTES)
        except ObjectNotFound:
            raise Fatal(f"the frame {key} is gone; sample the video again", code=NOT_FOUND) from None

    return load


def _detections(video_id: str, batch: Batch, frames: Sequence[Shown]) -> list[NewSegment]:
    space = uuid.UUID(video_id)
    return [
        _detection(space, frames[batch.first + place], number, region)
        for place, text in enumerate(batch.texts)
        for number, region in enumerate(text.regions)
    ]


def _detection(space: uuid.UUID, frame: Shown, number: int, region: Region) -> NewSegment:
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


async def _frames(bench: Bench, frame_paths: Sequence[str]) -> list[Shown]:
    """Return the frames by time, each with its range: from the manifest, else until the next frame starts."""
    folder, manifest = f"{paths.frames(bench.video_id)}/", paths.manifest(bench.video_id)
    if wrong := [path for path in frame_paths if not path.startswith(folder)]:
        raise Fatal(f"{wrong[0][:200]!r} is no frame of this video; they are below {folder}", code="invalid_payload")
    listed = await _listed(bench, manifest)
    if list(frame_paths) == [manifest]:
        if not listed:
            raise Fatal(f"there is no {manifest}; sample the video again", code=NOT_FOUND)
        return _lasting(listed.values())
    if list(frame_paths) == [folder]:
        frame_paths = await _in_folder(bench, folder)
    times = sorted((time_of(path), path) for path in dict.fromkeys(frame_paths))
    last = times[-1][0] + PERIOD_MS if times else 0
    ends = [at for at, _ in times[1:]] + [bench.video.duration_ms or last]
    plain = [Shown(path, at, max(end, at + 1)) for (at, path), end in zip(times, ends, strict=False)]
    return _lasting([listed.get(frame.key, frame) for frame in plain])


async def _in_folder(bench: Bench, folder: str) -> list[str]:
    """Return the keys of all frames in the video's folder: a sampler that works by SQL lists no frame paths."""
    keys = [info.key async for info in bench.objects.list(paths.frames(bench.video_id))]
    return [key for key in keys if key.endswith(".jpg") and key.startswith(folder)]


def _lasting(frames: Iterable[Shown]) -> list[Shown]:
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


async def _listed(bench: Bench, manifest: str) -> dict[str, Shown]:
    try:
        told = json.loads(await bench.objects.get(manifest, max_bytes=MANIFEST_BYTES))
    except ObjectNotFound:
        return {}
    found = [
        Shown(paths.frame(bench.video_id, frame["timestamp_ms"]), frame["since_ms"], frame["until_ms"])
        for frame in told["frames"]
    ]
    return {frame.key: frame for frame in found}
