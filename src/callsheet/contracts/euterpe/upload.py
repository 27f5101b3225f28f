"""The stage `uploading` stores all outputs under temporary keys of the attempt, then copies them to their final keys.

No client sees an incomplete set, and an attempt that lost its claim cannot overwrite its successor's outputs: between
the two steps, a write to the store proves the claim.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.media.hls import INDEX, MIME
from callsheet.objects.errors import ObjectsError, ObjectsUnavailable

from .access import s3_objects
from .locations import OWN, Place
from .pace import minimum_pace, time_for

if TYPE_CHECKING:
    from callsheet.media.output import Output
    from callsheet.objects import Objects
    from callsheet.worker.context import Context

    from .access import Access
    from .models import Storage
    from .tasks import Parts

log = logging.getLogger("callsheet.transcode")
ATTEMPTS = ".attempts"
SENT_PERCENT = 97.0  # percent of the job


class File(NamedTuple):
    """One file of an output, with local path, name below the prefix, and MIME type."""

    path: Path
    name: str
    mime: str


async def upload(  # noqa: PLR0913, PLR0917 - a stage of the task, split off for its length
    ctx: Context, parts: Parts, access: Access, place: Place, storage: Storage, outputs: Sequence[Output]
) -> list[dict[str, Any]]:
    """Upload the outputs and return them as the job's result lists them."""
    files = [file for output in outputs for file in files_of(output)]
    if place.kind == OWN:
        await _send(ctx, ctx.objects, place, files)
    else:
        time_s = time_for(sum(file.path.stat().st_size for file in files), len(files))
        slow = ObjectsUnavailable("the storage of the outputs takes them too slowly")
        async with (
            s3_objects(place, storage, await access.keys_for("output"), parts.rules) as objects,
            minimum_pace(slow, time_s),
        ):
            await _send(ctx, objects, place, files)
    return [_key_of(output, place) for output in outputs]


async def _send(ctx: Context, objects: Objects, place: Place, files: Sequence[File]) -> None:
    own = [staging_key(place, ctx, ctx.job.claim_version, file) for file in files]
    try:
        for number, (key, file) in enumerate(zip(own, files, strict=True), 1):
            await objects.put_file(key, file.path, content_type=file.mime)
            _ = ctx.progress(90 + (SENT_PERCENT - 90) * number / len(files))
        await ctx.progress(SENT_PERCENT)  # committed: the claim is still ours
        for key, file in zip(own, files, strict=True):
            await objects.copy(key, place.below(file.name).path)
    finally:
        earlier = [
            staging_key(place, ctx, version, file) for version in range(1, ctx.job.claim_version) for file in files
        ]
        with contextlib.suppress(ObjectsError):
            await objects.delete(*own, *earlier)


def staging_key(place: Place, ctx: Context, claim_version: int, file: File) -> str:
    """Return the temporary key of a file in this attempt."""
    return place.below(f"{ATTEMPTS}/{ctx.job_id}/{claim_version}/{file.name}").path


def files_of(output: Output) -> Iterator[File]:
    """Yield an output's files in publishing order: the HLS index comes last."""
    if output.path.is_file():
        yield File(output.path, output.key, output.mime)
        return
    names = sorted(path.name for path in output.path.iterdir() if path.suffix in MIME)
    for name in sorted(names, key=lambda name: (name == INDEX, name.endswith(".m3u8"), name)):
        path = output.path / name
        yield File(path, f"{output.key}/{name}", MIME[path.suffix])


def _key_of(output: Output, place: Place) -> dict[str, Any]:
    name = output.key if output.path.is_file() else f"{output.key}/{INDEX}"
    return {
        "key": output.key,
        "location": str(place.below(name)),
        "mime": output.mime,
        "codec": output.codec,
        "bytes": output.size_bytes,
        "duration_s": round(output.duration_s, 3),
        "sha256": output.sha256,
        "width": output.width,
        "height": output.height,
    }
