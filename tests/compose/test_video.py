"""A whole video, looked at from outside: streams, length, pictures, sound, captions.

Stopping leaves no files behind.
"""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import psutil
import pytest
from PIL import Image, ImageStat

from callsheet.media.compose import render
from callsheet.media.compose.errors import ChildFailed
from callsheet.media.compose.running import LIMITS
from callsheet.media.compose.timeline import Cue, web_vtt
from callsheet.media.errors import FfmpegFailed, MediaError, MediaStopped
from callsheet.media.ffmpeg import Ffmpeg
from callsheet.sandbox.processes import start_alone
from tests.compose.conftest import SMALL, Made, encoder, planned

LONG = "---\nvoice: tone\nsize: 640x360\nfps: 60\n---\n## A\n<!-- duration: 600 -->\nIt lasts long."


def frames_of(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def seconds(text: str) -> float:
    hours, minutes, rest = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


def test_a_video_has_the_length_and_the_streams_that_were_planned(made: Made) -> None:
    with av.open(str(made.video.video)) as container:
        video, audio = container.streams.video[0], container.streams.audio[0]
        assert (video.codec_context.name, video.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert (video.width, video.height, float(video.average_rate or 0)) == (SMALL.width, SMALL.height, SMALL.fps)
        colours = video.codec_context
        assert (colours.color_primaries, colours.color_trc, colours.colorspace, colours.color_range) == (1, 1, 1, 1)
        assert (audio.codec_context.name, audio.codec_context.sample_rate) == ("aac", 48_000)
        assert (container.duration or 0) / 1e6 == pytest.approx(made.timeline.duration_s, abs=0.1)
    assert 6 < made.video.duration_s < 14
    assert made.video.duration_s == pytest.approx(made.timeline.duration_s, abs=0.1)


def test_a_video_begins_to_play_before_it_is_loaded(made: Made) -> None:
    head = made.video.video.read_bytes()
    assert head.index(b"moov") < head.index(b"mdat")


def test_no_frame_is_black_and_every_scene_shows_something_else(made: Made) -> None:
    frames = frames_of(made.video.video)
    assert len(frames) == made.timeline.frames
    assert min(frame.max() for frame in frames) > 40
    last = [frames[shot.end - 20].astype(int) for shot in made.timeline.shots]
    assert all(np.abs(one - other).mean() > 2 for one, other in pairwise(last))
    assert all(frame.std() > 15 for frame in last[:-1])


def test_text_appears_with_its_words(made: Made) -> None:
    """The first scene shows only its heading before its sentence is spoken."""
    frames, shot = frames_of(made.video.video), made.timeline.shots[1]
    heading = frames[shot.states[1] - 1].astype(int)
    sentence = frames[shot.states[1] + 10].astype(int)
    assert np.abs(sentence - heading).max() > 80
    said_s = made.timeline.shots[1].voice_ms / 1000
    assert abs(shot.states[1] / SMALL.fps - said_s) < 0.3


def test_a_photograph_moves_all_the_time(made: Made) -> None:
    frames, shot = frames_of(made.video.video), made.timeline.shots[2]
    one, other = frames[shot.start + 24].astype(int), frames[shot.start + 48].astype(int)
    assert np.abs(one - other)[:, 200:].max() > 10


def test_there_is_sound_where_something_is_said(made: Made) -> None:
    with av.open(str(made.video.video)) as container:
        sound = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])
    for shot in made.timeline.shots:
        start = int(shot.voice_ms / 1000 * 48_000)
        assert np.sqrt(np.mean(sound[start : start + 24_000] ** 2)) > 0.02


def test_captions_are_in_order_within_the_video_and_say_what_is_said(made: Made) -> None:
    text = made.video.captions.read_text("utf-8")
    assert text.startswith("WEBVTT\nLanguage: en\n")
    blocks = [block.split("\n") for block in text.strip().split("\n\n")[1:]]
    times = [[seconds(part) for part in block[1].split(" --> ")] for block in blocks]
    flat = [time for pair in times for time in pair]
    assert flat == sorted(flat)
    assert flat[-1] <= made.video.duration_s
    message = " ".join(" ".join(block[2:]) for block in blocks)
    assert message == " ".join(text for scene in made.script.scenes for text in scene.narration_texts)


def test_captions_are_safe_to_read() -> None:
    text = web_vtt([Cue(3_599_999, 3_600_001, "a < b & c --> d")])
    assert text == "WEBVTT\n\n1\n00:59:59.999 --> 01:00:00.001\na &lt; b &amp; c --&gt; d\n"


def test_the_poster_shows_the_title(made: Made) -> None:
    with Image.open(made.video.poster) as poster:
        assert poster.size == (SMALL.width, SMALL.height)
        assert ImageStat.Stat(poster.convert("L")).stddev[0] > 15


def test_the_manifest_tells_scenes_and_times(made: Made) -> None:
    manifest = json.loads(made.video.manifest.read_text("utf-8"))
    assert (manifest["title"], manifest["voice"], manifest["warnings"]) == ("Two scenes", "speech", [])
    assert [scene["heading"] for scene in manifest["scenes"]] == ["Two scenes", "The first", "The second"]
    ends = [scene["end_s"] for scene in manifest["scenes"]]
    assert [scene["start_s"] for scene in manifest["scenes"]] == [0.0, *ends[:-1]]
    assert ends[-1] == pytest.approx(manifest["duration_s"], abs=0.1)


def test_progress_is_told_and_never_falls(made: Made) -> None:
    assert made.reports == sorted(made.reports)
    assert made.reports[-1] > 90


def test_nothing_is_left_beside_the_results(made: Made) -> None:
    names = {path.name for path in made.video.video.parent.iterdir()}
    assert names == {"video.mp4", "poster.jpg", "captions.vtt", "manifest.json"}


class Started:
    """Starts programs and remembers them."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.running = asyncio.Event()

    async def __call__(self, program: str, *args: str, **options: Any) -> asyncio.subprocess.Process:
        process = await start_alone(program, *args, **options)
        self.pids.append(process.pid)
        if len(self.pids) == 2:  # the painter and the encoder
            self.running.set()
        return process

    def alive(self) -> list[int]:
        return [pid for pid in self.pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


@pytest.mark.parametrize("way", ["flag", "task"])
async def test_a_stop_in_the_render_leaves_no_process_and_no_file(tmp_path: Path, way: str) -> None:
    plan, children = await planned(LONG, tmp_path), Started()
    output = tmp_path / "output"
    output.mkdir()
    how = encoder()._replace(start=children, is_stopped=lambda: way == "flag" and children.running.is_set())
    task = asyncio.create_task(render.render(plan, output, how))
    async with asyncio.timeout(120):
        await children.running.wait()
        if way == "task":
            task.cancel()
        completed_tasks, _ = await asyncio.wait({task}, timeout=60)
    assert completed_tasks, "it goes on"
    assert task.cancelled() if way == "task" else isinstance(task.exception(), MediaStopped)
    assert not children.alive()
    assert not list(output.iterdir())


async def test_a_painter_that_dies_ends_the_render(tmp_path: Path) -> None:
    plan = await planned(LONG, tmp_path)
    output = tmp_path / "output"
    output.mkdir()
    (plan.layers / plan.drawn[0].stills[0].file).write_bytes(b"no picture")
    with pytest.raises(MediaError, match="the process for `paint` ended with"):
        async with asyncio.timeout(60):
            await render.render(plan, output, encoder())
    assert not list(output.iterdir())


async def test_an_encoder_that_dies_ends_the_painter(tmp_path: Path) -> None:
    plan = (await planned(LONG, tmp_path))._replace(sound=tmp_path / "nothing.wav")
    (tmp_path / "nothing.wav").write_bytes(b"RIFF")
    output, children = tmp_path / "output", Started()
    output.mkdir()
    with pytest.raises(MediaError) as excinfo:
        async with asyncio.timeout(60):
            await render.render(plan, output, encoder()._replace(start=children))
    assert "paint" not in str(excinfo.value)
    assert not children.alive()
    assert not list(output.iterdir())


async def test_an_encoder_that_is_seen_to_die_after_the_painter_is_still_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The painter's process may be waited for first: its broken pipe says nothing that helps."""
    broke = asyncio.Event()

    async def paint(*_: object) -> None:
        broke.set()
        raise ChildFailed("the process for `paint` ended with 1: BrokenPipeError: [Errno 32] Broken pipe")

    async def encode(*_: object) -> None:
        await broke.wait()
        for _look in range(10):
            await asyncio.sleep(0)
        raise FfmpegFailed("libx264 could not be loaded")

    plan = await planned(LONG, tmp_path)
    output = tmp_path / "output"
    output.mkdir()
    monkeypatch.setattr(render, "_paint", paint)
    monkeypatch.setattr(Ffmpeg, "run", encode)
    with pytest.raises(FfmpegFailed, match="could not be loaded"):
        await render.render(plan, output, encoder())


def test_a_child_may_use_no_more_than_it_needs() -> None:
    assert LIMITS.memory_bytes <= 4 << 30
    assert LIMITS.wall_s <= 3600
