"""Uploads: tenants' files, sent straight to the storage by signed URLs, in resumable parts.

A client reads the list of missing parts, sends each part to its URL, and repeats until no part is missing; then it
completes the upload. The protocol is identical for folders and S3, for one byte and for terabytes, before and after a
broken connection.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request

from callsheet.engine.ids import new_id
from callsheet.engine.quotas import Quotas
from callsheet.engine.stored import UPLOADS, VIDEOS
from callsheet.kernel.errors import DocumentConflict, QuotaExceeded
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.objects import (
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    Objects,
    ObjectsError,
    Upload,
    UploadNotFound,
)
from callsheet.objects.folders import uploads_of
from callsheet.objects.keys import checked_type
from callsheet.objects.records import MOST_PARTS
from callsheet.store.protocol import Document

from . import object_access
from .auth import check
from .keys import Principal
from .object_access import objects_of
from .problems import Problem
from .state import ServerState, state_of

if TYPE_CHECKING:
    from callsheet.api.uploads import NewUpload
    from callsheet.store.protocol import Store

KIND = object_access.UPLOAD
MEBIBYTE = 1024 * 1024
PART_BYTES = 16 * MEBIBYTE
LIFE_S = 7 * 24 * 3600
SIGNED_S = 3600
RECOUNT_S = 600.0  # minimum interval between recounts of a tenant whose quota is exhausted
AT_ONCE = 20  # signed URLs in one answer
STATUS_DROPPED = "dropped"  # status of a dropped upload until its record is deleted
SWEEP = 0.02  # share of new uploads that also sweep expired uploads


class UploadRecord(NamedTuple):
    """The stored record of an upload."""

    upload_id: str
    requester_id: str
    key: str
    name: str
    size: int
    content_type: str
    part_bytes: int
    multipart_id: str
    expires_at: int
    status: str = "open"
    etag: str = ""

    @property
    def part_count(self) -> int:
        """The number of parts; an empty file has one part."""
        return max(1, -(-self.size // self.part_bytes))

    @property
    def upload(self) -> Upload:
        """The multipart upload in the storage."""
        return Upload(self.key, self.multipart_id, self.part_bytes, self.content_type)

    @property
    def binding(self) -> object_access.Binding:
        """The binding that the upload's signed URLs carry."""
        return object_access.of_upload(self.upload_id)

    @property
    def incoming_key(self) -> str:
        """The key where a single-part file waits for completion; larger files wait in the storage as parts."""
        return object_access.key_of(self.binding, self.key.rpartition("/")[2])

    def size_of(self, number: int) -> int:
        """Return the size of one part, in bytes."""
        return min(self.part_bytes, self.size - (number - 1) * self.part_bytes)


async def open_upload(state: ServerState, who: Principal, new: NewUpload, key: str = "") -> UploadRecord:
    """Create an upload for the caller, stored under `key`, or by default in a new folder of the tenant."""
    objects, store = objects_of(state), state.engine.store
    now = await store.now()
    if random.random() < SWEEP:  # noqa: S311 - not each time: it reads all of them
        await sweep(store, objects, now)
    upload_id, name = new_id(), safe_name(new.name)
    key = key or f"{uploads_of(who.requester_id)}/{upload_id}/{name}"
    kind, part_bytes = checked_type(new.content_type, name), part_bytes_of(new.size)
    multipart = new.size > part_bytes
    part = UPLOADS if key.startswith("uploads/") else VIDEOS
    await charge(state, who.requester_id, new.size, part, opens=True)
    try:
        storage_upload = (
            await objects.begin_multipart(key, part_bytes=part_bytes, content_type=kind) if multipart else None
        )
    except BaseException:
        await state.quotas.add(who.requester_id, -new.size, part, closed=1)
        raise
    record = UploadRecord(
        upload_id,
        who.requester_id,
        key,
        new.name,
        new.size,
        kind,
        part_bytes,
        storage_upload.upload_id if storage_upload else "",
        now + LIFE_S * 1000,
    )
    await store.put_document(Document(KIND, upload_id, json.dumps(record._asdict()), 0))
    return record


async def charge(state: ServerState, requester_id: str, size: int, part: str, *, opens: bool = False) -> None:
    """Charge a file to its tenant's quota; raises QuotaExceeded.

    If the quota is exhausted, the tenant's stored files are recounted first, at most once per RECOUNT_S.
    """
    try:
        await state.quotas.charge(requester_id, size, part, opens=opens)
    except QuotaExceeded:
        if state.recounted_tenants.get(requester_id, RECOUNT_S):
            raise
        state.recounted_tenants.put(requester_id, value=True)
        await state.quotas.recount(requester_id, lambda: stored_uploads(state, requester_id))
        await state.quotas.charge(requester_id, size, part, opens=opens)


async def stored_uploads(state: ServerState, requester_id: str) -> tuple[int, int]:
    """Return the bytes of a tenant's uploads, open uploads at their full size, and the number of open uploads."""
    records = [UploadRecord(**json.loads(document.body)) for document in await state.engine.store.documents(KIND)]
    still = [one for one in records if one.requester_id == requester_id and one.status == "open"]
    open_sizes = {one.key: one.size for one in still}
    folder = uploads_of(requester_id)
    total = sum(size for key, size in open_sizes.items() if key.startswith(f"{folder}/"))
    async for info in objects_of(state).list(folder):
        total += 0 if info.key in open_sizes else info.size_bytes
    return total, len(still)


async def complete_upload(request: Request, upload_id: str) -> UploadRecord:
    """Complete the caller's upload if it is open, and return its record; raises Problem."""
    record, version, objects = await find_upload(request, upload_id)
    if record.status == "open":
        record = record._replace(status="done", etag=(await _assemble(objects, record)).etag)
        store = state_of(request).engine.store
        try:
            await store.put_document(_document(record, version))
            await state_of(request).quotas.add(record.requester_id, 0, closed=1)
        except DocumentConflict:  # a concurrent request completed or dropped the upload
            if not await _is_done(store, record.upload_id):
                await objects.delete(record.key)
                raise Problem("upload_not_found", "this upload was dropped while it was completed") from None
        if not record.multipart_id:
            await objects.delete(record.incoming_key)
    return record


async def find_upload(request: Request, upload_id: str) -> tuple[UploadRecord, int, Objects]:
    """Return the caller's upload, its version and the objects; raises Problem, also for another tenant's upload."""
    who = await check(request, "jobs:write")
    state = state_of(request)
    objects = objects_of(state)
    documents = await state.engine.store.documents(KIND, upload_id) if IS_UUID(upload_id) else []
    record = UploadRecord(**json.loads(documents[0].body)) if documents else None
    is_gone = record is None or record.status == STATUS_DROPPED or record.expires_at <= await state.engine.store.now()
    if record is None or is_gone or not _may_see(who, record):
        raise Problem("upload_not_found", "no such upload of yours, or not any more; begin a new one")
    return record, documents[0].version, objects


def _may_see(who: Principal, record: UploadRecord) -> bool:
    return who.admin or who.requester_id == record.requester_id


async def upload_body(objects: Objects, record: UploadRecord) -> dict[str, Any]:
    """Return an upload as JSON, with signed URLs for the next parts."""
    here = await _arrived_parts(objects, record)
    left = [number for number in range(1, record.part_count + 1) if number not in here]
    return {
        "upload_id": record.upload_id,
        "key": record.key,
        "name": record.name,
        "size": record.size,
        "content_type": record.content_type,
        "status": record.status,
        "received": sum(record.size_of(number) for number in here),
        "part_size": record.part_bytes,
        "part_count": record.part_count,
        "todo": [await _to_send(objects, record, number) for number in left[:AT_ONCE]],
        "expires_at": record.expires_at,
    }


async def _arrived_parts(objects: Objects, record: UploadRecord) -> set[int]:
    """Return the numbers of the parts that arrived completely."""
    if record.status == "done":
        return set(range(1, record.part_count + 1))
    if record.multipart_id:
        try:
            parts = await objects.list_parts(record.upload)
        except UploadNotFound:
            if await _whole(objects, record):  # completed by a process that died before recording it
                return set(range(1, record.part_count + 1))
            raise
        return {part.number for part in parts if part.size_bytes == record.size_of(part.number)}
    return {1} if await _whole(objects, record) or await _whole(objects, record, record.incoming_key) else set()


async def _whole(objects: Objects, record: UploadRecord, key: str = "") -> ObjectInfo | None:
    """Return the object at the upload's key, or at `key`, if its size is complete, else None."""
    try:
        info = await objects.head(key or record.key)
    except ObjectNotFound:
        return None
    return info if info.size_bytes == record.size else None


async def _to_send(objects: Objects, record: UploadRecord, number: int) -> dict[str, Any]:
    size = record.size_of(number)
    if record.multipart_id:
        link = await objects.sign_part(record.upload, number, SIGNED_S, size_bytes=size, bound_to=str(record.binding))
    else:
        kind, binding = record.content_type, str(record.binding)
        link = await objects.sign_put(
            record.incoming_key, SIGNED_S, content_type=kind, size_bytes=size, bound_to=binding
        )
    headers = {name: value for name, value in link.headers.items() if name != "content-length"}  # sent by itself
    return {
        "number": number,
        "offset": (number - 1) * record.part_bytes,
        "size": size,
        "method": link.method,
        "url": link.url,
        "headers": headers,
        "expires_at": link.expires_at_ms,
    }


async def _assemble(objects: Objects, record: UploadRecord) -> ObjectInfo:
    """Assemble the object from its parts and return it. Parts sent later do not change the object."""
    here = await _arrived_parts(objects, record)
    if missing := [number for number in range(1, record.part_count + 1) if number not in here]:
        detail = f"{len(missing)} of {record.part_count} parts did not arrive yet"
        raise Problem("upload_incomplete", detail, missing=missing[:1000])
    if (existing := await _whole(objects, record)) is not None:
        return existing
    try:
        if record.multipart_id:
            return await objects.complete_multipart(record.upload)
        return await objects.copy(record.incoming_key, record.key, only_if_absent=True)
    except (UploadNotFound, ObjectExists, ObjectNotFound):
        if (existing := await _whole(objects, record)) is None:
            raise
        return existing  # completed by a concurrent request


async def sweep(store: Store, objects: Objects, now: int) -> None:
    """Delete expired uploads, and the parts of expired uploads that no client completed."""
    for document in await store.documents(KIND):
        record = UploadRecord(**json.loads(document.body))
        if record.expires_at <= now:
            with contextlib.suppress(ObjectsError, DocumentConflict):
                await drop_upload(store, objects, record, document.version)
    await object_access.sweep(store, objects)


async def forget(state: ServerState, upload_id: str) -> None:
    """Drop an upload that no client needs any more, in any status."""
    for document in await state.engine.store.documents(KIND, upload_id):
        with contextlib.suppress(DocumentConflict):  # it was completed or dropped meanwhile
            await drop_upload(
                state.engine.store, objects_of(state), UploadRecord(**json.loads(document.body)), document.version
            )


async def drop_upload(store: Store, objects: Objects, record: UploadRecord, version: int) -> None:
    """Delete an upload's record, so that its URLs are refused, and delete the parts of an incomplete upload.

    An open upload is first marked as dropped, so that no request completes it after its bytes left the quota. Raises
    DocumentConflict.
    """
    if record.status == "open":
        await store.put_document(_document(record._replace(status=STATUS_DROPPED), version))
    is_incomplete = record.status in ("open", STATUS_DROPPED)
    if is_incomplete and record.multipart_id:
        await objects.abort_multipart(record.upload)
    if await store.delete_document(KIND, record.upload_id) and is_incomplete:
        part = UPLOADS if record.key.startswith("uploads/") else VIDEOS
        await Quotas(store).add(record.requester_id, -record.size, part, closed=1)
    if is_incomplete and not record.multipart_id:
        await objects.delete(record.incoming_key, record.key)


def _document(record: UploadRecord, version: int) -> Document:
    return Document(KIND, record.upload_id, json.dumps(record._asdict()), version)


async def _is_done(store: Store, upload_id: str) -> bool:
    """Return whether the store lists the upload as complete."""
    documents = await store.documents(KIND, upload_id)
    return bool(documents) and json.loads(documents[0].body)["status"] == "done"


def part_bytes_of(size: int) -> int:
    """Return a part size for a file of `size` bytes that keeps the number of parts within the storage's limit."""
    least = -(-size // MOST_PARTS)
    return max(PART_BYTES, -(-least // MEBIBYTE) * MEBIBYTE)


def safe_name(name: str) -> str:
    """Return the last component of a file's name, in characters that every storage and log accepts."""
    last = re.split(r"[/\\]", name)[-1]
    plain = re.sub(r"[^\w.-]", "_", last, flags=re.ASCII).strip(".")[-100:]
    return plain or "file"
