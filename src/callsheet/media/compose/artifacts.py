"""Results of stages as files that outlive an attempt, and the lists of them that stand in checkpoints."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, Protocol

from .draw import Drawn
from .errors import InvalidStep
from .orders import drawn_of
from .voice import Narration, voiced_of

AT_ONCE = 8
VOICE_FILE, VISUALS_FILE = "voice.json", "visuals.json"
IS_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}").fullmatch


class Shelf(Protocol):
    """Where files are kept between attempts, such as an object store under the job's own prefix."""

    def keep(self, name: str, path: Path, /) -> Awaitable[str]:
        """Store a file, over one of the same name; a key for `fetch`."""
        ...

    def fetch(self, key: str, path: Path, /) -> Awaitable[None]:
        """Bring a file back; raises FileNotFoundError when it is gone."""
        ...


def place_in(folder: Path, name: object) -> Path:
    """Where a step's file lies: under a plain name, directly in the folder, and no link. Raises InvalidStep."""
    if not isinstance(name, str) or not IS_PLAIN(name):
        raise InvalidStep(f"{str(name)[:100]!r} is no name of a step's file: letters, digits, '.', '_' and '-' are")
    path = folder / name
    if path.is_symlink():
        raise InvalidStep(f"{name} is a link in the job's folder; remove it")
    return path


class FolderShelf:
    """A shelf that is a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def keep(self, name: str, path: Path, /) -> str:
        """Copy it in; it has its name only when it is whole."""
        part, kept = place_in(self._folder, f"{name}.part"), place_in(self._folder, name)
        await asyncio.to_thread(shutil.copyfile, path, part)
        part.replace(kept)
        return name

    async def fetch(self, key: str, path: Path, /) -> None:
        """Copy it out."""
        await asyncio.to_thread(shutil.copyfile, place_in(self._folder, key), path)


async def keep_all(shelf: Shelf, folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Keep files of a folder; their keys by name."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> tuple[str, str]:
        async with gate:
            return name, await shelf.keep(name, place_in(folder, name))

    return dict(await asyncio.gather(*map(one, names)))


async def fetch_all(shelf: Shelf, folder: Path, keys: dict[str, str]) -> bool:
    """Bring files back into a folder; False when one of them is gone."""
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
    """Write it down; the names of all its files."""
    (folder / VOICE_FILE).write_text(json.dumps(narration), "utf-8")
    return VOICE_FILE, *(voiced.file for voiced in narration.scenes)


def read_narration(folder: Path) -> Narration:
    """What `write_narration` wrote."""
    scenes, warnings = _read(folder / VOICE_FILE)
    found = Narration(tuple(map(voiced_of, scenes)), tuple(warnings))
    for voiced in found.scenes:
        place_in(folder, voiced.file)
    return found


def write_drawn(drawn: tuple[Drawn, ...], folder: Path) -> tuple[str, ...]:
    """Write it down; the names of all its files."""
    (folder / VISUALS_FILE).write_text(json.dumps(drawn), "utf-8")
    return VISUALS_FILE, *_files_of(drawn)


def read_drawn(folder: Path) -> tuple[Drawn, ...]:
    """What `write_drawn` wrote."""
    found = tuple(map(drawn_of, _read(folder / VISUALS_FILE)))
    for name in _files_of(found):
        place_in(folder, name)
    return found


def _files_of(drawn: tuple[Drawn, ...]) -> list[str]:
    return [name for one in drawn for name in (*(still.file for still in one.stills), one.photo) if name]


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
