"""Files that attempts of remote workers upload: one record per attempt, which reserves bytes in its tenant's quota.

A file reserves bytes when its upload begins: its announced size, or else the most that one request can send. Closing
an ended attempt's record counts files that the job adopted at their real size, deletes all other files and releases
their bytes. The count is written last, so a crash leaves the count too high, never too low; the recount corrects that.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.engine.stored import ARTIFACTS, RESERVATIONS, mark_job
from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.job import ADOPTED_FILES, Status
from callsheet.objects import ObjectsError, Upload
from callsheet.objects.folders import INCOMING, JOBS
from callsheet.store.protocol import Document

from .problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from callsheet.engine.quotas import Quotas
    from callsheet.kernel.job import Job
    from callsheet.objects import Objects
    from callsheet.store.protocol import Store

KIND = "attempt_files"
UNSAID_BYTES = 5 * 1024**3  # the most that one request without Content-Length may send; reserved for it
MOST_FILES = 1_000  # per attempt: a job adopts no more
RACES = 100
AT_ONCE = 1_000


class File(NamedTuple):
    """The bytes reserved for one file.

    `whole` is reserved for requests that send the complete file, `parts` for its open multipart upload, `done` for the
    file already assembled from parts. `said` is the largest size that a URL was signed for: a request with that URL may
    still be running, whatever other requests have sent.
    """

    whole: int = 0
    parts: int = 0
    assembled_bytes: int = 0
    upload_id: str = ""
    part_bytes: int = 0
    announced_bytes: int = 0

    def with_whole(self, most: int, *, is_said: bool) -> File:
        """Return the file with room for a request of up to `most` bytes. `is_said`: its length was announced."""
        announced_bytes = max(self.announced_bytes, most) if is_said else self.announced_bytes
        return self._replace(whole=max(self.whole, most), announced_bytes=announced_bytes)

    @property
    def room(self) -> int:
        """The total number of bytes reserved for the file."""
        return self.whole + self.parts + self.assembled_bytes


class AttemptFiles(NamedTuple):
    """The files of one attempt, by name. `version` is 0 until the store holds the record."""

    requester_id: str
    job_id: str
    claim_version: int
    files: dict[str, File]
    version: int = 0

    @property
    def room(self) -> int:
        """The total number of bytes reserved for the attempt."""
        return sum(file.room for file in self.files.values())

    @property
    def folder(self) -> str:
        """The folder that holds the attempt's files once they are assembled or adopted."""
        return f"{JOBS}/{self.job_id}/{self.claim_version}"

    def upload_of(self, name: str) -> Upload | None:
        """Return the open multipart upload of a file, or None if it has none."""
        file = self.files.get(name, File())
        return Upload(f"{self.folder}/{name}", file.upload_id, file.part_bytes) if file.upload_id else None

    def document(self) -> Document:
        """Return the record as a document for the store."""
        body = {"requester_id": self.requester_id, "files": {name: [*file] for name, file in self.files.items()}}
        return Document(KIND, _id_of(self.job_id, self.claim_version), json.dumps(body), self.version)


def of(job: Job, claim_version: int) -> AttemptFiles:
    """Return an empty record for an attempt that has uploaded no files."""
    return AttemptFiles(job.requester_id, job.job_id, claim_version, {})


async def read(store: Store, attempt: AttemptFiles) -> AttemptFiles:
    """Return the stored record of an attempt, or `attempt` unchanged if the store has none."""
    for document in await store.documents(KIND, _id_of(attempt.job_id, attempt.claim_version)):
        return _record(document)
    return attempt


async def change(
    quotas: Quotas, store: Store, attempt: AttemptFiles, name: str, how: Callable[[File], File]
) -> AttemptFiles:
    """Change one file of an attempt and its reserved bytes. Returns the record before the change.

    Raises QuotaExceeded, and changes nothing, if the tenant's quota has too few bytes left. Raises Problem `refused`
    for more than MOST_FILES files.
    """
    for _ in range(RACES):
        before = await read(store, attempt)
        old = before.files.get(name)
        if old is None and len(before.files) >= MOST_FILES:
            raise Problem("refused", f"an attempt has {MOST_FILES} files at most; pack some of them together")
        new = how(old or File())
        if new == old:
            return before
        more = new.room - (old.room if old is not None else 0)
        await quotas.charge(attempt.requester_id, more, RESERVATIONS)
        try:
            await store.put_document(before._replace(files={**before.files, name: new}).document())
        except BaseException as error:
            await quotas.add(attempt.requester_id, -more, RESERVATIONS)
            if not isinstance(error, DocumentConflict):
                raise
        else:
            return before
    raise DocumentConflict("many files of this attempt begin at the same moment; try again")


async def close(quotas: Quotas, store: Store, objects: Objects, record: AttemptFiles) -> bool:
    """Close the record of an ended attempt. Returns False, and changes nothing, while the attempt still runs.

    If two callers close the same record, only the caller whose delete removes the record changes the quota's count.
    """
    (job,) = await store.get([record.job_id])
    if job is not None and job.status is Status.RUNNING and job.claim_version == record.claim_version:
        return False
    is_winner = job is not None and job.status is Status.SUCCEEDED and job.claim_version == record.claim_version
    adopted_sizes = await adopted_files(store, record.job_id) if is_winner else {}
    await _remove(objects, record, frozenset(adopted_sizes))
    if await store.delete_document(KIND, _id_of(record.job_id, record.claim_version)):
        kept_bytes = sum(size for key, size in adopted_sizes.items() if key.startswith(f"{record.folder}/"))
        if kept_bytes:
            await mark_job(store, record.job_id, record.requester_id)
        await quotas.bytes.add(record.requester_id, {RESERVATIONS: -record.room, ARTIFACTS: kept_bytes})
    return True


async def sweep(quotas: Quotas, store: Store, objects: Objects) -> int:
    """Close the records of all ended attempts, and return their number.

    A record whose storage fails is skipped until the next sweep.
    """
    count = 0
    for document in await store.documents(KIND):
        with contextlib.suppress(ObjectsError):
            count += await close(quotas, store, objects, _record(document))
    return count


async def close_one(quotas: Quotas, store: Store, objects: Objects, attempt: AttemptFiles) -> None:
    """Close the record of one attempt right after its end. Storage errors are left to the next sweep."""
    record = await read(store, attempt)
    if record.version:
        with contextlib.suppress(ObjectsError):
            await close(quotas, store, objects, record)


async def open_records(store: Store) -> list[AttemptFiles]:
    """Return all open records, one per attempt."""
    return [_record(document) for document in await store.documents(KIND)]


async def artifacts_of(store: Store, job_id: str) -> list[dict[str, Any]]:
    """Return the files that a successful job has adopted."""
    files: list[dict[str, Any]] = json.loads((await store.checkpoints(job_id)).get(ADOPTED_FILES, "[]"))
    return files


async def adopted_files(store: Store, job_id: str) -> dict[str, int]:
    """Return the sizes of the files that a successful job has adopted, by object key."""
    return {file["key"]: file["bytes"] for file in await artifacts_of(store, job_id)}


async def _remove(objects: Objects, record: AttemptFiles, adopted_keys: frozenset[str]) -> None:
    """Delete an attempt's files that its job has not adopted, and abort its open multipart uploads."""
    for name in record.files:
        if (upload := record.upload_of(name)) is not None:
            await objects.abort_multipart(upload)
    for folder in (record.folder, f"{INCOMING}/{record.folder}"):
        keys = [info.key async for info in objects.list(folder) if info.key not in adopted_keys]
        for start in range(0, len(keys), AT_ONCE):
            await objects.delete(*keys[start : start + AT_ONCE])


def _id_of(job_id: str, claim_version: int) -> str:
    return f"{job_id}:{claim_version}"


def _record(document: Document) -> AttemptFiles:
    body, (job_id, _, version) = json.loads(document.body), document.id.partition(":")
    files = {name: File(*fields) for name, fields in body["files"].items()}
    return AttemptFiles(body["requester_id"], job_id, int(version), files, document.version)
