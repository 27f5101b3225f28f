"""What attempts of remote workers upload: a record for each attempt, which reserves room in its tenant's quota.

A file gets room when its upload begins, of the size that was told, else of the longest that one request can send. When
the attempt is over its record is closed: what the job adopted is counted as it is, all else is removed and its room is
free. The count comes last, so that a crash leaves too much counted, never too little; the recount finds that.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.engine.stored import ARTIFACTS, RESERVED, mark_job
from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.job import ADOPTED, Status
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
UNSAID_BYTES = 5 * 1024**3  # what one request may send whose length was not told, and so what needs room
MOST_FILES = 1_000  # of one attempt; no more can be adopted
RACES = 100
AT_ONCE = 1_000


class File(NamedTuple):
    """The room of one file, in bytes.

    `whole` is for requests that send all of it, `parts` for its open upload, `done` was put together already. `said` is
    the longest that a URL was signed for: such a request may be under way whatever another has sent.
    """

    whole: int = 0
    parts: int = 0
    done: int = 0
    upload_id: str = ""
    part_bytes: int = 0
    said: int = 0

    def with_whole(self, most: int, *, is_said: bool) -> File:
        """Return the file with room for a request that sends up to `most` bytes, a length that was said or not."""
        said = max(self.said, most) if is_said else self.said
        return self._replace(whole=max(self.whole, most), said=said)

    @property
    def room(self) -> int:
        """All of it."""
        return self.whole + self.parts + self.done


class AttemptFiles(NamedTuple):
    """The files of one attempt, by name, and the version of their record; 0 when there is none yet."""

    requester_id: str
    job_id: str
    claim_version: int
    files: dict[str, File]
    version: int = 0

    @property
    def room(self) -> int:
        """The bytes that are reserved for it."""
        return sum(file.room for file in self.files.values())

    @property
    def folder(self) -> str:
        """Where its files are once they were put together or adopted."""
        return f"{JOBS}/{self.job_id}/{self.claim_version}"

    def upload_of(self, name: str) -> Upload | None:
        """The open upload of a file that comes in parts."""
        file = self.files.get(name, File())
        return Upload(f"{self.folder}/{name}", file.upload_id, file.part_bytes) if file.upload_id else None

    def document(self) -> Document:
        """The same as the store keeps it."""
        body = {"requester_id": self.requester_id, "files": {name: [*file] for name, file in self.files.items()}}
        return Document(KIND, _id_of(self.job_id, self.claim_version), json.dumps(body), self.version)


def of(job: Job, claim_version: int) -> AttemptFiles:
    """The record of an attempt that has uploaded nothing."""
    return AttemptFiles(job.requester_id, job.job_id, claim_version, {})


async def read(store: Store, attempt: AttemptFiles) -> AttemptFiles:
    """The record of an attempt as it is kept, the same where nothing is."""
    for document in await store.documents(KIND, _id_of(attempt.job_id, attempt.claim_version)):
        return _record(document)
    return attempt


async def change(
    quotas: Quotas, store: Store, attempt: AttemptFiles, name: str, how: Callable[[File], File]
) -> AttemptFiles:
    """Change one file of an attempt and the room that is reserved for it; the record before that.

    Raises QuotaExceeded where there is no room, and then nothing is changed.
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
        await quotas.charge(attempt.requester_id, more, RESERVED)
        try:
            await store.put_document(before._replace(files={**before.files, name: new}).document())
        except BaseException as error:
            await quotas.add(attempt.requester_id, -more, RESERVED)
            if not isinstance(error, DocumentConflict):
                raise
        else:
            return before
    raise DocumentConflict("many files of this attempt begin at the same moment; try again")


async def close(quotas: Quotas, store: Store, objects: Objects, record: AttemptFiles) -> bool:
    """End the record of an attempt that is over; False for one that is not, which is left as it is.

    Of two who do so at the same time one removes the record, and only that one counts.
    """
    (job,) = await store.get([record.job_id])
    if job is not None and job.status is Status.RUNNING and job.claim_version == record.claim_version:
        return False
    won = job is not None and job.status is Status.SUCCEEDED and job.claim_version == record.claim_version
    adopted = await adopted_files(store, record.job_id) if won else {}
    await _remove(objects, record, frozenset(adopted))
    if await store.delete_document(KIND, _id_of(record.job_id, record.claim_version)):
        kept = sum(size for key, size in adopted.items() if key.startswith(f"{record.folder}/"))
        if kept:
            await mark_job(store, record.job_id, record.requester_id)
        await quotas.bytes.add(record.requester_id, {RESERVED: -record.room, ARTIFACTS: kept})
    return True


async def sweep(quotas: Quotas, store: Store, objects: Objects) -> int:
    """Close the records of all attempts that are over; how many. One whose storage fails waits for the next time."""
    count = 0
    for document in await store.documents(KIND):
        with contextlib.suppress(ObjectsError):
            count += await close(quotas, store, objects, _record(document))
    return count


async def close_one(quotas: Quotas, store: Store, objects: Objects, attempt: AttemptFiles) -> None:
    """The same for one attempt, as soon as it is over; what fails is left to the sweep."""
    record = await read(store, attempt)
    if record.version:
        with contextlib.suppress(ObjectsError):
            await close(quotas, store, objects, record)


async def reserved(store: Store) -> list[AttemptFiles]:
    """The records of all attempts that are not closed."""
    return [_record(document) for document in await store.documents(KIND)]


async def artifacts_of(store: Store, job_id: str) -> list[dict[str, Any]]:
    """Return the files that a job's success has adopted."""
    files: list[dict[str, Any]] = json.loads((await store.checkpoints(job_id)).get(ADOPTED, "[]"))
    return files


async def adopted_files(store: Store, job_id: str) -> dict[str, int]:
    """The sizes of the files that a job's success has adopted, by key."""
    return {file["key"]: file["bytes"] for file in await artifacts_of(store, job_id)}


async def _remove(objects: Objects, record: AttemptFiles, adopted: frozenset[str]) -> None:
    """Remove what an attempt left and no job has adopted, open uploads too."""
    for name in record.files:
        if (upload := record.upload_of(name)) is not None:
            await objects.abort_multipart(upload)
    for folder in (record.folder, f"{INCOMING}/{record.folder}"):
        gone = [info.key async for info in objects.list(folder) if info.key not in adopted]
        for start in range(0, len(gone), AT_ONCE):
            await objects.delete(*gone[start : start + AT_ONCE])


def _id_of(job_id: str, claim_version: int) -> str:
    return f"{job_id}:{claim_version}"


def _record(document: Document) -> AttemptFiles:
    body, (job_id, _, version) = json.loads(document.body), document.id.partition(":")
    files = {name: File(*fields) for name, fields in body["files"].items()}
    return AttemptFiles(body["requester_id"], job_id, int(version), files, document.version)
