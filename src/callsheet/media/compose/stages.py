"""The whole task: stages with shares of the progress, checkpoints for Script, Voice and Visuals, then the render.

A context of `callsheet.worker` satisfies `Stages`. Finished stages are stored on a shelf, so that another attempt,
perhaps on another machine, continues from there; Initialization and Rendering have no checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from callsheet.media.ffmpeg import Ffmpeg, raise_if_stopped
from callsheet.media.progress import Progress
from callsheet.sandbox.command import Sight
from callsheet.sandbox.processes import Start

from .artifacts import Shelf, fetch_all, keep_all, place_in, read_layers, read_narration, write_layers, write_narration
from .draw import Drawn, faces_as_json, layers_of
from .errors import InvalidScript
from .fonts import Faces, choose
from .markdown import Write, parse, write_script
from .render import Video, plan, render
from .running import Means, Order, run_order
from .script import Script, Settings
from .sources import Fetch, collect, no_pictures
from .voice import Narration, speak

# where each stage begins, in percent; the next one's start is its end
SHARES = {"Initialization": 0, "Script": 2, "Voice": 15, "Visuals": 35, "Compose": 65, "Rendering": 85}
OUTPUT = "output"


class Children(Protocol):
    """Starts programs that end with the attempt."""

    @property
    def start(self) -> Start:
        """Start a program, as asyncio.create_subprocess_exec."""
        ...


class Checkpoint(Protocol):
    """A step; `done` if an earlier attempt completed it, and then `result` holds its result."""

    done: bool
    result: Any


class Stages(Protocol):
    """The interface of a task's context."""

    @property
    def workspace(self) -> Path:
        """A folder of this attempt alone."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the worker cancelled this job."""
        ...

    @property
    def children(self) -> Children:
        """Starts child programs."""
        ...

    def stage(self, name: str) -> Any:
        """Enter a stage by name."""
        ...

    def progress(self, percent: float, message: str = "") -> Any:
        """Report the job's progress."""
        ...

    def emit(self, type: str, /, **data: Any) -> Any:
        """Send an event to watchers."""
        ...

    def step(self, name: str) -> AbstractAsyncContextManager[Checkpoint, Any]:
        """Return a checkpoint."""
        ...


class Request(NamedTuple):
    """A video request: a Markdown script, or a brief for a script-writing model."""

    script: str = ""
    brief: str = ""
    settings: Settings = Settings()


class Parts(NamedTuple):
    """External services of the stages: the shelf, the pictures, and a model that writes."""

    shelf: Shelf
    fetch: Fetch = no_pictures
    write: Write | None = None


class Composed(NamedTuple):
    """The video, and which steps ran in this attempt; the others came from an earlier attempt."""

    video: Video
    ran: tuple[str, ...]


async def compose(context: Stages, request: Request, parts: Parts) -> Composed:
    """Make a video in the workspace, stage by stage. Raises MediaError, such as InvalidScript or MissingGlyphs."""
    return await _Composing(context, request, parts).run()


class _Composing:
    def __init__(self, context: Stages, request: Request, parts: Parts) -> None:
        self._context = context
        self._request = request
        self._parts = parts
        self._means = Means(context.children.start, lambda: context.cancelled)
        self._ran: list[str] = []
        self._stage = ""

    async def run(self) -> Composed:
        """Run all stages in order."""
        self._enter("Initialization")
        how = Ffmpeg.default(start=self._means.start, is_stopped=self._means.is_stopped)
        folders = {name: self._context.workspace / name for name in ("pictures", "voice", "visuals", OUTPUT)}
        for folder in folders.values():
            folder.mkdir(exist_ok=True)
        self._enter("Script")
        script, pictures = await self._script(folders["pictures"])
        self._enter("Voice")
        narration = await self._voice(script, folders["voice"])
        self._enter("Visuals")
        layers = await self._visuals(script, pictures, folders["visuals"])
        self._enter("Compose")
        whole = await plan(script, narration, layers, folders["voice"], folders["visuals"])
        self._enter("Rendering")
        video = await render(whole, folders[OUTPUT], how, self._report_rendering)
        self._context.progress(100, f"{video.duration_s:.0f} s of video")
        return Composed(video, tuple(self._ran))

    async def _script(self, folder: Path) -> tuple[Script, dict[str, Path]]:
        result = await self._step("Script", folder, lambda: self._make_script(folder))
        script = parse(result["markdown"], self._request.settings)
        return script, {reference: place_in(folder, name) for reference, name in result["pictures"].items()}

    async def _make_script(self, folder: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
        text = self._request.script
        if not text.strip():
            if self._parts.write is None:
                raise InvalidScript("there is no script, and no model is set up that could write one for the brief")
            text, _ = await write_script(self._request.brief, self._parts.write, self._request.settings)
        script = parse(text, self._request.settings)
        await faces_for(script)  # report missing glyphs now, not after the voice stage
        pictures = await collect(script, folder, self._parts.fetch, self._means)
        return {"markdown": text, "pictures": pictures}, tuple(pictures.values())

    async def _voice(self, script: Script, folder: Path) -> Narration:
        async def make() -> tuple[dict[str, Any], tuple[str, ...]]:
            narration = await speak(script, folder, self._means, self._scene_of(script))
            for warning in narration.warnings:
                self._context.emit("warning", message=warning, step="Voice")
            return {"warnings": narration.warnings}, write_narration(narration, folder)

        await self._step("Voice", folder, make)
        return read_narration(folder)

    async def _visuals(self, script: Script, pictures: dict[str, Path], folder: Path) -> tuple[Drawn, ...]:
        async def make() -> tuple[dict[str, Any], tuple[str, ...]]:
            layers = await draw(script, pictures, folder, self._means, self._scene_of(script))
            return {}, write_layers(layers, folder)

        await self._step("Visuals", folder, make)
        return read_layers(folder)

    async def _step(
        self, name: str, folder: Path, make: Callable[[], Awaitable[tuple[dict[str, Any], tuple[str, ...]]]]
    ) -> dict[str, Any]:
        """Return a stored result with its files in the folder, or run the step and store its result."""
        async with self._context.step(name) as step:
            if not step.done or not await fetch_all(self._parts.shelf, folder, step.result["files"]):
                self._ran.append(name)
                result, names = await make()
                step.result = {**result, "files": await keep_all(self._parts.shelf, folder, names)}
            stored_result: dict[str, Any] = step.result
        return stored_result

    def _enter(self, stage: str) -> None:
        raise_if_stopped(self._means.is_stopped)
        self._stage = stage
        self._context.progress(SHARES[stage], f"on to {stage}")  # first: a stage's percent is never below its range
        self._context.stage(stage)

    def _scene_of(self, script: Script) -> Callable[[int], object]:
        count = len(script.scenes)
        return lambda number: self._report(number / count, f"{self._stage}: scene {number} of {count}")

    def _report_rendering(self, progress: Progress) -> None:
        if progress.percent is not None:
            self._report(progress.percent / 100, f"Rendering: {progress.out_time_s:.0f} s")

    def _report(self, share: float, message: str) -> None:
        starts = [*SHARES.values(), 100]
        at = list(SHARES).index(self._stage)
        self._context.progress(starts[at] + (starts[at + 1] - starts[at]) * min(1.0, share), message)


async def faces_for(script: Script) -> Faces:
    """Return this machine's fonts for a script. Raises MissingGlyphs or ShapingMissing."""
    return await asyncio.to_thread(choose, script.texts)


async def draw(
    script: Script,
    pictures: dict[str, Path],
    folder: Path,
    means: Means,
    on_scene: Callable[[int], object] = lambda _: None,
) -> tuple[Drawn, ...]:
    """Draw every scene into a folder; `pictures` are files by reference. Raises ComposeError or MediaStopped."""
    faces = await faces_for(script)
    layers_by_scene: dict[int, Drawn] = {}

    def take(answer: dict[str, Any]) -> None:
        layers_by_scene[answer["scene"]] = layers_of(answer["drawn"])
        on_scene(len(layers_by_scene))

    scenes = [
        {"number": number, "scene": scene, "picture": str(pictures[scene.picture.reference]) if scene.picture else ""}
        for number, scene in enumerate(script.scenes)
    ]
    facts = {
        "settings": script.settings._asdict(),
        "faces": faces_as_json(faces),
        "folder": str(folder),
        "scenes": scenes,
    }
    sight = Sight((*faces.files, *pictures.values()), (folder,))
    await run_order(Order("draw", facts, sight), means, take)
    return tuple(layers_by_scene[number] for number in range(len(script.scenes)))
