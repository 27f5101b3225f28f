"""Background chores for stored files: clean up ended attempts and uploads, and recount the bytes that tenants store."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Self

from callsheet.engine.quotas import BEGINNING_MS
from callsheet.engine.stored import JOB_FILES, RESERVATIONS
from callsheet.kernel.errors import CallsheetError, DocumentConflict
from callsheet.objects.folders import JOBS, Named, folder_of, named_by, part_of
from callsheet.store.protocol import Document

from . import attempt_files, object_access, upload_records
from .object_access import OwnerLookup

if TYPE_CHECKING:
    from callsheet.engine.quotas import Quotas
    from callsheet.objects import ObjectInfo, Objects
    from callsheet.objects.owned import Owners
    from callsheet.store.protocol import Store


if TYPE_CHECKING:
    from types import TracebackType

    from callsheet.objects import Objects

    from .state import ServerState

log = logging.getLogger("callsheet.http")
PERIOD_S = 30.0
UPLOADS_EACH = 20  # rounds between sweeps of uploads, because a sweep reads a week of uploads


class FileMaintenance:
    """Runs the chores of stored files periodically. Several processes may run them concurrently."""

    def __init__(self, state: ServerState, objects: Objects) -> None:
        self._state, self._objects = state, objects
        self._recount = Recount(state.quotas, state.engine.store, objects, OwnerLookup(state))
        self._rounds = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._for_ever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def once(self, now: int | None = None) -> None:
        """Run all chores once; long chores do a bounded part of their work."""
        store, quotas = self._state.engine.store, self._state.quotas
        await attempt_files.sweep(quotas, store, self._objects)
        self._rounds += 1
        if self._rounds % UPLOADS_EACH == 1:
            await upload_records.sweep(store, self._objects, await store.now() if now is None else now)
        await self._recount.step(now)

    async def _for_ever(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            try:
                await self.once()
            except CallsheetError as error:
                log.warning("the chores of stored files failed, and are tried again: %s", error)
            except Exception:
                log.exception("the chores of stored files broke; they are tried again")


log = logging.getLogger("callsheet.quotas")
KIND, ID = "storage_walk", "objects"
EVERY_MS = 6 * 3_600_000
KEYS = 5_000  # listed in one step: five requests to an S3
JOBS_AT_ONCE = 500
SKEW_MS = 300_000  # tolerated difference between the store's and the storage's clocks
Counts = dict[str, dict[str, int]]  # bytes by tenant and part


class Walk(NamedTuple):
    """The stored state of a walk.

    `counted` holds bytes present at the walk's start, `doubtful` bytes possibly added since, `base` the tenants' counts
    at the start, `removed` their deleted bytes. `attempts` lists folders of running attempts, which are in `counted`
    with their reserved bytes.
    """

    begun_at: int
    cursor: str
    counted: Counts
    doubtful: Counts
    base: Counts
    removed: Counts
    busy: list[str]
    attempts: list[str]
    ended_at: int = 0


class Recount:
    """Walks over all objects, some thousands per step, and corrects the counts of tenants' stored bytes.

    A count drifts when a process dies between a write and its count, or when an operator removes files by hand. All
    processes share one walk: its state is a document, and only the process that writes the next state completes a step.
    Concurrent changes may leave a count too high, never too low: a count is not lowered for objects that may be younger
    than the walk, or that were deleted since its start. The next walk starts from scratch.
    """

    def __init__(self, quotas: Quotas, store: Store, objects: Objects, owners: Owners) -> None:
        self._quotas, self._store, self._objects, self._owners = quotas, store, objects, owners

    async def step(self, now: int | None = None) -> bool:
        """Run the next step if one is due. Returns whether the step completed the walk."""
        now = await self._store.now() if now is None else now
        walk, version = await self._read()
        if walk is None or walk.ended_at:
            if walk is None or walk.ended_at + EVERY_MS <= now:
                await self._keep(await self._new_walk(now), version)
            return False
        infos = [info async for info in _first_keys(self._objects.list(after=walk.cursor))]
        await self._count(walk, infos)
        if len(infos) == KEYS:
            await self._keep(walk._replace(cursor=infos[-1].key), version)
            return False
        if not await self._keep(walk._replace(ended_at=now), version):
            return False
        await self._apply(walk)
        return True

    async def _new_walk(self, now: int) -> Walk:
        """Return a new walk with the tenants' current counts, and the bytes reserved for unfinished files."""
        totals, walk = await self._quotas.bytes.of_all(), Walk(now, "", {}, {}, {}, {}, [], [])
        for tenant, before in totals.items():
            walk.base[tenant], walk.removed[tenant] = before.parts, before.removed
            if before.charged_at + BEGINNING_MS > now:
                walk.busy.append(tenant)  # charged bytes may not be recorded yet
        for document in await self._store.documents(object_access.UPLOAD):
            upload = json.loads(document.body)
            if upload["status"] == "open":
                _add(walk.counted, upload["requester_id"], part_of(upload["key"]), upload["size"])
        for attempt in await attempt_files.open_records(self._store):
            _add(walk.counted, attempt.requester_id, RESERVATIONS, attempt.room)
            walk.attempts.append(attempt.folder)
        return walk

    async def _count(self, walk: Walk, infos: list[ObjectInfo]) -> None:
        """Add objects to the walk under their owners. Files of deleted jobs are removed."""
        owners, running = await self._owners_of(walk, infos), frozenset(walk.attempts)
        for info in infos:
            owner = owners.get(named_by(info.key))
            if owner is None or "/".join(info.key.split("/")[:3]) in running:
                continue
            if info.modified_ms < walk.begun_at - SKEW_MS:
                _add(walk.counted, owner, part_of(info.key), info.size_bytes)
            elif info.modified_ms < walk.begun_at + SKEW_MS:
                _add(walk.doubtful, owner, part_of(info.key), info.size_bytes)

    async def _owners_of(self, walk: Walk, infos: list[ObjectInfo]) -> dict[Named, str]:
        """Return the owners of the tenants, jobs and videos named by object keys. Names without owner are omitted."""
        names = {folder_of(tenant): tenant for tenant in walk.base}
        subjects = {named_by(info.key) for info in infos}
        owners = await self._owners_of_jobs([one.id for one in subjects if one.kind == "job"])
        for one in subjects:
            if one.kind == "tenant" and (one.id in names or not one.id.startswith("~")):
                owners[one] = names.get(one.id, one.id)
            elif one.kind == "video" and (owner := await self._owners.of_video(one.id)) is not None:
                owners[one] = owner
        return owners

    async def _owners_of_jobs(self, job_ids: list[str]) -> dict[Named, str]:
        owners: dict[Named, str] = {}
        for start in range(0, len(job_ids), JOBS_AT_ONCE):
            some = job_ids[start : start + JOBS_AT_ONCE]
            for job_id, job in zip(some, await self._store.get(some), strict=True):
                owner = await self._forgotten(job_id) if job is None else job.requester_id
                if owner is not None:
                    owners[Named("job", job_id)] = owner
        return owners

    async def _forgotten(self, job_id: str) -> str | None:
        """Delete the files of a job that retention has deleted, and return the job's owner.

        Files without a record of their owner are kept; then the result is None.
        """
        for document in await self._store.documents(JOB_FILES, job_id):
            owner = str(json.loads(document.body)["requester_id"])
            folder = f"{JOBS}/{job_id}"
            sizes = [info.size_bytes async for info in self._objects.list(folder)]
            await self._objects.delete_prefix(folder)
            if await self._store.delete_document(JOB_FILES, job_id):
                await self._quotas.bytes.add(owner, {part_of(f"{folder}/"): -sum(sizes)})
            return owner
        return None

    async def _apply(self, walk: Walk) -> None:
        """Correct each tenant's counts by their drift at the walk's start."""
        now = await self._quotas.bytes.of_all()
        for tenant in {*walk.base, *walk.counted, *walk.doubtful}:
            since = now[tenant].removed if tenant in now else {}
            off = {part: more for part in _parts(walk, tenant) if (more := drift(walk, tenant, part, since))}
            if off:
                log.info("the stored bytes of a tenant were counted anew", extra={"fields": {"changes": off}})
                await self._quotas.bytes.add(tenant, off)

    async def _read(self) -> tuple[Walk | None, int]:
        for document in await self._store.documents(KIND, ID):
            return Walk(**json.loads(document.body)), document.version
        return None, 0

    async def _keep(self, walk: Walk, version: int) -> bool:
        try:
            await self._store.put_document(Document(KIND, ID, json.dumps(walk._asdict()), version))
        except DocumentConflict:
            return False  # another process did this step
        return True


def drift(walk: Walk, tenant: str, part: str, removals: Mapping[str, int]) -> int:
    """Return the certain part of a count's error at the walk's start, in bytes; negative if the count was too high."""
    base = walk.base.get(tenant, {}).get(part, 0)
    least = walk.counted.get(tenant, {}).get(part, 0)
    if least > base:
        return least - base
    most = least + walk.doubtful.get(tenant, {}).get(part, 0)
    deleted_bytes = removals.get(part, 0) - walk.removed.get(tenant, {}).get(part, 0)
    return 0 if tenant in walk.busy else min(0, most + deleted_bytes - base)


def _parts(walk: Walk, tenant: str) -> set[str]:
    return {part for counts in (walk.base, walk.counted, walk.doubtful) for part in counts.get(tenant, {})}


def _add(counts: Counts, tenant: str, part: str, size: int) -> None:
    own = counts.setdefault(tenant, {})
    own[part] = own.get(part, 0) + size


async def _first_keys(infos: AsyncIterator[ObjectInfo]) -> AsyncIterator[ObjectInfo]:
    count = 0
    async for info in infos:
        yield info
        count += 1
        if count == KEYS:
            return
