"""The folders of keys and their owners. A key names its tenant's folder, its job's id or its video's id.

uploads/{tenant}/…            files uploaded by a tenant
outputs/{tenant}/…            files made by the tenant's jobs
jobs/{job}/…                  files of a job's attempts and of its steps
videos/…/{video}/…, thumbs/{video}/…, frames/{video}/…   files of a video
shared/…                      files that operators provide for the tasks of every tenant to read
incoming/…                    files written through signed URLs before acceptance: no task reads or writes these
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from callsheet.engine import stored
from callsheet.kernel.new_jobs import IS_UUID

UPLOADS, OUTPUTS, JOBS, SHARED, INCOMING = "uploads", "outputs", "jobs", "shared", "incoming"
OF_VIDEOS = (("videos", "original"), ("videos", "proxy"), ("videos", "clips"), ("thumbs",), ("frames",))
REFERENCE = "object:"  # before a key that a payload names
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}").fullmatch


class Named(NamedTuple):
    """The owner that a key names: `kind` is `tenant`, `job`, `video`, `shared` or ''; `id` is a folder name or id."""

    kind: str
    id: str


def folder_of(requester_id: str) -> str:
    """Return a tenant's unique folder name: the requester id or its hash; `~` for operators (empty requester id)."""
    if PLAIN(requester_id):
        return requester_id
    return f"~{hashlib.sha256(requester_id.encode()).hexdigest()[:32]}" if requester_id else "~"


def uploads_of(requester_id: str) -> str:
    """Return the folder of a tenant's uploads."""
    return f"{UPLOADS}/{folder_of(requester_id)}"


def outputs_of(requester_id: str) -> str:
    """Return the folder of the outputs of a tenant's jobs."""
    return f"{OUTPUTS}/{folder_of(requester_id)}"


def steps_of(job_id: str) -> str:
    """Return the folder of a job's step files, which its later attempts and a resuming job read."""
    return f"{JOBS}/{job_id}/steps"


def key_of(job_id: str, claim_version: int, name: str) -> str:
    """Return the key of an attempt's file; each attempt writes to a separate folder."""
    return f"{JOBS}/{job_id}/{claim_version}/{name}"


def named_by(key: str) -> Named:
    """Return the owner that a valid key, or a folder of keys, names."""
    names = key.split("/")
    if names[0] in (UPLOADS, OUTPUTS) and len(names) > 1:
        return Named("tenant", names[1])
    if names[0] == JOBS and len(names) > 1 and IS_UUID(names[1]):
        return Named("job", names[1])
    if names[0] == SHARED:
        return Named("shared", "")
    for folders in OF_VIDEOS:
        place = len(folders)
        if tuple(names[:place]) == folders and len(names) > place and IS_UUID(names[place]):
            return Named("video", names[place])
    return Named("", "")


def part_of(key: str) -> str:
    """Return the category of stored bytes that a key counts as: uploads, videos, artifacts or outputs."""
    if key.startswith(f"{UPLOADS}/"):
        return stored.UPLOADS
    if key.startswith("videos/original/"):
        return stored.VIDEOS
    return stored.ARTIFACTS if key.startswith(f"{JOBS}/") else stored.OUTPUTS


def parts_of(sizes: Mapping[str, int]) -> dict[str, int]:
    """Sum the sizes of keys by category of stored bytes."""
    sums: dict[str, int] = {}
    for key, size in sizes.items():
        sums[part_of(key)] = sums.get(part_of(key), 0) + size
    return sums


def is_below(key: str, folder: str) -> bool:
    """Return whether a key is below a folder, or equals the folder."""
    return key == folder or key.startswith(f"{folder}/")
