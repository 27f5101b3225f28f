"""The Visuals stage: the child draws the layers of every scene."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from callsheet.sandbox.command import Sight

from .draw import Drawn
from .fonts import Faces, choose
from .orders import faces_as_json, layers_of
from .running import Means, Order, run_child
from .script import Script


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
    await run_child(Order("draw", facts, sight), means, take)
    return tuple(layers_by_scene[number] for number in range(len(script.scenes)))
