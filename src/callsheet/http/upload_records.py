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
import time
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
DROPPED = "dropped"  # status of a dropped upload until its record is deleted
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


async def open_upload(state: ServerState, who: Principal, asked: NewUpload, key: str = "") -> UploadRecord:
    """Create an upload for the caller, stored under `key`, or by default in a new folder of the tenant."""
    objects, store = objects_of(state), state.engine.store
    now = await store.now()
    if random.random() < SWEEP:  # noqa: S311 - not each time: it reads all of them
        await sweep(store, objects, now)
    upload_id, name = new_id(), safe_name(asked.name)
    key = key or f"{uploads_of(who.requester_id)}/{upload_id}/{name}"
    kind, part_bytes = checked_type(asked.content_type, name), part_bytes_of(asked.size)
    multipart = asked.size > part_bytes
    part = UPLOADS if key.startswith("uploads/") else VIDEOS
    await charge(state, who.requester_id, asked.size, part, opens=True)
    try:
        begun = await objects.begin_multipart(key, part_bytes=part_bytes, content_type=kind) if multipart else None
    except BaseException:
        await state.quotas.add(who.requester_id, -asked.size, part, closed=1)
        raise
    kept = UploadRecord(
        upload_id,
        who.requester_id,
        key,
        asked.name,
        asked.size,
        kind,
        part_bytes,
        begun.upload_id if begun else "",
        now + LIFE_S * 1000,
    )
    await store.put_document(Document(KIND, upload_id, json.dumps(kept._asdict()), 0))
    return kept


async def charge(state: ServerState, requester_id: str, size: int, part: str, *, opens: bool = False) -> None:
    """Charge a file to its tenant's quota; raises QuotaExceeded.

    If the quota is exhausted, the tenant's stored files are recounted first, at most once per RECOUNT_S.
    """
    try:
        await state.quotas.charge(requester_id, size, part, opens=opens)
    except QuotaExceeded:
        at = state.recount_times.get(requester_id)
        if at is not None and time.monotonic() - at < RECOUNT_S:
            raise
        state.recount_times.put(requester_id, time.monotonic())
        await state.quotas.recount(requester_id, lambda: stored_uploads(state, requester_id))
        await state.quotas.charge(requester_id, size, part, opens=opens)


async def stored_uploads(state: ServerState, requester_id: str) -> tuple[int, int]:
    """Return the bytes of a tenant's uploads, open uploads at their full size, and the number of open uploads."""
    kept = [UploadRecord(**json.loads(document.body)) for document in await state.engine.store.documents(KIND)]
    still = [one for one in kept if one.requester_id == requester_id and one.status == "open"]
    opened = {one.key: one.size for one in still}
    folder = uploads_of(requester_id)
    total = sum(size for key, size in opened.items() if key.startswith(f"{folder}/"))
    async for info in objects_of(state).list(folder):
        total += 0 if info.key in opened else info.size_bytes
    return total, len(still)


async def complete_upload(request: Request, upload_id: str) -> UploadRecord:
    """Complete the caller's upload if it is open, and return its record; raises Problem."""
    kept, version, objects = await find_upload(request, upload_id)
    if kept.status == "open":
        kept = kept._replace(status="done", etag=(await _assemble(objects, kept)).etag)
        store = state_of(request).engine.store
        try:
            await store.put_document(_document(kept, version))
            await state_of(request).quotas.add(kept.requester_id, 0, closed=1)
        except DocumentConflict:  # a concurrent request completed or dropped the upload
            if not await _is_done(store, kept.upload_id):
                await objects.delete(kept.key)
                raise Problem("upload_not_found", "this upload was dropped while it was completed") from None
        if not kept.multipart_id:
            await objects.delete(kept.incoming_key)
    return kept


async def find_upload(request: Request, upload_id: str) -> tuple[UploadRecord, int, Objects]:
    """Return the caller's upload, its version and the objects; raises Problem, also for another tenant's upload."""
    who = await check(request, "jobs:write")
    state = state_of(request)
    objects = objects_of(state)
    found = await state.engine.store.documents(KIND, upload_id) if IS_UUID(upload_id) else []
    kept = UploadRecord(**json.loads(found[0].body)) if found else None
    is_gone = kept is None or kept.status == DROPPED or kept.expires_at <= await state.engine.store.now()
    if kept is None or is_gone or not _may_see(who, kept):
        raise Problem("upload_not_found", "no such upload of yours, or not any more; begin a new one")
    return kept, found[0].version, objects


def _may_see(who: Principal, kept: UploadRecord) -> bool:
    return who.admin or who.requester_id == kept.requester_id


async def shown(objects: Objects, kept: UploadRecord) -> dict[str, Any]:
    """Return an upload as JSON, with signed URLs for the next parts."""
    here = await _arrived(objects, kept)
    left = [number for number in range(1, kept.part_count + 1) if number not in here]
    return {
        "upload_id": kept.upload_id,
        "key": kept.key,
        "name": kept.name,
        "size": kept.size,
        "content_type": kept.content_type,
        "status": kept.status,
        "received": sum(kept.size_of(number) for number in here),
        "part_size": kept.part_bytes,
        "part_count": kept.part_count,
        "todo": [await _to_send(objects, kept, number) for number in left[:AT_ONCE]],
        "expires_at": kept.expires_at,
    }


async def _arrived(objects: Objects, kept: UploadRecord) -> set[int]:
    """Return the numbers of the parts that arrived completely."""
    if kept.status == "done":
        return set(range(1, kept.part_count + 1))
    if kept.multipart_id:
        try:
            parts = await objects.list_parts(kept.upload)
        except UploadNotFound:
            if await _whole(objects, kept):  # completed by a process that died before recording it
                return set(range(1, kept.part_count + 1))
            raise
        return {part.number for part in parts if part.size_bytes == kept.size_of(part.number)}
    return {1} if await _whole(objects, kept) or await _whole(objects, kept, kept.incoming_key) else set()


async def _whole(objects: Objects, kept: UploadRecord, key: str = "") -> ObjectInfo | None:
    """Return the object at the upload's key, or at `key`, if its size is complete, else None."""
    try:
        info = await objects.head(key or kept.key)
    except ObjectNotFound:
        return None
    return info if info.size_bytes == kept.size else None


async def _to_send(objects: Objects, kept: UploadRecord, number: int) -> dict[str, Any]:
    size = kept.size_of(number)
    if kept.multipart_id:
        signed = await objects.sign_part(kept.upload, number, SIGNED_S, size_bytes=size, bound_to=str(kept.binding))
    else:
        kind, bound = kept.content_type, str(kept.binding)
        signed = await objects.sign_put(kept.incoming_key, SIGNED_S, content_type=kind, size_bytes=size, bound_to=bound)
    headers = {name: value for name, value in signed.headers.items() if name != "content-length"}  # sent by itself
    return {
        "number": number,
        "offset": (number - 1) * kept.part_bytes,
        "size": size,
        "method": signed.method,
        "url": signed.url,
        "headers": headers,
        "expires_at": signed.expires_at_ms,
    }


async def _assemble(objects: Objects, kept: UploadRecord) -> ObjectInfo:
    """Assemble the object from its parts and return it. Parts sent later do not change the object."""
    here = await _arrived(objects, kept)
    if missing := [number for number in range(1, kept.part_count + 1) if number not in here]:
        told = f"{len(missing)} of {kept.part_count} parts did not arrive yet"
        raise Problem("upload_incomplete", told, missing=missing[:1000])
    if (done := await _whole(objects, kept)) is not None:
        return done
    try:
        if kept.multipart_id:
            return await objects.complete_multipart(kept.upload)
        return await objects.copy(kept.incoming_key, kept.key, only_if_absent=True)
    except (UploadNotFound, ObjectExists, ObjectNotFound):
        if (done := await _whole(objects, kept)) is None:
            raise
        return done  # completed by a concurrent request


async def sweep(store: Store, objects: Objects, now: int) -> None:
    """Delete expired uploads, and the parts of expired uploads that no client completed."""
    for document in await store.documents(KIND):
        kept = UploadRecord(**json.loads(document.body))
        if kept.expires_at <= now:
            with contextlib.suppress(ObjectsError, DocumentConflict):
                await drop_upload(store, objects, kept, document.version)
    await object_access.sweep(store, objects)


async def forget(state: ServerState, upload_id: str) -> None:
    """Drop an upload that no client needs any more, in any status."""
    for document in await state.engine.store.documents(KIND, upload_id):
        with contextlib.suppress(DocumentConflict):  # it was completed or dropped meanwhile
            await drop_upload(
                state.engine.store, objects_of(state), UploadRecord(**json.loads(document.body)), document.version
            )


async def drop_upload(store: Store, objects: Objects, kept: UploadRecord, version: int) -> None:
    """Delete an upload's record, so that its URLs are refused, and delete the parts of an incomplete upload.

    An open upload is first marked as dropped, so that no request completes it after its bytes left the quota. Raises
    DocumentConflict.
    """
    if kept.status == "open":
        await store.put_document(_document(kept._replace(status=DROPPED), version))
    is_incomplete = kept.status in ("open", DROPPED)
    if is_incomplete and kept.multipart_id:
        await objects.abort_multipart(kept.upload)
    if await store.delete_document(KIND, kept.upload_id) and is_incomplete:
        part = UPLOADS if kept.key.startswith("uploads/") else VIDEOS
        await Quotas(store).add(kept.requester_id, -kept.size, part, closed=1)
    if is_incomplete and not kept.multipart_id:
        await objects.delete(kept.incoming_key, kept.key)


def _document(kept: UploadRecord, version: int) -> Document:
    return Document(KIND, kept.upload_id, json.dumps(kept._asdict()), version)


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
