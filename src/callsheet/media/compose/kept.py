"""Results of stages as files that outlive an attempt, and the lists of them that stand in checkpoints."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, Protocol

from .draw import Drawn
from .orders import drawn_of
from .voice import Narration, voiced_of

AT_ONCE = 8
VOICE_FILE, VISUALS_FILE = "voice.json", "visuals.json"


class Shelf(Protocol):
    """Where files are kept between attempts, such as an object store under the job's own prefix."""

    def keep(self, name: str, path: Path, /) -> Awaitable[str]:
        """Store a file, over one of the same name; a key for `fetch`."""
        ...

    def fetch(self, key: str, path: Path, /) -> Awaitable[None]:
        """Bring a file back; raises FileNotFoundError when it is gone."""
        ...


class FolderShelf:
    """A shelf that is a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def keep(self, name: str, path: Path, /) -> str:
        """Copy it in; it has its name only when it is whole."""
        part = self._folder / f"{name}.part"
        await asyncio.to_thread(shutil.copyfile, path, part)
        part.replace(self._folder / name)
        return name

    async def fetch(self, key: str, path: Path, /) -> None:
        """Copy it out."""
        await asyncio.to_thread(shutil.copyfile, self._folder / key, path)


async def keep_all(shelf: Shelf, folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Keep files of a folder; their keys by name."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> tuple[str, str]:
        async with gate:
            return name, await shelf.keep(name, folder / name)

    return dict(await asyncio.gather(*map(one, names)))


async def fetch_all(shelf: Shelf, folder: Path, keys: dict[str, str]) -> bool:
    """Bring files back into a folder; False when one of them is gone."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, key: str) -> None:
        async with gate:
            if not (folder / name).is_file():
                await shelf.fetch(key, folder / name)

    try:
        await asyncio.gather(*(one(name, key) for name, key in keys.items()))
    except FileNotFoundError:
        return False
    return True


def write_narration(narration: Narration, folder: Path) -> tuple[str, ...]:
    """Write it down; the names of all its files."""
    (folder / VOICE_FILE).write_text(json.dumps(narration), "utf-8")
    return VOICE_FILE, *(voiced.file for voiced in narration.scenes)


def read_narration(folder: Path) -> Narration:
    """What `write_narration` wrote."""
    scenes, warnings = _read(folder / VOICE_FILE)
    return Narration(tuple(map(voiced_of, scenes)), tuple(warnings))


def write_drawn(drawn: tuple[Drawn, ...], folder: Path) -> tuple[str, ...]:
    """Write it down; the names of all its files."""
    (folder / VISUALS_FILE).write_text(json.dumps(drawn), "utf-8")
    files = [name for one in drawn for name in (*(still.file for still in one.stills), one.photo) if name]
    return VISUALS_FILE, *files


def read_drawn(folder: Path) -> tuple[Drawn, ...]:
    """What `write_drawn` wrote."""
    return tuple(map(drawn_of, _read(folder / VISUALS_FILE)))


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
