"""What sampling a video costs beside the bare decoding of it: CPU time, as a factor of `ffmpeg -threads 1 -f null`."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.measure import keep, say
from callsheet.media.binaries import ffmpeg
from callsheet.media.sampling.records import Kept, Sampled
from callsheet.media.sampling.sample import LIMITS, Means, sample
from callsheet.sandbox.command import environment

SECONDS, QUICK_SECONDS, PART_SECONDS = 60, 20, 10  # coding takes longer than all the rest: a part, again and again
ROUNDS = 3
LEAST = "-threads 1 -i {source} -map 0:v:0 -f null -"
ENCODING = "-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 250"
FLOW = (
    "-f lavfi -i gradients=s=1920x1080:r=30:d={{s}}:speed={speed}:n=6:seed=1"
    " -vf noise=alls=14:allf=t {{coded}} -b:v 6M -maxrate 8M -bufsize 12M {{source}}"
)
CLIPS = {
    # a page that changes once a second, and hardly anything in between
    "screencast": "-f lavfi -i testsrc=s=1920x1080:r=1:d={s} -vf fps=30 {coded} -crf 23 {source}",
    # colours that flow, with the grain of a camera
    "natural": FLOW.format(speed=0.002),
    # and so fast that no sample is like the one before: all are kept
    "restless": FLOW.format(speed=0.05),
}


async def measure(kind: str, *, quick: bool) -> None:
    """Measure and keep the figures; `kind` is always ffmpeg, because no store takes part."""
    folder = Path(tempfile.mkdtemp(prefix="callsheet-bench-"))
    seconds, rounds = (QUICK_SECONDS, 1) if quick else (SECONDS, ROUNDS)
    try:
        rows = [await _clip(name, folder, seconds, rounds) for name in CLIPS]
        facts = {"seconds": seconds, "rows": rows, "servers": {"ffmpeg": ffmpeg().version}}
        keep(f"sampling-{kind}", facts, quick=quick)
    finally:
        shutil.rmtree(folder)


async def _clip(name: str, folder: Path, seconds: int, rounds: int) -> dict[str, Any]:
    source = folder / f"{name}.mp4"
    await _run(CLIPS[name].format(s=PART_SECONDS, coded=ENCODING, source=folder / "part.mp4"), folder)
    await _run(f"-stream_loop {seconds // PART_SECONDS - 1} -i {folder / 'part.mp4'} -c copy {source}", folder)
    sides: dict[str, Callable[[], Awaitable[object]]] = {
        "bare": lambda: _run(LEAST.format(source=source), folder),
        "one": lambda: _sample(source, folder, 1),
        "two": lambda: _sample(source, folder, 2),
    }
    costs_of: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    outcome: Any = None
    for _ in range(rounds):
        for side, act in sides.items():
            cost, outcome = await _cost(act)
            costs_of[side].append(cost)
    row: dict[str, Any] = {
        "clip": name,
        "kept": outcome.kept,
        "sampled": outcome.sampled,
        "kbit_s": source.stat().st_size // (125 * seconds),
    }
    for side, costs in costs_of.items():
        row[f"{side}_s"] = statistics.median(wall_s for wall_s, _ in costs)
        row[f"{side}_cpu_s"] = statistics.median(cpu_s for _, cpu_s in costs)
        ratios = [cpu_s / bare_s for (_, cpu_s), (_, bare_s) in zip(costs, costs_of["bare"], strict=True)]
        row[f"{side}_ratio"] = statistics.median(ratios)
    say(f"sampling {name}: " + ", ".join(f"{k} {v:.3f}" for k, v in row.items() if k != "clip"))
    return row


async def _sample(source: Path, folder: Path, threads: int) -> Sampled:
    frames = folder / "frames"
    frames.mkdir()
    try:
        return await sample(source, frames, _drop, means=Means(limits=LIMITS._replace(nice=0), threads=threads))
    finally:
        shutil.rmtree(frames)


async def _drop(frame: Kept) -> None:
    frame.path.unlink()


async def _cost(act: Callable[[], Awaitable[object]]) -> tuple[tuple[float, float], object]:
    before, began = os.times(), time.perf_counter()
    outcome = await act()
    wall_s, after = time.perf_counter() - began, os.times()
    return (wall_s, sum(after[:4]) - sum(before[:4])), outcome


async def _run(words: str, folder: Path) -> None:
    command = [str(ffmpeg().path), "-v", "error", "-y", *words.split()]
    await asyncio.to_thread(
        subprocess.run, command, cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL, check=True
    )


def sections(record: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the paragraphs and tables for RESULTS.md."""
    figures = record["measured"]
    text = (
        f"Clips of {figures['seconds']} s, 1080p, 30 frames a second, ten samples a second. The least is `ffmpeg -threads 1 -f null`, "
        f"ffmpeg {figures['servers']['ffmpeg']}; sampling is all of it: the probe, both children and their start, the JPEGs that are "
        "kept. Medians of CPU time, factors of each round's own least. Target: 1.5."
    )
    rows = [
        (
            f"{row['clip']}, {row['kbit_s'] / 1000:.1f} Mbit/s",
            f"{row['kept']} of {row['sampled']}",
            f"{row['bare_cpu_s']:.2f} s",
            f"{row['one_ratio']:.2f}",
            f"{row['two_ratio']:.2f}",
            f"{row['bare_s']:.1f} / {row['one_s']:.1f} / {row['two_s']:.1f} s",
        )
        for row in figures["rows"]
    ]
    return [text, table(("clip", "kept", "least, CPU", "one thread", "two threads", "by the clock"), rows)]
