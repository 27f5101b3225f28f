"""`compose` turns a script, or a brief for a model, into a narrated video. `media.compose` does the work.

This module adds the contract's folders (`temp/{jobId}`, removed before the job's end is written), stores stage files as
objects for resumed jobs, and adopts the video's files as the job's artifacts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from callsheet.kernel import commands
from callsheet.kernel.contracts import AURA
from callsheet.kernel.errors import Outage
from callsheet.kernel.job import ADOPTED_FILES
from callsheet.kernel.retry import Backoff
from callsheet.kernel.wire import encode
from callsheet.llm.chat import Question, ask
from callsheet.llm.settings import chat_endpoint
from callsheet.media.compose.artifacts import IS_PLAIN, FolderShelf, Shelf
from callsheet.media.compose.draw import MAX_BYTES
from callsheet.media.compose.errors import InvalidStep, PictureRefused
from callsheet.media.compose.stages import Composed, Parts, Request, compose
from callsheet.media.errors import MediaError, MediaStopped
from callsheet.objects import InvalidKey, ObjectNotFound, ObjectNotOwned, ObjectsError, ObjectTooLarge, OwnedObjects
from callsheet.objects.folders import REFERENCE, key_of, steps_of
from callsheet.objects.owned import with_folders
from callsheet.worker.context import Context
from callsheet.worker.outages import words_of
from callsheet.worker.pipeline import TakesTasks
from callsheet.worker.signals import Fatal, Retry

from ..attempts import llm_errors_as_outcomes  # noqa: TID252 - what contracts share
from .folders import SWEEP_S, Folders, Hold, log
from .models import COMPOSE

RETRY = Backoff(base_ms=2_000, cap_ms=60_000)
ATTEMPTS = 3
TYPES = {
    "video.mp4": "video/mp4",
    "poster.jpg": "image/jpeg",
    "captions.vtt": "text/vtt",
    "manifest.json": "application/json",
}
Result = dict[str, Any]


def add_tasks(app: TakesTasks, folders: Folders | None = None) -> None:
    """Declare `compose` on an app."""
    sweeps = _Sweeps()

    async def composing(
        ctx: Context,
        script: Annotated[str, Field(max_length=200_000)] = "",
        *,
        brief: Annotated[str, Field(max_length=20_000)] = "",
    ) -> Result:
        objects = ctx.objects if app.objects_url else None
        await sweeps.now_and_then(folders or Folders())
        return await _compose(ctx, Request(script, brief), objects, folders or Folders())

    app.task(name=COMPOSE, timeout="2h", retry=RETRY, max_attempts=ATTEMPTS, contract=AURA.name)(composing)


class _Sweeps:
    """Sweeps abandoned folders once a day in the worker, as no server may run on the worker's machine."""

    def __init__(self) -> None:
        self._next_at = float("-inf")

    async def now_and_then(self, folders: Folders) -> None:
        """Sweep if a day has passed. Errors are logged and fail no job."""
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + SWEEP_S
        try:
            await asyncio.to_thread(folders.remove_old, time.time())
        except OSError as error:
            log.warning("a sweep of left folders failed: %s", error)


async def _compose(ctx: Context, request: Request, objects: OwnedObjects | None, folders: Folders) -> Result:
    hold = Hold(folders, ctx.job.claim)
    try:
        own, proxy = await asyncio.to_thread(hold.make)
        live = _Live(ctx, own)
        shelf: Shelf = FolderShelf(proxy)
        if objects is not None:
            shelf = ObjectShelf(objects, (await ctx.steps()).jobs)
        parts = Parts(shelf, pictures_of(objects), _writer())
        with llm_errors_as_outcomes():
            composed = await compose(live, request, parts)
        return await _upload(ctx, composed, objects)
    except MediaStopped:
        raise asyncio.CancelledError from None  # our own stop flag decides, whatever the program reported
    except Outage:
        raise
    except MediaError as error:
        if error.retry_after(ctx.attempt):
            raise Retry(f"{error.code}: {words_of(error)}") from error
        raise Fatal(words_of(error), code=error.code) from error
    finally:  # before the job's end is written
        await asyncio.shield(asyncio.to_thread(hold.remove))


async def _upload(ctx: Context, composed: Composed, objects: OwnedObjects | None) -> Result:
    """Store the video's files as artifacts; returns the job's result."""
    video, files = composed.video, []
    result = {
        "duration_s": round(video.duration_s, 3),
        "speech": video.is_speech,
        "warnings": list(video.warnings),
        "scenes": list(video.scenes),
        "ran": list(composed.ran),
    }
    if objects is None:
        raise Fatal("a video needs a place to stay: set CALLSHEET_OBJECTS_URL", code="no_objects")
    paths = {"video.mp4": video.video, "poster.jpg": video.poster, "captions.vtt": video.captions}
    for name, path in {**paths, "manifest.json": video.manifest}.items():
        key = key_of(ctx.job_id, ctx.job.claim_version, name)
        info = await objects.put_file(key, path, content_type=TYPES[name])
        about = {"name": name, "key": key, "bytes": info.info.size_bytes, "content_type": TYPES[name]}
        files.append({**about, "sha256": info.sha256, "etag": info.info.etag})
    await ctx.write(lambda job: commands.checkpoint(job, ADOPTED_FILES, encode(files)))
    return {**result, "artifacts": [{name: file[name] for name in ("name", "bytes", "content_type")} for file in files]}


class _Live:
    """A task context with the contract's folder as its workspace."""

    def __init__(self, ctx: Context, workspace: Path) -> None:
        self._ctx, self.workspace, self.step = ctx, workspace, ctx.step
        self.children, self.stage, self.progress, self.emit = ctx.children, ctx.stage, ctx.progress, ctx.emit

    @property
    def cancelled(self) -> bool:
        return self._ctx.cancelled


class ObjectShelf:
    """Stores step files for later attempts and resuming jobs. `jobs` lists the job itself, then the jobs it resumes."""

    def __init__(self, objects: OwnedObjects, jobs: Sequence[str]) -> None:
        self._folders = [steps_of(job_id) for job_id in jobs]
        self._objects = with_folders(objects, readable=self._folders)

    async def keep(self, name: str, path: Path, /) -> str:
        """Store a file in the job's own steps folder; returns the object key."""
        key = f"{self._folders[0]}/{name}"
        await self._objects.put_file(key, path)
        return key

    async def fetch(self, key: str, path: Path, /) -> None:
        """Download a step file of one of the jobs; raises InvalidStep for any other key."""
        folder, _, name = key.rpartition("/")
        if folder not in self._folders or not IS_PLAIN(name):
            raise InvalidStep(f"{key[:200]!r} is no file of a step of this job, nor of one that it resumes")
        try:
            await self._objects.get_file(key, path)
        except ObjectNotFound as error:
            raise FileNotFoundError(key) from error


def pictures_of(objects: OwnedObjects | None) -> Callable[[str, Path], Awaitable[None]]:
    """Return a function that downloads `object:KEY` pictures, limited to objects that the job's requester may read."""

    async def fetch(reference: str, path: Path, /) -> None:
        key = reference.removeprefix(REFERENCE)
        if objects is None or key == reference:
            raise PictureRefused("cannot be had: upload it, and name it as object:KEY")
        try:
            await objects.get_file(key, path, max_bytes=MAX_BYTES)
        except ObjectNotOwned:
            raise PictureRefused("cannot be had: upload it, and name it as object:KEY") from None
        except (ObjectNotFound, ObjectTooLarge, InvalidKey) as error:
            raise PictureRefused(f"cannot be had: {error}") from error
        except ObjectsError as error:
            raise Retry(f"{error.code}: {error}") from error

    return fetch


def _writer() -> Callable[[str], Awaitable[str]]:
    async def write(prompt: str) -> str:
        answer = await ask(chat_endpoint(), Question([{"role": "user", "content": prompt}]), lambda _: None)
        return answer.text

    return write
