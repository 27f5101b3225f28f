"""Artifacts: files that a worker uploads straight to the object store, under keys of its attempt.

Clients see them only after their attempt succeeded: the completion adopts the files in its own transaction. Inputs are
objects that a payload names as `object:KEY`; a claim's answer signs URLs for those that the job's tenant owns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from callsheet.http import object_access
from callsheet.http.attempt_files import artifacts_of
from callsheet.http.object_access import objects_owned_by
from callsheet.http.problems import Problem
from callsheet.kernel.job import ADOPTED_FILES, Status
from callsheet.kernel.wire import decode, encode
from callsheet.objects import ObjectChanged, ObjectExists, ObjectInfo, ObjectNotFound, ObjectNotOwned
from callsheet.objects.folders import INCOMING, REFERENCE, key_of, named_by
from callsheet.objects.signing import OwnObjects

from .leases import Lease
from .models import Artifact

if TYPE_CHECKING:
    from callsheet.http.state import ServerState
    from callsheet.kernel.job import Job, Json
    from callsheet.objects import Objects, Signed

SIGNED_S = 3600
MOST_INPUTS = 100


def objects_of(state: ServerState) -> Objects:
    """Return the site's object store; raises Problem `not_found` if the server has none."""
    if state.objects is None:
        raise Problem("not_found", "this server keeps no objects; set CALLSHEET_OBJECTS_URL")
    return state.objects


async def adopt(state: ServerState, lease: Lease, artifacts: Sequence[Artifact]) -> tuple[str, Json]:
    """Return the checkpoint that adds uploads to the job's result; raises Problem for a missing or wrong-sized upload.

    All uploads are checked before the first is copied; later uploads cannot change the adopted files.
    """
    objects = objects_of(state)
    waiting = [await _waiting(objects, lease, artifact) for artifact in artifacts]
    files = []
    for artifact, source in zip(artifacts, waiting, strict=True):
        info = await _move_into_place(objects, source, key_of(lease.job.job_id, lease.claim_version, artifact.name))
        _check_size(artifact, info)
        file = {"name": artifact.name, "key": info.key, "bytes": info.size_bytes, "sha256": artifact.sha256}
        files.append({**file, "content_type": info.content_type, "etag": info.etag})
    await objects.delete(*(source for source in waiting if source.startswith(f"{INCOMING}/")))
    return ADOPTED_FILES, encode(files)


async def _waiting(objects: Objects, lease: Lease, artifact: Artifact) -> str:
    """Return the key of an attempt's upload: the artifact's own key after a multipart upload, else the incoming key."""
    job_id, version = lease.job.job_id, lease.claim_version
    binding = object_access.of_attempt(job_id, version, "")
    for key in (key_of(job_id, version, artifact.name), object_access.key_of(binding, artifact.name)):
        with contextlib.suppress(ObjectNotFound):
            _check_size(artifact, await objects.head(key))
            return key
    raise _missing(artifact)


async def _move_into_place(objects: Objects, source: str, key: str) -> ObjectInfo:
    """Copy the upload to the artifact's own key, which is written only once, and return that object's info."""
    try:
        return await objects.head(key) if source == key else await objects.copy(source, key, only_if_absent=True)
    except ObjectExists:
        return await objects.head(key)


def _missing(artifact: Artifact) -> Problem:
    return Problem("artifact_missing", f"{artifact.name} was not uploaded for this attempt", ok=False)


def _check_size(artifact: Artifact, info: ObjectInfo) -> None:
    if artifact.bytes not in (None, info.size_bytes):
        message = f"{artifact.name} has {info.size_bytes} bytes, not {artifact.bytes}; upload it again"
        raise Problem("artifact_missing", message, ok=False)


async def check_unchanged(objects: Objects, file: dict[str, Any]) -> None:
    """Raise ObjectChanged if an adopted file differs from the file that the job adopted.

    An S3 etag identifies the bytes. In our own folder the etag identifies the file, which a restored backup replaces.
    """
    info = await objects.head(file["key"])
    own = isinstance(objects, OwnObjects)
    if info.size_bytes != file["bytes"] or (not own and file.get("etag") not in (None, info.etag)):
        raise ObjectChanged(f"{file['name']} was changed after the job had ended; it is not given out")


async def inputs(state: ServerState, job: Job) -> dict[str, str]:
    """Return signed URLs of the payload's objects that the job's tenant may read; raises InvalidKey."""
    if state.objects is None or REFERENCE not in job.payload:
        return {}
    keys = dict.fromkeys(text for text in _texts(decode(job.payload)) if text.startswith(REFERENCE))
    own = objects_owned_by(state, job.requester_id)
    urls: dict[str, str] = {}
    for reference in list(keys)[:MOST_INPUTS]:
        key = reference.removeprefix(REFERENCE)
        with contextlib.suppress(ObjectNotOwned):  # another tenant's object is treated as missing
            if await _is_finished(state, key):
                urls[reference] = (await own.sign_get(key, SIGNED_S)).url
    return urls


async def _is_finished(state: ServerState, key: str) -> bool:
    """Return True if the object under this key is final. A job's file is final once a succeeded job has adopted it."""
    owner = named_by(key)
    if owner.kind != "job":
        return True
    (job,) = await state.engine.store.get([owner.id])
    if job is None or job.status is not Status.SUCCEEDED:
        return False
    return any(file["key"] == key for file in await artifacts_of(state.engine.store, owner.id))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for part in value.values():
                yield from _texts(part)
        case list():
            for part in value:
                yield from _texts(part)


def signed_request(request: Signed) -> dict[str, Any]:
    """Return a signed URL as the JSON of the answer."""
    return {
        "method": request.method,
        "url": request.url,
        "headers": dict(request.headers),
        "expires_at": request.expires_at_ms,
    }
