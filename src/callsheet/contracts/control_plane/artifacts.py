"""Artifacts: files that a worker uploads straight to the object store, under keys of its attempt.

They are seen only when the attempt that made them has succeeded: the completion adopts them, in its own transaction.
Inputs are the objects that a payload names as `object:KEY`; the claim signs their URLs, if they are the tenant's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from callsheet.engine.quotas import ARTIFACTS
from callsheet.http.problems import Problem
from callsheet.http.uploads import folder_of
from callsheet.kernel.job import Status
from callsheet.kernel.wire import decode, encode
from callsheet.objects import ObjectNotFound

from .leases import Lease
from .logs import RESERVED
from .models import Artifact

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.http.site import Site
    from callsheet.kernel.job import Job, Json
    from callsheet.objects import Objects, Signed

ADOPTED = f"{RESERVED}artifacts"
REFERENCE = "object:"
SIGNED_S = 3600
MOST_INPUTS = 100


def key_of(job_id: str, claim_version: int, name: str) -> str:
    """Where an attempt's file lies; another attempt's lies elsewhere."""
    return f"jobs/{job_id}/{claim_version}/{name}"


def objects_of(site: Site) -> Objects:
    """The object store; raises Problem where there is none."""
    if site.objects is None:
        raise Problem("not_found", "this server keeps no objects; set CALLSHEET_OBJECTS_URL")
    return site.objects


async def adopt(site: Site, lease: Lease, artifacts: Sequence[Artifact]) -> tuple[str, Json]:
    """The checkpoint that makes uploads a part of the result; raises Problem for one that is not there as told."""
    objects, kept, total = objects_of(site), [], 0
    for artifact in artifacts:
        key = key_of(lease.job.job_id, lease.claim_version, artifact.name)
        try:
            info = await objects.head(key)
        except ObjectNotFound:
            raise Problem("artifact_missing", f"{artifact.name} was not uploaded for this attempt", ok=False) from None
        if artifact.bytes not in (None, info.size_bytes):
            told = f"{artifact.name} has {info.size_bytes} bytes, not {artifact.bytes}; upload it again"
            raise Problem("artifact_missing", told, ok=False)
        described = {"name": artifact.name, "key": key, "bytes": info.size_bytes, "content_type": info.content_type}
        total += info.size_bytes
        kept.append({**described, "sha256": artifact.sha256})
    await site.quotas.add(lease.job.requester_id, total, ARTIFACTS)
    return ADOPTED, encode(kept)


async def adopted(engine: Engine, job_id: str) -> list[dict[str, Any]]:
    """The files of a job that has succeeded."""
    known = await engine.store.checkpoints(job_id)
    found: list[dict[str, Any]] = json.loads(known.get(ADOPTED, "[]"))
    return found


async def inputs(site: Site, job: Job) -> dict[str, str]:
    """A signed URL for each object that the payload names, and that the job's tenant may read."""
    if site.objects is None or REFERENCE not in job.payload:
        return {}
    named = dict.fromkeys(text for text in _texts(decode(job.payload)) if text.startswith(REFERENCE))
    signed: dict[str, str] = {}
    for reference in list(named)[:MOST_INPUTS]:
        key = reference.removeprefix(REFERENCE)
        if await _may_read(site, job, key):
            signed[reference] = (await site.objects.sign_get(key, SIGNED_S)).url
    return signed


async def _may_read(site: Site, job: Job, key: str) -> bool:
    """A tenant's own uploads, and what its own jobs have made."""
    if key.startswith(f"uploads/{folder_of(job.requester_id)}/"):
        return True
    head, _, rest = key.partition("/")
    (other,) = await site.engine.store.get([rest.partition("/")[0]]) if head == "jobs" else (None,)
    if other is None or other.requester_id != job.requester_id or other.status is not Status.SUCCEEDED:
        return False
    return any(file["key"] == key for file in await adopted(site.engine, other.job_id))


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


def shown(signed: Signed) -> dict[str, Any]:
    """A signed URL for the wire."""
    return {
        "method": signed.method,
        "url": signed.url,
        "headers": dict(signed.headers),
        "expires_at": signed.expires_at_ms,
    }
