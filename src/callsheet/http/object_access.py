"""Objects written through signed URLs: each lies below `incoming/` until a completed upload or job copies it, once.

A URL that is used late, or by a client that was shut out, therefore changes no object that anybody reads. Our own
server also refuses such a URL: its upload or attempt must be open before and after the body.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, NamedTuple

from callsheet.catalog.records import SERVICE
from callsheet.kernel.job import Status
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.objects import LinkRefused
from callsheet.objects.folders import INCOMING, JOBS, UPLOADS
from callsheet.objects.owned import Holder, OwnedObjects, Source

from .problems import Problem

if TYPE_CHECKING:
    from callsheet.objects import Objects
    from callsheet.store.protocol import Store

    from .worker_registry import WorkerRegistry

UPLOAD = "upload"  # the kind of the documents of `/v1/uploads`
BOUND_FOLDERS = frozenset({UPLOADS, JOBS, INCOMING})  # folders in which a URL writes only for an upload or an attempt
AT_ONCE = 1_000


class Binding(NamedTuple):
    """The upload or attempt that a signed URL is bound to. An attempt is named by job, claim version and worker."""

    kind: str
    id: str
    claim_version: int = 0
    worker_id: str = ""

    def __str__(self) -> str:
        if self.kind == "upload":
            return f"upload:{self.id}"
        return f"attempt:{self.id}:{self.claim_version}:{self.worker_id}"


def of_upload(upload_id: str) -> Binding:
    """Return the binding of a tenant's upload."""
    return Binding("upload", upload_id)


def of_attempt(job_id: str, claim_version: int, worker_id: str) -> Binding:
    """Return the binding of an attempt's file."""
    return Binding("attempt", job_id, claim_version, worker_id)


def key_of(binding: Binding, name: str) -> str:
    """Return the key below `incoming/` under which a file waits to be adopted."""
    if binding.kind == "upload":
        return f"{INCOMING}/{UPLOADS}/{binding.id}/{name}"
    return f"{INCOMING}/{JOBS}/{binding.id}/{binding.claim_version}/{name}"


def attempt_of(binding: str) -> tuple[str, int] | None:
    """Return the job id and claim version that a URL is bound to, or None if it is not bound to an attempt."""
    kind, _, rest = binding.partition(":")
    job_id, claim_version, *_ = [*rest.split(":"), "", ""]
    return (job_id, int(claim_version)) if kind == "attempt" and IS_UUID(job_id) and claim_version.isdecimal() else None


async def check(store: Store, workers: WorkerRegistry, key: str, binding: str) -> None:
    """Raise LinkRefused unless the upload or attempt that a URL is bound to is open."""
    if not binding and key.partition("/")[0] not in BOUND_FOLDERS:
        return
    kind, _, rest = binding.partition(":")
    if kind == "upload" and await _is_open_upload(store, rest):
        return
    if kind == "attempt" and await _is_running(store, workers, rest):
        return
    raise LinkRefused("nothing is written here any more: it was completed, dropped or lost; ask for a new URL")


async def _is_open_upload(store: Store, upload_id: str) -> bool:
    for document in await store.documents(UPLOAD, upload_id):
        upload = json.loads(document.body)
        return bool(upload["status"] == "open" and upload["expires_at"] > await store.now())
    return False


async def _is_running(store: Store, workers: WorkerRegistry, text: str) -> bool:
    job_id, _, rest = text.partition(":")
    claim_version, _, worker_id = rest.partition(":")
    if not await _is_claimed(store, job_id, claim_version):
        return False
    return not await workers.is_revoked(worker_id)


async def _is_claimed(store: Store, job_id: str, claim_version: str) -> bool:
    (job,) = await store.get([job_id]) if IS_UUID(job_id) else (None,)
    return job is not None and job.status is Status.RUNNING and str(job.claim_version) == claim_version


async def sweep(store: Store, objects: Objects) -> int:
    """Delete incoming objects whose upload or attempt is over, and return the number of objects."""
    open_ones: dict[str, bool] = {}
    stale_keys: list[str] = []
    async for info in objects.list(INCOMING):
        kind, _, rest = info.key.removeprefix(f"{INCOMING}/").partition("/")
        names = rest.split("/")
        place = "/".join([kind, *names[: 1 if kind == UPLOADS else 2]])
        if place not in open_ones:
            ids = names[:2] if kind == JOBS and len(names) > 2 else []  # noqa: PLR2004 - id, claim and name
            open_ones[place] = await _is_claimed(store, *ids) if ids else await _is_open_upload(store, names[0])
        if not open_ones[place]:
            stale_keys.append(info.key)
    for start in range(0, len(stale_keys), AT_ONCE):
        await objects.delete(*stale_keys[start : start + AT_ONCE])
    return len(stale_keys)


if TYPE_CHECKING:
    from callsheet.objects import Objects

    from .state import ServerState


class OwnerLookup:
    """Finds the owners of jobs and videos in the server's store and catalogue."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def of_job(self, job_id: str) -> str | None:
        """Return the requester of a job, or None for an unknown job."""
        (job,) = await self._state.engine.store.get([job_id])
        return None if job is None else job.requester_id

    async def of_video(self, video_id: str) -> str | None:
        """Return the owner of a video, or None for an unknown video or a server without catalogue."""
        video = await self._state.catalog.video(video_id, SERVICE) if self._state.catalog is not None else None
        return None if video is None else video.owner_id


def objects_owned_by(state: ServerState, requester_id: str) -> OwnedObjects:
    """Return a tenant's objects.

    Key ownership can be checked even if the server has no object storage; reading or writing then raises Problem.
    """

    async def opens() -> Objects:
        return objects_of(state)

    return OwnedObjects(Source(opens, OwnerLookup(state), asyncio.get_running_loop()), Holder(requester_id))


def objects_of(state: ServerState) -> Objects:
    """Return the server's objects; raises Problem `not_found` if the server has no object storage."""
    if state.objects is None:
        raise Problem("not_found", "this server keeps no objects; start it with --objects-url")
    return state.objects
