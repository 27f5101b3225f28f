"""Store the stages' results as files that outlive an attempt, and load them again."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, Protocol

from .draw import Drawn, layers_of
from .errors import InvalidStep
from .voice import Narration, scene_sound_of

AT_ONCE = 8
VOICE_FILE, VISUALS_FILE = "voice.json", "visuals.json"
IS_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}").fullmatch


class Shelf(Protocol):
    """The file store between attempts, such as an object store under the job's own prefix."""

    def keep(self, name: str, path: Path, /) -> Awaitable[str]:
        """Store a file, replacing one of the same name. Returns a key for `fetch`."""
        ...

    def fetch(self, key: str, path: Path, /) -> Awaitable[None]:
        """Download a file. Raises FileNotFoundError if it is missing."""
        ...


def place_in(folder: Path, name: object) -> Path:
    """Return the path of a step's file: a plain name, directly in the folder, no link. Raises InvalidStep."""
    if not isinstance(name, str) or not IS_PLAIN(name):
        raise InvalidStep(f"{str(name)[:100]!r} is no name of a step's file: letters, digits, '.', '_' and '-' are")
    path = folder / name
    if path.is_symlink():
        raise InvalidStep(f"{name} is a link in the job's folder; remove it")
    return path


class FolderShelf:
    """A file store in a local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def keep(self, name: str, path: Path, /) -> str:
        """Copy a file in; it gets its name when the copy is complete."""
        part, target = place_in(self._folder, f"{name}.part"), place_in(self._folder, name)
        await asyncio.to_thread(shutil.copyfile, path, part)
        part.replace(target)
        return name

    async def fetch(self, key: str, path: Path, /) -> None:
        """Copy a file out."""
        await asyncio.to_thread(shutil.copyfile, place_in(self._folder, key), path)


async def keep_all(shelf: Shelf, folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Store files of a folder; return their keys by name."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> tuple[str, str]:
        async with gate:
            return name, await shelf.keep(name, place_in(folder, name))

    return dict(await asyncio.gather(*map(one, names)))


async def fetch_all(shelf: Shelf, folder: Path, keys: dict[str, str]) -> bool:
    """Download files into a folder; return False if one is missing."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, key: str) -> None:
        async with gate:
            path = place_in(folder, name)
            if not path.is_file():
                await shelf.fetch(key, path)

    try:
        await asyncio.gather(*(one(name, key) for name, key in keys.items()))
    except FileNotFoundError:
        return False
    return True


def write_narration(narration: Narration, folder: Path) -> tuple[str, ...]:
    """Write the narration as JSON; return the names of all its files."""
    (folder / VOICE_FILE).write_text(json.dumps(narration), "utf-8")
    return VOICE_FILE, *(sound.file for sound in narration.scenes)


def read_narration(folder: Path) -> Narration:
    """Return the narration that `write_narration` wrote. Raises InvalidStep for an unsafe file name."""
    scenes, warnings = _read(folder / VOICE_FILE)
    narration = Narration(tuple(map(scene_sound_of, scenes)), tuple(warnings))
    for sound in narration.scenes:
        place_in(folder, sound.file)
    return narration


def write_layers(scenes: tuple[Drawn, ...], folder: Path) -> tuple[str, ...]:
    """Write the layers' records as JSON; return the names of all their files."""
    (folder / VISUALS_FILE).write_text(json.dumps(scenes), "utf-8")
    return VISUALS_FILE, *_files_of(scenes)


def read_layers(folder: Path) -> tuple[Drawn, ...]:
    """Return the layers that `write_layers` wrote. Raises InvalidStep for an unsafe file name."""
    scenes = tuple(map(layers_of, _read(folder / VISUALS_FILE)))
    for name in _files_of(scenes):
        place_in(folder, name)
    return scenes


def _files_of(scenes: tuple[Drawn, ...]) -> list[str]:
    return [name for one in scenes for name in (*(still.file for still in one.stills), one.photo) if name]


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
