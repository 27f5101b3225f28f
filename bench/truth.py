"""How much text of made-up videos the pipeline finds, and how exact its times are, with default settings.

`python -m bench.truth [NAME …]` prints a row per video and each line that was missed or came at another time.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.measure import keep, say
from tests.media.made_up import ALL, CAPTIONS_40, MadeUp, made_up
from tests.media.truth import Judged, ReadBack, judge, read_back, score

QUICK = ("slide", "price", "comes_back")
Row = dict[str, Any]


async def measure(kind: str, *, quick: bool) -> None:
    """`kind` is the engine."""
    rows, every, took_s = await _read_all(QUICK if quick else (*ALL, CAPTIONS_40))
    whole = score(every)
    facts = {"rows": rows, "recall": whole.recall, "on_time_share": whole.on_time_share, "seconds": took_s}
    keep(f"truth-{kind}", facts, quick=quick)


async def _read_all(names: Sequence[str]) -> tuple[list[Row], list[Judged], float]:
    with tempfile.TemporaryDirectory(prefix="callsheet-bench-") as place:
        folder = Path(place)
        videos = [await asyncio.to_thread(made_up, name, folder) for name in names]
        began_s = time.perf_counter()
        reads = await read_back(videos, folder)
        took_s = time.perf_counter() - began_s
    judgements = {video.name: judge(video, reads[video.name].ranges) for video in videos}
    rows = [_row(video, reads[video.name], judgements[video.name]) for video in videos]
    return rows, [one for video in videos for one in judgements[video.name]], took_s


def _row(video: MadeUp, read: ReadBack, judgements: list[Judged]) -> Row:
    of = score(judgements)
    say(f"truth {video.name}: {of.found}/{of.words} words, {of.on_time}/{of.timed} on time, {of.whole} whole")
    for one in judgements:
        if not (one.is_whole and one.is_on_time):
            say(
                f"    {one.truth.text!r} {one.truth.t_start_ms}–{one.truth.t_end_ms} ms: {one.found}/{one.words}, {one.off_ms}"
            )
    return {
        "video": video.name,
        "seconds": video.duration_ms / 1000,
        "kept": read.sampled.kept,
        "detections": len(read.seen),
        "ranges": len(read.ranges),
        "lines": len(judgements),
        **of._asdict(),
    }


def sections(record: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the paragraphs and tables for RESULTS.md."""
    figures = record["measured"]
    text = (
        "Videos that are drawn by `tests/media/made_up`, so that each line of text and its times are known, through the "
        "sampler, the engine and the merge with their defaults. A word is found when a text that was there at the same time "
        "has it letter by letter; a line of 24 pixels or more is on time when it begins and ends within 150 ms. In all: "
        f"{figures['recall']:.1%} of words, {figures['on_time_share']:.1%} of lines on time, in {figures['seconds']:.0f} s."
    )
    rows = [
        (
            row["video"],
            f"{row['seconds']:g} s",
            row["kept"],
            row["detections"],
            row["ranges"],
            row["lines"],
            f"{row['found']}/{row['words']}",
            f"{row['on_time']}/{row['timed']}",
            row["whole"],
        )
        for row in figures["rows"]
    ]
    heads = (
        "video",
        "length",
        "frames kept",
        "detections",
        "ranges",
        "lines drawn",
        "words found",
        "on time",
        "whole lines",
    )
    return [text, table(heads, rows)]


if __name__ == "__main__":
    _, lines, seconds = asyncio.run(_read_all(sys.argv[1:] or (*ALL, CAPTIONS_40)))
    total = score(lines)
    print(
        f"{total.recall:.3f} of {total.words} words, {total.on_time_share:.3f} of {total.timed} lines on time, {seconds:.0f} s"
    )
