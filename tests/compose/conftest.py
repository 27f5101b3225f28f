from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image, ImageDraw

from callsheet.media.compose import render, sources, stages, voice
from callsheet.media.compose.markdown import parse
from callsheet.media.compose.running import Means
from callsheet.media.compose.script import Script, Settings
from callsheet.media.compose.timeline import Timeline
from callsheet.media.ffmpeg import LIMITS, Ffmpeg

SMALL = Settings(width=320, height=180, fps=24, words_per_minute=220)
TWO_SCENES = """\
# Two scenes
## The first
It says this.
## The second
![](photo.png)
And that, at last.
"""
MEANS = Means(nice=0)  # others are at work on the same cores


class Made(NamedTuple):
    """A finished video and its inputs."""

    script: Script
    narration: voice.Narration
    timeline: Timeline
    video: render.Video
    reports: list[float]


def photo(path: Path, size: tuple[int, int] = (400, 300)) -> Path:
    picture = Image.new("RGB", size, (200, 90, 40))
    ImageDraw.Draw(picture).ellipse((40, 40, size[0] - 40, size[1] - 40), (250, 230, 120))
    picture.save(path)
    return path


def encoder() -> Ffmpeg:
    return Ffmpeg.default(limits=LIMITS._replace(nice=0))


async def planned(text: str, folder: Path, settings: Settings = SMALL) -> render.Plan:
    """Run every stage before the render, in a folder with the pictures."""
    script = parse(text, settings)
    files = await sources.collect(script, folder, sources.from_folder(folder), MEANS)
    narration = await voice.speak(script, folder, MEANS)
    pictures = await stages.draw(script, {name: folder / file for name, file in files.items()}, folder, MEANS)
    return await render.plan(script, narration, pictures, folder, folder)


async def made_in(folder: Path) -> Made:
    photo(folder / "photo.png")
    plan = await planned(TWO_SCENES, folder)
    output = folder / "output"
    output.mkdir()
    reports: list[float] = []
    video = await render.render(plan, output, encoder(), lambda report: reports.append(report.percent or 0))
    return Made(plan.script, plan.narration, plan.timeline, video, reports)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Make one video for all tests of this module."""
    import asyncio  # noqa: PLC0415 - a session's fixture has no loop of its own

    return asyncio.run(made_in(tmp_path_factory.mktemp("video")))
