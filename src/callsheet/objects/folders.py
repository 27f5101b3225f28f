"""Which folders of keys belong to whom. A tenant's folder stands in the key; a job's and a video's has its id.

uploads/{tenant}/…            what a tenant sent
outputs/{tenant}/…            what its jobs made
jobs/{job}/…                  files of a job's attempts and of its steps
videos/…/{video}/…, thumbs/{video}/…, frames/{video}/…   files of a video
shared/…                      what operators put there for the tasks of every tenant to read
incoming/…                    what signed URLs write before it is taken: no task reads or writes it
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from callsheet.engine import stored
from callsheet.kernel.intake import IS_UUID

UPLOADS, OUTPUTS, JOBS, SHARED, INCOMING = "uploads", "outputs", "jobs", "shared", "incoming"
OF_VIDEOS = (("videos", "original"), ("videos", "proxy"), ("videos", "clips"), ("thumbs",), ("frames",))
REFERENCE = "object:"  # before a key that a payload names
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}").fullmatch


class Named(NamedTuple):
    """Whose a key is by its text alone: a `tenant`'s folder, a `job`'s or a `video`'s id, what is `shared`, else ''."""

    kind: str
    id: str


def folder_of(requester_id: str) -> str:
    """A tenant's name in a key; no two share one. That of operators, who have no name, is `~`."""
    if PLAIN(requester_id):
        return requester_id
    return f"~{hashlib.sha256(requester_id.encode()).hexdigest()[:32]}" if requester_id else "~"


def uploads_of(requester_id: str) -> str:
    """The folder of what a tenant sent."""
    return f"{UPLOADS}/{folder_of(requester_id)}"


def outputs_of(requester_id: str) -> str:
    """The folder of what a tenant's jobs made."""
    return f"{OUTPUTS}/{folder_of(requester_id)}"


def steps_of(job_id: str) -> str:
    """The folder of files that a job keeps between its attempts, and for the job that resumes it."""
    return f"{JOBS}/{job_id}/steps"


def key_of(job_id: str, claim_version: int, name: str) -> str:
    """Return the key of an attempt's file; that of another attempt is another."""
    return f"{JOBS}/{job_id}/{claim_version}/{name}"


def named_by(key: str) -> Named:
    """Whose a checked key, or a folder of keys, is."""
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
    """As which part of a tenant's stored bytes a key is counted."""
    if key.startswith(f"{UPLOADS}/"):
        return stored.UPLOADS
    if key.startswith("videos/original/"):
        return stored.VIDEOS
    return stored.ARTIFACTS if key.startswith(f"{JOBS}/") else stored.OUTPUTS


def parts_of(sizes: Mapping[str, int]) -> dict[str, int]:
    """The bytes of keys, added up by part."""
    found: dict[str, int] = {}
    for key, size in sizes.items():
        found[part_of(key)] = found.get(part_of(key), 0) + size
    return found


def is_below(key: str, folder: str) -> bool:
    """Whether a key is in a folder, or is the folder itself."""
    return key == folder or key.startswith(f"{folder}/")
