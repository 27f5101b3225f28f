"""Objects in this process's memory, for tests and trials: obstore's memory storage plus multipart uploads."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import Any, BinaryIO

import obstore
from obstore.store import MemoryStore

from .errors import ObjectChanged, ObjectExists, ObjectNotFound, ObjectTooLarge, UploadNotFound
from .face import Data
from .keys import checked, checked_prefix, checked_type
from .records import ObjectInfo, Part, Upload
from .s3_errors import of_driver
from .signing import OwnObjects, Signer, checked_number, chosen_parts
from .threads import pieces
from .transfer import object_reader

PIECE_BYTES = 1024 * 1024


class MemoryObjects(OwnObjects):
    """Objects in memory, lost when the process ends."""

    def __init__(self, signer: Signer | None = None) -> None:
        self.place = "memory"
        self.signer = signer
        self._store = MemoryStore()
        self._uploads: dict[str, tuple[Upload, dict[int, tuple[Part, bytes]]]] = {}

    async def close(self) -> None:
        """Do nothing: no connection or file is open."""

    async def put(
        self,
        key: str,
        data: Data,
        *,
        content_type: str | None = None,
        only_if_absent: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Write an object in one step."""
        kind = checked_type(content_type, checked(key))
        whole = b"".join([piece async for piece in pieces(data)])
        mode: Any = "create" if only_if_absent else {"e_tag": if_match} if if_match else "overwrite"
        try:
            await self._store.put_async(key, whole, attributes={"Content-Type": kind}, mode=mode)
        except Exception as error:  # noqa: BLE001 - the driver's errors end here
            failure = of_driver(error, f"put {key}")
            if isinstance(failure, ObjectNotFound):
                failure = ObjectChanged(f"put {key}: it is not there any more")
            raise failure from None
        return await self.head(key)

    async def head(self, key: str) -> ObjectInfo:
        """Return an object's size, etag, time and content type; raises ObjectNotFound."""
        return _info(await self._get(key))

    async def _get(self, key: str, **options: Any) -> Any:
        try:
            return await self._store.get_async(checked(key), **options)
        except Exception as error:  # noqa: BLE001 - likewise
            raise of_driver(error, f"get {key}") from None

    async def stream(
        self, key: str, *, start: int = 0, end: int | None = None, if_match: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes in pieces of 1 MiB, as a remote storage would."""
        result = await self._get(key, options={"if_match": if_match} if if_match else None)
        whole = memoryview(await result.bytes_async())[start:end]
        for at in range(0, len(whole), PIECE_BYTES):
            yield bytes(whole[at : at + PIECE_BYTES])

    async def list(self, prefix: str = "", *, after: str = "") -> AsyncGenerator[ObjectInfo, None]:
        """Yield objects in byte order of their keys."""
        entries = [meta for page in self._store.list(checked_prefix(prefix) or None) for meta in page]
        for meta in sorted(entries, key=lambda meta: meta["path"].encode()):
            if meta["path"].encode() > after.encode():
                yield _of(meta)

    async def copy(self, source: str, target: str, *, only_if_absent: bool = False) -> ObjectInfo:
        """Copy an object with its content type."""
        info = await self.head(source)
        return await self.put(
            target, await self.get(source), content_type=info.content_type, only_if_absent=only_if_absent
        )

    async def delete(self, *keys: str) -> None:
        """Delete existing objects."""
        await self._store.delete_async([checked(key) for key in keys])

    def open_reader(self, key: str) -> BinaryIO:
        """Open an object as a seekable file."""
        try:
            return object_reader(
                obstore.open_reader(self._store, checked(key)), lambda error: of_driver(error, f"read {key}")
            )
        except Exception as error:  # noqa: BLE001 - likewise
            raise of_driver(error, f"read {key}") from None

    async def begin_multipart(self, key: str, *, part_bytes: int, content_type: str | None = None) -> Upload:
        """Begin a multipart upload, held in a dict until completion."""
        kind = checked_type(content_type, checked(key))
        upload = Upload(key, secrets.token_hex(16), part_bytes, kind)
        self._uploads[upload.upload_id] = upload, {}
        return upload

    async def find_upload(self, key: str, upload_id: str) -> Upload:
        """Return an open upload by id; raises UploadNotFound."""
        entry = self._uploads.get(upload_id)
        if entry is None or entry[0].key != key:
            raise UploadNotFound(f"no upload of {key}, or not any more")
        return entry[0]

    async def put_part(self, upload: Upload, number: int, data: Data) -> Part:
        """Write one part in one step; raises UploadNotFound, ObjectTooLarge."""
        parts = self._parts(upload)
        whole, count = [], 0
        async for piece in pieces(data):
            whole.append(piece)
            count += len(piece)
            if count > upload.part_bytes:
                raise ObjectTooLarge(f"part {number} of {upload.key} has more than {upload.part_bytes} bytes")
        content = b"".join(whole)
        part = Part(checked_number(number), hashlib.sha256(content).hexdigest(), count)
        parts[number] = part, content
        return part

    async def list_parts(self, upload: Upload) -> Sequence[Part]:
        """Return the written parts in order of number."""
        return sorted(part for part, _ in self._parts(upload).values())

    async def complete_multipart(
        self, upload: Upload, parts: Sequence[Part] | None = None, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Join the parts to the object; raises UploadIncomplete, ObjectExists."""
        here = self._parts(upload)
        requested = list(await self.list_parts(upload) if parts is None else parts)
        selection = chosen_parts(upload, {number: part for number, (part, _) in here.items()}, requested)
        if only_if_absent and await self.exists(upload.key):
            raise ObjectExists(f"complete {upload.key}: it is there already")
        whole = b"".join(here[part.number][1] for part in selection)
        kind = (await self.find_upload(upload.key, upload.upload_id)).content_type
        info = await self.put(upload.key, whole, content_type=kind, only_if_absent=only_if_absent)
        self._uploads.pop(upload.upload_id, None)
        return info

    async def abort_multipart(self, upload: Upload) -> None:
        """Delete the upload and its parts; an unknown upload is ignored."""
        with contextlib.suppress(UploadNotFound):
            self._parts(upload)
            del self._uploads[upload.upload_id]

    def _parts(self, upload: Upload) -> dict[int, tuple[Part, bytes]]:
        entry = self._uploads.get(upload.upload_id)
        if entry is None or entry[0].key != upload.key:
            raise UploadNotFound(f"no upload of {upload.key}, or not any more")
        return entry[1]


def _info(entry: Any) -> ObjectInfo:
    return _of(entry.meta)._replace(content_type=str(entry.attributes.get("Content-Type", "")))


def _of(meta: Any) -> ObjectInfo:
    modified_ms = round(meta["last_modified"].timestamp() * 1000)
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"] or "", modified_ms)
