"""Objects in a local folder. obstore's local storage would follow links out of the folder and keeps no content types.

The folder `.callsheet/` below the root holds unfinished files (`tmp`), content types that differ from the name's
(`types`), multipart uploads (`uploads`) and locks.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .errors import ObjectChanged, ObjectExists, ObjectNotFound
from .face import Data
from .folder_uploads import FolderUploads
from .keys import OWN, checked, checked_prefix, checked_type
from .records import ObjectInfo, Part, Upload
from .signing import OwnObjects, Signer
from .threads import in_thread, pieces
from .tree import TEMPORARY, Entry, Tree, known_errors

PIECE_BYTES = 1024 * 1024
PAGE = 500


class Placing(NamedTuple):
    """The key, content type and conditions of a write."""

    key: str
    content_type: str
    only_if_absent: bool = False
    if_match: str | None = None


class FolderObjects(OwnObjects):
    """Objects stored as files below a root folder."""

    def __init__(self, root: Path, signer: Signer | None = None) -> None:
        self.place = f"file://{root}"
        self.signer = signer
        self._tree = Tree(root)
        self._uploads = FolderUploads(self._tree)

    async def close(self) -> None:
        """Close the root folder."""
        await in_thread(self._tree.close)

    async def put(
        self,
        key: str,
        data: Data,
        *,
        content_type: str | None = None,
        only_if_absent: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Write a temporary file, sync the file to disk, and rename it to the key."""
        placing = Placing(checked(key), checked_type(content_type, key), only_if_absent, if_match)
        if only_if_absent and await self.exists(key):
            raise ObjectExists(f"put {key}: it is there already")
        number, name = await in_thread(self._tree.create, TEMPORARY)
        try:
            async for piece in pieces(data):
                await in_thread(_write, number, piece)
            await in_thread(_sync, number)
            return await in_thread(self._place, (TEMPORARY,), name, placing)
        except BaseException:
            await in_thread(self._forget, name)
            raise
        finally:
            os.close(number)

    def _forget(self, name: str) -> None:
        with contextlib.suppress(OSError), self._tree.folder([OWN, TEMPORARY]) as folder:
            os.unlink(name, dir_fd=folder)

    def _place(self, folders: tuple[str, ...], name: str, placing: Placing) -> ObjectInfo:
        """Check the write conditions, store the content type and rename the file, all under the key's lock."""
        key = placing.key
        with self._tree.lock(key):
            try:
                there: str | None = etag_of(self._tree.stat(key))
            except ObjectNotFound:
                there = None
            if placing.only_if_absent and there is not None:
                raise ObjectExists(f"put {key}: it is there already")
            if placing.if_match is not None and there != placing.if_match:
                raise ObjectChanged(f"put {key}: it is another version")
            status = self._tree.stat("/".join((OWN, *folders, name)))
            self._keep_type(key, etag_of(status), placing.content_type)
            self._tree.move(folders, name, key)
        return _info(Entry(key, status), placing.content_type)

    def _keep_type(self, key: str, etag: str, content_type: str) -> None:
        """Store the content type with the object's etag, unless the key's suffix implies the same type."""
        if content_type == checked_type(None, key):
            return
        number, name = self._tree.create(TEMPORARY)
        with os.fdopen(number, "wb") as file:
            file.write(json.dumps({"etag": etag, "type": content_type}).encode())
        self._tree.move((TEMPORARY,), name, _beside(key))

    def _type(self, key: str, etag: str) -> str:
        with contextlib.suppress(ObjectNotFound, ValueError):
            with os.fdopen(self._tree.open(_beside(key)), "rb") as file:
                note = json.loads(file.read(4096))
            if note["etag"] == etag:
                return str(note["type"])
        return checked_type(None, key)

    async def head(self, key: str) -> ObjectInfo:
        """Return an object's size, etag, time and content type; raises ObjectNotFound."""
        return await in_thread(self._head, checked(key))

    def _head(self, key: str) -> ObjectInfo:
        status = self._tree.stat(key)
        return _info(Entry(key, status), self._type(key, etag_of(status)))

    async def stream(
        self, key: str, *, start: int = 0, end: int | None = None, if_match: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes from one open file: a replacement of the object does not affect a running read."""
        number = await in_thread(self._tree.open, checked(key))
        try:
            status = os.fstat(number)
            if if_match is not None and etag_of(status) != if_match:
                raise ObjectChanged(f"get {key}: it is another version")
            stop = status.st_size if end is None else min(end, status.st_size)
            while start < stop:
                piece = await in_thread(_read, number, min(PIECE_BYTES, stop - start), start)
                if not piece:
                    return
                start += len(piece)
                yield piece
        finally:
            os.close(number)

    async def list(self, prefix: str = "", *, after: str = "") -> AsyncGenerator[ObjectInfo, None]:
        """Yield objects in key order, reading one folder at a time."""
        below = checked_prefix(prefix)
        walk = self._tree.walk(below.split("/") if below else [], after)
        while page := await in_thread(_page, walk):
            for entry in page:
                yield _info(entry)

    async def copy(self, source: str, target: str, *, only_if_absent: bool = False) -> ObjectInfo:
        """Copy an object, within the kernel if the file system supports that."""
        info = await self.head(source)
        placing = Placing(checked(target), info.content_type, only_if_absent)
        return await in_thread(self._copy, source, placing)

    def _copy(self, source: str, placing: Placing) -> ObjectInfo:
        number, name = self._tree.create(TEMPORARY)
        try:
            with (
                os.fdopen(self._tree.open(source), "rb") as old,
                os.fdopen(number, "wb") as new,
                known_errors(f"copy {source}"),
            ):
                if not _copied_by_kernel(old.fileno(), number):
                    shutil.copyfileobj(old, new, PIECE_BYTES)
                new.flush()
                os.fsync(number)
            return self._place((TEMPORARY,), name, placing)
        except BaseException:
            self._forget(name)
            raise

    async def delete(self, *keys: str) -> None:
        """Delete existing objects and the folders left empty."""
        for key in keys:
            checked(key)
        await in_thread(self._delete, keys)

    def _delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with self._tree.lock(key):
                self._tree.remove(key)
                self._tree.remove(_beside(key))

    def open_reader(self, key: str) -> BinaryIO:
        """Open the object's file for reading."""
        return os.fdopen(self._tree.open(checked(key)), "rb", buffering=256 * 1024)

    async def begin_multipart(self, key: str, *, part_bytes: int, content_type: str | None = None) -> Upload:
        """Begin a multipart upload: one data file, with each part at a fixed offset."""
        kind = checked_type(content_type, checked(key))
        return await in_thread(self._uploads.begin, key, part_bytes, kind)

    async def find_upload(self, key: str, upload_id: str) -> Upload:
        """Return an open upload by id; raises UploadNotFound."""
        return await in_thread(self._uploads.find, key, upload_id)

    async def put_part(self, upload: Upload, number: int, data: Data) -> Part:
        """Write a part at its offset in the upload's file."""
        return await self._uploads.put_part(upload, number, data)

    async def list_parts(self, upload: Upload) -> Sequence[Part]:
        """Return the parts that are synced to disk, in order of number."""
        return await in_thread(self._uploads.parts, upload)

    async def complete_multipart(
        self, upload: Upload, parts: Sequence[Part] | None = None, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Rename the upload's file to the key, without copying bytes."""
        return await in_thread(self._complete, upload, parts, only_if_absent)

    def _complete(self, upload: Upload, parts: Sequence[Part] | None, only_if_absent: bool) -> ObjectInfo:  # noqa: FBT001
        with self._uploads.whole(upload, parts) as (own_upload, folders):
            placing = Placing(own_upload.key, own_upload.content_type, only_if_absent)
            return self._place(folders, "data", placing)

    async def abort_multipart(self, upload: Upload) -> None:
        """Delete the upload's folder."""
        await in_thread(self._uploads.drop, upload)


def etag_of(status: os.stat_result) -> str:
    """Return the etag of a file, built from inode, modification time and size: each write makes a new file."""
    return f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'


def _info(entry: Entry, content_type: str = "") -> ObjectInfo:
    status = entry.stat
    return ObjectInfo(entry.key, status.st_size, etag_of(status), status.st_mtime_ns // 1_000_000, content_type)


def _beside(key: str) -> str:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"{OWN}/types/{digest[:2]}/{digest}"


def _page(walk: Iterator[Entry]) -> list[Entry]:
    with known_errors("list"):
        return list(islice(walk, PAGE))


def _read(number: int, size: int, start: int) -> bytes:
    with known_errors("read"):
        return os.pread(number, size, start)


def _write(number: int, piece: bytes) -> None:
    rest = memoryview(piece)
    with known_errors("write"):
        while rest:
            rest = rest[os.write(number, rest) :]


def _sync(number: int) -> None:
    with known_errors("write"):
        os.fsync(number)


def _copied_by_kernel(source: int, target: int) -> bool:
    """Copy a file with copy_file_range; returns False if the file system lacks support and the caller must copy."""
    if not hasattr(os, "copy_file_range"):
        return False
    total = 0
    size = os.fstat(source).st_size
    try:
        while total < size:
            count = os.copy_file_range(source, target, size - total, total, total)
            if not count:
                break
            total += count
    except OSError as error:
        if total or error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        return False
    return total == size
