"""The compose task as a job: stages and shares of the progress, resumed from its steps, cancelled without a trace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from callsheet import Callsheet, Context
from callsheet.kernel.job import Event, Status
from callsheet.kernel.retry import Backoff, RetryPolicy
from callsheet.media.compose.artifacts import FolderShelf
from callsheet.media.compose.errors import InvalidScript
from callsheet.media.compose.script import Settings
from callsheet.media.compose.sources import from_folder
from callsheet.media.compose.stages import Parts, Request, Stages, compose
from tests import stores
from tests.compose.conftest import TWO_SCENES, photo
from tests.running_worker import until, working

AT_ONCE = RetryPolicy(backoff=Backoff(table_ms=(0,)))
TINY = Settings(width=192, height=180, fps=24, words_per_minute=300)
SHORT = "## One\n![](photo.png)\nYes.\n## Two\nNo."
LONG = "---\nvoice: tone\nsize: 640x360\nfps: 60\n---\n## A\n<!-- duration: 200 -->\nIt lasts long."


class CountingShelf(FolderShelf):
    """Counts what is kept and fetched."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept: list[str] = []
        self.fetched: list[str] = []

    async def keep(self, name: str, path: Path, /) -> str:
        self.kept.append(name)
        return await super().keep(name, path)

    async def fetch(self, key: str, path: Path, /) -> None:
        self.fetched.append(key)
        await super().fetch(key, path)


class FailsAt:
    """A context that breaks when a stage is entered."""

    def __init__(self, context: Context, stage: str) -> None:
        self._context = context
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def stage(self, name: str) -> Any:
        if name == self._stage:
            raise RuntimeError("the machine went down")
        return self._context.stage(name)


def fits(context: Context) -> Stages:
    """For the type checker: a worker's context satisfies the stages' protocol."""
    return context


@pytest.fixture
async def app() -> AsyncIterator[Callsheet]:
    async with Callsheet(stores.fresh_url("sqlite")) as app:
        yield app


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    photo(tmp_path / "photo.png")
    (tmp_path / "shelf").mkdir()
    return Parts(CountingShelf(tmp_path / "shelf"), from_folder(tmp_path))


async def events(app: Callsheet, job_id: str) -> list[Event]:
    return await (await app.engine()).store.events({job_id: 0}, 10_000)


async def test_a_job_that_broke_goes_on_from_its_last_step(app: Callsheet, parts: Parts) -> None:
    ran: list[tuple[str, ...]] = []

    @app.task(retry=AT_ONCE)
    async def video(ctx: Context) -> dict[str, Any]:
        context: Any = FailsAt(ctx, "Rendering") if ctx.attempt == 1 else fits(ctx)
        video_made = await compose(context, Request(SHORT, settings=TINY), parts)
        ran.append(video_made.ran)
        return {
            "bytes": video_made.video.video.stat().st_size,
            "names": sorted(p.name for p in video_made.video.video.parent.iterdir()),
        }

    job = await video.enqueue()
    async with working(app):
        result = await job.result(timeout=60)
    assert result["bytes"] > 5_000
    assert result["names"] == ["captions.vtt", "manifest.json", "poster.jpg", "video.mp4"]
    assert ran == [()]
    shelf = parts.shelf
    assert isinstance(shelf, CountingShelf)
    assert len(shelf.kept) == len(set(shelf.kept))
    assert set(shelf.fetched) == set(shelf.kept)


async def test_a_step_whose_files_are_gone_is_done_again(app: Callsheet, parts: Parts, tmp_path: Path) -> None:
    ran: list[tuple[str, ...]] = []

    @app.task(retry=AT_ONCE)
    async def video(ctx: Context) -> None:
        context: Any = FailsAt(ctx, "Compose") if ctx.attempt == 1 else ctx
        if ctx.attempt == 2:
            (tmp_path / "shelf" / "scene000.wav").unlink()
        ran.append((await compose(context, Request(SHORT, settings=TINY), parts)).ran)

    job = await video.enqueue()
    async with working(app):
        await job.result(timeout=60)
    assert ran == [("Voice",)]
    assert (tmp_path / "shelf" / "scene000.wav").is_file()


async def test_stages_come_in_order_within_their_shares(app: Callsheet, parts: Parts) -> None:
    @app.task(max_attempts=1)
    async def video(ctx: Context) -> None:
        await compose(ctx, Request(TWO_SCENES, settings=TINY), parts)

    job = await video.enqueue()
    async with working(app):
        await job.result(timeout=60)
    job_events = await events(app, job.job_id)
    shares = {"Script": (2, 15), "Voice": (15, 35), "Visuals": (35, 65), "Compose": (65, 85), "Rendering": (85, 100)}
    order: list[str] = []
    percents: dict[str, list[float]] = {}
    for event in job_events:
        if event.type == "stage":
            order.append(event.step)
        elif event.type == "progress" and order:
            percents.setdefault(order[-1], []).append(event.progress)
    assert order == ["Initialization", *shares]
    for stage, (low, high) in shares.items():
        assert all(low <= percent <= high for percent in percents[stage]), (stage, percents[stage])
    assert percents["Rendering"][-1] == 100
    assert len(percents["Voice"]) >= 3


async def test_a_cancelled_job_leaves_no_process_and_no_file(app: Callsheet, parts: Parts) -> None:
    places: list[Path] = []
    painting = asyncio.Event()

    @app.task(max_attempts=1)
    async def video(ctx: Context) -> None:
        places.append(ctx.workspace)

        class Watching(FailsAt):
            def progress(self, percent: float, message: str = "") -> Any:
                if message.startswith("Rendering: "):
                    painting.set()
                return ctx.progress(percent, message)

        context: Any = Watching(ctx, "never")
        await compose(context, Request(LONG), parts)

    job = await video.enqueue()
    async with working(app), asyncio.timeout(60):
        await painting.wait()
        await job.cancel()
        await until(lambda: not places[0].exists())
    assert (await job.get()).status is Status.CANCELED
    ours = [child.cmdline() for child in psutil.Process().children(recursive=True) if child.status() != "zombie"]
    assert not [line for line in ours if any(str(places[0]) in word for word in line)]


async def test_without_a_voice_a_warning_is_sent(app: Callsheet, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    from callsheet.media.compose import voice  # noqa: PLC0415 - to be changed
    from callsheet.media.compose.speech import NoVoice  # noqa: PLC0415

    def none() -> tuple[str, str]:
        raise NoVoice("espeak-ng is not installed")

    monkeypatch.setattr(voice, "voice_library", none)

    @app.task(max_attempts=1)
    async def video(ctx: Context) -> list[str]:
        video_made = await compose(ctx, Request("## A\nYes.", settings=TINY), parts)
        assert json.loads(video_made.video.manifest.read_text())["voice"] == "tone"
        return list(video_made.video.warnings)

    job = await video.enqueue()
    async with working(app):
        (warning,) = await job.result(timeout=60)
    assert "tones and captions instead of a voice" in warning
    warnings_sent = [json.loads(event.data) for event in await events(app, job.job_id) if event.type == "warning"]
    assert [(event["message"], event["step"]) for event in warnings_sent] == [(warning, "Voice")]


async def test_a_brief_needs_a_model(app: Callsheet, parts: Parts) -> None:
    @app.task(max_attempts=1)
    async def video(ctx: Context) -> str:
        with pytest.raises(InvalidScript) as excinfo:
            await compose(ctx, Request(brief="About boats"), parts)
        return str(excinfo.value)

    job = await video.enqueue()
    async with working(app):
        assert "no model is set up" in await job.result(timeout=60)


async def test_a_brief_becomes_a_video(app: Callsheet, parts: Parts) -> None:
    async def write(prompt: str) -> str:
        return "## Boats\nThey float."

    @app.task(max_attempts=1)
    async def video(ctx: Context) -> str:
        video_made = await compose(ctx, Request(brief="About boats", settings=TINY), parts._replace(write=write))
        return video_made.video.captions.read_text()

    job = await video.enqueue()
    async with working(app):
        assert "They float." in await job.result(timeout=60)
