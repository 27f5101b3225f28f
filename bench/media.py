"""What the box and its checks cost beside a bare ffmpeg with the same arguments, on a source of 60 seconds."""

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
from typing import Any, NamedTuple

from bench.measure import keep, say
from callsheet.media.arguments import arguments_for, input_for
from callsheet.media.ffmpeg import LIMITS, Ffmpeg, Work
from callsheet.media.probe import Media, probe
from callsheet.media.spec import OutputSpec
from callsheet.media.transcode import transcode
from callsheet.sandbox.command import environment

SECONDS = 60
LEAST, MOST = 2, 5  # rounds; as many as fit into an output's time
SOURCE = (
    f"-f lavfi -i testsrc2=d={SECONDS}:s=1920x1080:r=30 -f lavfi -i sine=d={SECONDS} -c:v libx264 -preset ultrafast"
)
SPECS = {OutputSpec("out.mp4", "mp4", height=720): 55.0, OutputSpec("out.mp3", "mp3"): 15.0}  # and their seconds


class Cost(NamedTuple):
    """Of one run, children included."""

    wall_s: float
    cpu_s: float


async def measure(kind: str, *, quick: bool) -> None:
    """Measure and keep the figures; `kind` is always ffmpeg, because no store takes part."""
    folder = Path(tempfile.mkdtemp(prefix="callsheet-bench-"))
    try:
        how = Ffmpeg.default(limits=LIMITS._replace(nice=0))  # as the bare one
        source = folder / "source.mp4"
        await _bare(
            [str(how.binary.path), "-v", "error", *SOURCE.split(), "-pix_fmt", "yuv420p", "-c:a", "aac", str(source)],
            folder,
        )
        media = await probe(source)
        rows = [
            await _compare(spec, media, folder, how, 0.0 if quick else budget_s) for spec, budget_s in SPECS.items()
        ]
        keep(
            f"media-{kind}", {"seconds": SECONDS, "rows": rows, "servers": {"ffmpeg": how.binary.version}}, quick=quick
        )
    finally:
        shutil.rmtree(folder)


async def _compare(spec: OutputSpec, media: Media, folder: Path, how: Ffmpeg, budget_s: float) -> dict[str, Any]:
    """Measure ffmpeg bare, in the sandbox, and the whole `transcode`, in turns; each round has another order.

    `transcode` includes both probes and the digest. A ratio compares runs of one round, so other load on the machine
    slows both sides.
    """
    work = Work((input_for(spec, media),), arguments_for(spec, media, how.binary), media.duration_s)
    place = folder / "boxed"
    place.mkdir(exist_ok=True)

    async def whole() -> None:
        await transcode(media.path, spec, folder, how)

    sides: dict[str, Callable[[], Awaitable[object]]] = {
        "bare": lambda: _bare(how.command(work), folder),
        "boxed": lambda: how.run(work, place),
        "whole": whole,
    }
    if spec.form.video:
        del sides["boxed"]  # what it adds is the same for all, and is seen better where the work is short
    costs_of: dict[str, list[Cost]] = {name: [] for name in sides}
    start, rounds = time.perf_counter(), 0
    while rounds < LEAST or (rounds < MOST and time.perf_counter() - start < budget_s * rounds / (rounds + 1)):
        order = list(sides)[rounds % len(sides) :] + list(sides)[: rounds % len(sides)]
        for name in order:
            costs_of[name].append(await _cost(sides[name]))
        rounds += 1
    row: dict[str, Any] = {"output": spec.key, "rounds": rounds}
    row["added_s"] = statistics.median(
        whole.wall_s - bare.wall_s for whole, bare in zip(costs_of["whole"], costs_of["bare"], strict=True)
    )
    for name, costs in costs_of.items():
        row[f"{name}_s"] = statistics.median(cost.wall_s for cost in costs)
        row[f"{name}_cpu_s"] = statistics.median(cost.cpu_s for cost in costs)
        row[f"{name}_ratio"] = statistics.median(
            cost.wall_s / bare.wall_s for cost, bare in zip(costs, costs_of["bare"], strict=True)
        )
        row[f"{name}_cpu_ratio"] = statistics.median(
            cost.cpu_s / bare.cpu_s for cost, bare in zip(costs, costs_of["bare"], strict=True)
        )
    say(f"media {spec.key}: " + ", ".join(f"{k} {v:.3f}" for k, v in row.items() if k not in {"output", "rounds"}))
    return row


async def _cost(side: Callable[[], Awaitable[object]]) -> Cost:
    before, began = os.times(), time.perf_counter()
    await side()
    wall_s, after = time.perf_counter() - began, os.times()
    return Cost(wall_s, sum(after[:4]) - sum(before[:4]))


async def _bare(command: list[str], folder: Path) -> None:
    await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def sections(record: dict[str, Any], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the paragraphs and tables for RESULTS.md."""
    figures = record["measured"]
    text = (
        f"A source of {figures['seconds']} s (1080p, 30 frames a second, with sound), ffmpeg {figures['servers']['ffmpeg']}. Bare is "
        "ffmpeg with the same arguments; boxed adds the launcher, the walls and the watch; whole is `transcode`: a probe of "
        "the source, the run, a probe and the digest of the output. Medians, factors of each round's own bare run, by the "
        "clock and by CPU time. What is added hardly depends on how long the work takes. Target: 1.05 for the whole of a video."
    )
    rows = [
        (
            row["output"],
            row["rounds"],
            f"{row['bare_s']:.2f} s",
            f"{row['boxed_ratio']:.3f}" if "boxed_ratio" in row else "–",
            f"{row['boxed_cpu_ratio']:.3f}" if "boxed_ratio" in row else "–",
            f"{row['whole_ratio']:.3f}",
            f"{row['whole_cpu_ratio']:.3f}",
            f"{row['added_s']:.2f} s",
        )
        for row in figures["rows"]
    ]
    return [text, table(("output", "rounds", "bare", "boxed", "boxed, CPU", "whole", "whole, CPU", "added"), rows)]
