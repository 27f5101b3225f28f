"""Fetch the pictures of a script. The script may come from a stranger: it names pictures, the caller fetches them."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol

from callsheet.media.ffmpeg import raise_if_stopped
from callsheet.sandbox.command import Sight

from .draw import MAX_BYTES
from .errors import PictureRefused
from .running import Means, Order, run_order
from .script import Picture, Script

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class Fetch(Protocol):
    """Writes the referenced picture to a path. Raises PictureRefused if it is forbidden or unavailable."""

    def __call__(self, reference: str, path: Path, /) -> Awaitable[None]:
        """Fetch a picture; `reference` is as written in the script, such as `object:pictures/harbour.jpg`."""
        ...


async def no_pictures(reference: str, path: Path) -> None:
    """Refuse every picture."""
    del reference, path
    raise PictureRefused("cannot be had: pictures are not taken here")


def from_folder(folder: Path) -> Fetch:
    """Return a fetcher for pictures inside a folder; outside paths are refused."""
    root = folder.resolve()

    async def fetch(reference: str, path: Path) -> None:
        if scheme := _SCHEME.match(reference):
            raise PictureRefused(f"{scheme[1]}: addresses are not fetched here; put the file beside the script")
        source = (root / reference).resolve()
        if not source.is_relative_to(root) or not source.is_file():
            raise PictureRefused("there is no such file in the folder of the script")
        if source.stat().st_size > MAX_BYTES:
            raise PictureRefused(f"has more than {MAX_BYTES} bytes")
        await asyncio.to_thread(shutil.copyfile, source, path)

    return fetch


async def collect(script: Script, folder: Path, fetch: Fetch, means: Means) -> dict[str, str]:
    """Fetch and inspect all pictures; return their files by reference. Raises PictureRefused."""
    files: dict[str, str] = {}
    for number, picture in enumerate(script.pictures):
        raise_if_stopped(means.is_stopped)
        files[picture.reference] = f"picture{number:03}"
        try:
            await fetch(picture.reference, folder / files[picture.reference])
        except PictureRefused as error:
            raise PictureRefused(_complaint(picture, str(error))) from None
    if files:
        await _inspect(script, folder, files, means)
    return files


async def _inspect(script: Script, folder: Path, files: dict[str, str], means: Means) -> None:
    reason_by_picture: dict[str, str] = {}

    def take(answer: dict[str, Any]) -> None:
        if "refused" in answer:
            reason_by_picture[answer["picture"]] = answer["refused"]

    paths = {reference: str(folder / name) for reference, name in files.items()}
    sight = Sight(read=tuple(folder / name for name in files.values()))
    await run_order(Order("look", {"pictures": paths}, sight), means, take)
    for picture in script.pictures:
        if picture.reference in reason_by_picture:
            raise PictureRefused(_complaint(picture, reason_by_picture[picture.reference]))


def _complaint(picture: Picture, why: str) -> str:
    return f"line {picture.line}: the picture {picture.reference[:200]!r} {why}"
