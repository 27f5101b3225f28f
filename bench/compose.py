"""How fast a script becomes a video: some 30 seconds of 720p, from Markdown to a checked MP4, stage by stage.

`python -m bench.compose` measures and prints. Times are by the clock and by CPU time, children included; a machine that
is busy with other work slows only the first.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFilter

from bench.measure import keep, say
from callsheet.media.compose import render, sources, stages, voice
from callsheet.media.compose.markdown import parse
from callsheet.media.compose.running import Means
from callsheet.media.ffmpeg import LIMITS, Ffmpeg

ROUNDS = 3
SENTENCES = (
    "A film set has a hundred people and one sun.",
    "When it goes down, the day is over.",
    "So everyone reads the same page in the morning.",
)
MEANS = Means(nice=0)


class Cost(NamedTuple):
    """Of one stage, children included."""

    wall_s: float
    cpu_s: float


def script_of(kind: str) -> str:
    """A title and three scenes: text alone, one picture beside it, or pictures over the whole screen."""
    scenes = []
    for number in range(3):
        picture = {"text": "", "picture": "![](photo.png)\n" if number == 1 else "", "full": "![](photo.png)\n"}[kind]
        layout = "<!-- layout: full -->\n" if kind == "full" else ""
        scenes.append(f"## Scene number {number + 1}\n{layout}{picture}{' '.join(SENTENCES)}\n")
    return "# A page for the crew\n" + "".join(scenes)


def photo(path: Path) -> None:
    """Something with detail everywhere, which is the worst case for a zoom."""
    picture = Image.effect_noise((2000, 1300), 90).filter(ImageFilter.GaussianBlur(4)).convert("RGB")
    ImageDraw.Draw(picture).ellipse((600, 300, 1400, 1100), (240, 170, 60))
    picture.save(path)


async def measure(kind: str, *, quick: bool) -> None:
    """Measure and keep the figures; `kind` is always ffmpeg, because no store takes part."""
    folder = Path(tempfile.mkdtemp(prefix="callsheet-bench-"))
    try:
        photo(folder / "photo.png")
        rows = []
        for script in ("text", "picture", "full"):
            rounds = [await _once(script, folder) for _ in range(1 if quick else ROUNDS)]
            rows.append(_row(script, rounds))
        keep(f"compose-{kind}", {"rows": rows, "servers": {"ffmpeg": Ffmpeg.default().binary.version}}, quick=quick)
    finally:
        shutil.rmtree(folder)


def _row(script: str, rounds: list[tuple[float, dict[str, Cost]]]) -> dict[str, Any]:
    duration_s = rounds[0][0]
    row: dict[str, Any] = {"script": script, "duration_s": duration_s}
    for stage in rounds[0][1]:
        row[f"{stage}_s"] = statistics.median(costs[stage].wall_s for _, costs in rounds)
        row[f"{stage}_cpu_s"] = statistics.median(costs[stage].cpu_s for _, costs in rounds)
    row["speed"] = statistics.median(duration_s / sum(cost.wall_s for cost in costs.values()) for _, costs in rounds)
    row["cpu_s"] = statistics.median(sum(cost.cpu_s for cost in costs.values()) for _, costs in rounds)
    say(f"compose {script}: " + ", ".join(f"{key} {value:.2f}" for key, value in row.items() if key != "script"))
    return row


async def _once(kind: str, folder: Path) -> tuple[float, dict[str, Cost]]:
    """Render one video; return its duration and the cost of each stage."""
    place = folder / "work"
    place.mkdir()
    how = Ffmpeg.default(limits=LIMITS._replace(nice=0))
    clock = _Clock()
    try:
        script = parse(script_of(kind))
        await stages.faces_for(script)
        files = await sources.collect(script, place, sources.from_folder(folder), MEANS)
        clock.lap("script")
        narration = await voice.speak(script, place, MEANS)
        clock.lap("voice")
        pictures = await stages.draw(script, {name: place / file for name, file in files.items()}, place, MEANS)
        clock.lap("visuals")
        plan = await render.plan(script, narration, pictures, place, place)
        clock.lap("compose")
        output = place / "output"
        output.mkdir()
        video = await render.render(plan, output, how)
        clock.lap("render")
        return video.duration_s, clock.costs
    finally:
        shutil.rmtree(place)


class _Clock:
    """Wall clock and CPU time since the last lap."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}
        self._wall_s, self._cpu_s = time.perf_counter(), sum(os.times()[:4])

    def lap(self, name: str) -> None:
        wall_s, cpu_s = time.perf_counter(), sum(os.times()[:4])
        self.costs[name] = Cost(wall_s - self._wall_s, cpu_s - self._cpu_s)
        self._wall_s, self._cpu_s = wall_s, cpu_s


if __name__ == "__main__":
    asyncio.run(measure("ffmpeg", quick=True))
