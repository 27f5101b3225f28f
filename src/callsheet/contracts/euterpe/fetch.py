"""The stage `fetching` brings a source of any kind into the attempt's folder, and counts and hashes its bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from callsheet.media.errors import DiskFull
from callsheet.objects import Objects
from callsheet.objects.errors import ObjectsUnavailable, ObjectTooLarge

from .access import s3_objects
from .download import free_bytes
from .locations import OWN, URL, Place
from .pace import minimum_pace

if TYPE_CHECKING:
    from callsheet.worker.context import Context

    from .access import Access
    from .models import Storage
    from .tasks import Parts

SPARE_BYTES = 256 * 1024 * 1024
SHARE = 20.0  # percent of the job


class Source(NamedTuple):
    """The downloaded file to transcode."""

    path: Path
    size_bytes: int
    sha256: str


async def fetch(ctx: Context, parts: Parts, access: Access, place: Place, storage: Storage) -> Source:
    """Download the source to disk; raises ObjectsError, Refused, VaultError, DiskFull and similar errors."""
    path = ctx.workspace / "source"
    telling = _telling(ctx)
    if place.kind == URL:
        source = await access.with_url(
            lambda url: parts.downloads.take(url, path, parts.max_source_bytes, lambda n: check_room(path, n), telling)
        )
        return Source(path, source.size_bytes, source.sha256)
    if place.kind == OWN:
        return await _from_objects(ctx.objects, place.path, path, parts.max_source_bytes, telling)
    slow = ObjectsUnavailable("the source's storage sends too slowly")
    async with (
        s3_objects(place, storage, await access.keys_for("source"), parts.rules) as objects,
        minimum_pace(slow) as count,
    ):
        return await _from_objects(objects, place.path, path, parts.max_source_bytes, _counting(count, telling))


async def _from_objects(
    objects: Objects, key: str, path: Path, max_bytes: int, progress: Callable[[int, int], None]
) -> Source:
    info = await objects.head(key)
    if info.size_bytes > max_bytes:
        raise ObjectTooLarge(f"the source has {info.size_bytes} bytes, and {max_bytes} are allowed")
    await asyncio.to_thread(check_room, path, info.size_bytes)
    download = await objects.get_file(key, path, max_bytes=max_bytes, progress=progress)
    return Source(path, download.info.size_bytes, download.sha256)


def check_room(path: Path, size_bytes: int) -> None:
    """Raise DiskFull unless the disk has room for `size_bytes` plus SPARE_BYTES."""
    free = free_bytes(path.parent)
    if free < size_bytes + SPARE_BYTES:
        raise DiskFull(f"the source needs {size_bytes} bytes and the disk has {free}; make room for it")


def _counting(count: Callable[[int], None], telling: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Return a callback that reports progress and counts new bytes; bytes before its first call do not count."""
    before: int | None = None

    def tell(received: int, total: int) -> None:
        nonlocal before
        count(max(0, received - before) if before is not None else 0)
        before = received
        telling(received, total)

    return tell


def _telling(ctx: Context) -> Callable[[int, int], None]:
    last = 0.0

    def tell(received: int, total: int) -> None:
        nonlocal last
        percent = SHARE * received / total if total else 0.0
        if percent - last >= 1.0 and not ctx.cancelled:
            last = percent
            _ = ctx.progress(percent)

    return tell
