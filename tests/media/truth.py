"""Ground truth: a made-up video is sampled, read and merged; recognised texts are compared with drawn ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rapidfuzz import fuzz

from callsheet.media.ocr.reader import read_frames
from callsheet.media.ocr.records import Reading, Region
from callsheet.media.reading.merge import merge
from callsheet.media.reading.normalise import normalized
from callsheet.media.reading.records import Range, Seen
from callsheet.media.sampling.records import Kept, Sampled
from callsheet.media.sampling.sample import sample

from .made_up import MadeUp, Truth

OFF_MS = 150
LARGE_PX = 24
_WORD = re.compile(r"[@#]?[\w/:.$]*\w")


class ReadBack(NamedTuple):
    """The recognised texts of a video."""

    ranges: list[Range]
    sampled: Sampled
    seen: list[Seen]


class Judged(NamedTuple):
    """A drawn line with its score: words, found words, and the time error (None: never found)."""

    truth: Truth
    words: int
    found: int
    off_ms: tuple[int, int] | None

    @property
    def is_on_time(self) -> bool:
        return self.off_ms is not None and max(map(abs, self.off_ms)) <= OFF_MS

    @property
    def is_whole(self) -> bool:
        return self.found == self.words


class Score(NamedTuple):
    """Of some lines: the share of words found, and of punctual lines of at least 24 pixels."""

    words: int
    found: int
    timed: int
    on_time: int
    whole: int

    @property
    def recall(self) -> float:
        return self.found / max(1, self.words)

    @property
    def on_time_share(self) -> float:
        return self.on_time / max(1, self.timed)


async def read_back(videos: Sequence[MadeUp], folder: Path, *, processes: int = 0) -> dict[str, ReadBack]:
    """Run the complete pipeline with default settings; one set of engines reads all videos."""
    by_name: dict[str, ReadBack] = {}
    for languages in sorted({_languages(video) for video in videos}):
        those = [video for video in videos if _languages(video) == languages]
        samples_of = {video.name: await _sampled(video, folder / video.name) for video in those}
        frames = {str(frame.path): (name, frame) for name, (_, kept) in samples_of.items() for frame in kept}
        seen: dict[str, list[Seen]] = {video.name: [] for video in those}
        async with read_frames(list(frames), _load, Reading(languages, processes=processes)) as batches:
            async for batch in batches:
                for key, text in zip(batch.keys, batch.texts, strict=True):
                    name, frame = frames[key]
                    seen[name] += [_seen(frame, at, region) for at, region in enumerate(text.regions)]
        for name, (whole, _) in samples_of.items():
            ranges = merge(seen[name], period_ms=whole.period_ms, duration_ms=whole.duration_ms)
            by_name[name] = ReadBack(ranges, whole, seen[name])
    return by_name


def _languages(video: MadeUp) -> tuple[str, ...]:
    return ("deu",) if video.name == "german" else ("eng",)


async def _sampled(video: MadeUp, folder: Path) -> tuple[Sampled, list[Kept]]:
    frames: list[Kept] = []

    async def on_kept(frame: Kept) -> None:
        frames.append(frame)

    folder.mkdir()
    return await sample(video.path, folder, on_kept), frames


async def _load(key: str) -> bytes:
    return await asyncio.to_thread(Path(key).read_bytes)


def _seen(frame: Kept, at: int, region: Region) -> Seen:
    box = (region.box.x, region.box.y, region.box.width, region.box.height)
    times = frame.since_ms, frame.until_ms
    return Seen(f"{frame.timestamp_ms}-{at}", *times, region.text, region.confidence, box, region.language)


def judge(video: MadeUp, ranges: Sequence[Range]) -> list[Judged]:
    """Judge every line of the video; a word counts if a simultaneous text contains it exactly."""
    judgements = []
    for truth in video.truths:
        there = [one for one in ranges if one.t_start < truth.t_end_ms and truth.t_start_ms < one.t_end]
        read = {word for one in there for word in words_of(one.text)}
        words = words_of(truth.text)
        its = [one for one in there if _says(one.text, truth.text)]
        off = None
        if its:
            start, end = min(one.t_start for one in its), max(one.t_end for one in its)
            off = (start - truth.t_start_ms, end - truth.t_end_ms)
        judgements.append(Judged(truth, len(words), sum(word in read for word in words), off))
    return judgements


def score(judgements: Sequence[Judged]) -> Score:
    """Of some lines together."""
    large = [one for one in judgements if one.truth.px >= LARGE_PX]
    return Score(
        sum(one.words for one in judgements),
        sum(one.found for one in judgements),
        len(large),
        sum(one.is_on_time for one in large),
        sum(one.is_whole for one in judgements),
    )


def words_of(text: str) -> list[str]:
    """Its words in small letters, without the signs around them."""
    return _WORD.findall(normalized(text))


def _says(read: str, drawn: str) -> bool:
    """A line that was read says what was drawn, alone or beside another text of the same row."""
    one, other = " ".join(words_of(read)), " ".join(words_of(drawn))
    return fuzz.ratio(one, other) >= 80 or (len(one) > len(other) and fuzz.partial_ratio(one, other) >= 90)
