"""Uploads of files and downloads to files: streamed, hashed with SHA-256, and resumed after a broken connection."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from callsheet.net.backoff import pause_after

from .errors import ObjectChanged, ObjectsUnavailable, ObjectTooLarge
from .records import Fetched, ObjectInfo
from .threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined] # Python 3.12

    from obstore import ReadableFile

    from .face import Objects


PIECE_BYTES = 2 * 1024 * 1024
TRIES = 6  # in a row without a single byte
CHANGES = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


class Sending(NamedTuple):
    """Options of an upload: content type, write condition, progress callback."""

    content_type: str | None
    only_if_absent: bool
    progress: Callable[[int, int], None] | None


class Taking(NamedTuple):
    """Options of a download: size limit, progress callback."""

    max_bytes: int | None
    progress: Callable[[int, int], None] | None


class FilePieces:
    """A file as an async iterable of bytes with a size; raises ObjectChanged if the size changes while reading."""

    def __init__(self, file: BinaryIO, size_bytes: int, progress: Callable[[int, int], None] | None) -> None:
        self.size_bytes = size_bytes
        self.sha256 = hashlib.sha256()
        self._file = file
        self._progress = progress

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        total = 0
        while piece := await in_thread(self._next):
            total += len(piece)
            if total > self.size_bytes:
                break
            yield piece
            if self._progress is not None:
                self._progress(total, self.size_bytes)
        if total != self.size_bytes:
            raise ObjectChanged("the file changed its size while it was sent")

    def _next(self) -> bytes:
        piece = self._file.read(PIECE_BYTES)
        self.sha256.update(piece)
        return piece


async def put_file(objects: Objects, key: str, path: Path, how: Sending) -> Fetched:
    """Upload a file to a key; returns the object, the SHA-256 and the file's size."""
    with path.open("rb", buffering=0) as file:
        pieces = FilePieces(file, os.fstat(file.fileno()).st_size, how.progress)
        info = await objects.put(key, pieces, content_type=how.content_type, only_if_absent=how.only_if_absent)
    return Fetched(info, pieces.sha256.hexdigest(), pieces.size_bytes)


async def collect(stream: AsyncIterator[bytes], key: str, max_bytes: int | None) -> bytes:
    """Return all bytes of a stream; raises ObjectTooLarge beyond `max_bytes`."""
    pieces: list[bytes] = []
    count = 0
    async for piece in stream:
        pieces.append(piece)
        count += len(piece)
        if max_bytes is not None and count > max_bytes:
            raise ObjectTooLarge(f"{key} has more than {max_bytes} bytes")
    return b"".join(pieces)


async def get_file(objects: Objects, key: str, path: Path, how: Taking) -> Fetched:
    """Download an object to a file. The part file stays on disk if the storage fails or the caller is cancelled."""
    moved_bytes, changes = 0, 0
    while True:
        info = await objects.head(key)
        _check(info, how.max_bytes)
        partial = await in_thread(Partial.open, path, info)
        try:
            moved_bytes += await _follow(objects, info, partial, how)
        except ObjectChanged:
            changes += 1
            if changes == CHANGES:
                raise
        except ObjectTooLarge:
            await in_thread(partial.drop)
            raise
        else:
            return Fetched(info, await in_thread(partial.finish), moved_bytes)
        finally:
            partial.close()


async def _follow(objects: Objects, info: ObjectInfo, partial: Partial, how: Taking) -> int:
    """Download the missing bytes to the part file; returns the number of bytes received."""
    tries, start = 0, partial.done
    while True:
        before = partial.done
        try:
            async with contextlib.aclosing(_rest(objects, info, partial)) as rest:
                async for piece in rest:
                    await in_thread(partial.add, piece)
                    _check(info._replace(size_bytes=partial.done), how.max_bytes)
                    if how.progress is not None:
                        how.progress(partial.done, info.size_bytes)
        except ObjectsUnavailable as error:
            cut = error
        else:
            cut = ObjectsUnavailable(f"get {info.key}: it broke off")
        if partial.done == info.size_bytes:
            return partial.done - start
        tries = 1 if partial.done > before else tries + 1
        if tries == TRIES:
            raise cut
        await asyncio.sleep(pause_after(tries, FIRST_PAUSE_S, LONGEST_PAUSE_S, jitter=0.5))


async def _rest(objects: Objects, info: ObjectInfo, partial: Partial) -> AsyncGenerator[bytes, None]:
    if partial.done < info.size_bytes:
        async for piece in objects.stream(info.key, start=partial.done, if_match=info.etag):
            yield piece


def _check(info: ObjectInfo, max_bytes: int | None) -> None:
    if max_bytes is not None and info.size_bytes > max_bytes:
        raise ObjectTooLarge(f"{info.key} has {info.size_bytes} bytes or more, and {max_bytes} are allowed")


class Partial:
    """The downloaded beginning of an object: `path.part`, and `path.part.json` with the object's key, etag and size."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._sha256 = hashlib.sha256()
        self.done = 0

    @classmethod
    def open(cls, path: Path, info: ObjectInfo) -> Partial:
        """Open the part file; bytes of the same object version stay, bytes of another version are truncated."""
        note = {"key": info.key, "etag": info.etag, "size_bytes": info.size_bytes}
        same = _read_note(_beside(path)) == note
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if same else os.O_TRUNC)
        partial = cls(path, os.fdopen(os.open(_part(path), flags, 0o600), "r+b", buffering=0))
        try:
            _beside(path).write_text(json.dumps(note), "utf-8")
            while piece := partial._file.read(PIECE_BYTES):
                partial._count(piece)
        except BaseException:
            partial.close()
            raise
        return partial

    def add(self, piece: bytes) -> None:
        """Append bytes to the part file."""
        rest = memoryview(piece)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._count(piece)

    def _count(self, piece: bytes) -> None:
        self._sha256.update(piece)
        self.done += len(piece)

    def finish(self) -> str:
        """Rename the part file to the target path; returns the SHA-256."""
        self.close()
        _part(self._path).replace(self._path)
        _beside(self._path).unlink(missing_ok=True)
        return self._sha256.hexdigest()

    def drop(self) -> None:
        """Delete the part file and its JSON note."""
        self.close()
        _part(self._path).unlink(missing_ok=True)
        _beside(self._path).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the part file."""
        self._file.close()


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.part.json")


def _read_note(path: Path) -> object:
    try:
        return json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None


class _Raw(io.RawIOBase):
    """Adapts obstore's reader: returns Python bytes and raises ObjectsError."""

    def __init__(self, file: ReadableFile, error_of: Callable[[Exception], Exception]) -> None:
        super().__init__()
        self._file = file
        self._error_of = error_of

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        try:
            piece = self._file.read(len(memoryview(buffer)))
        except Exception as error:  # noqa: BLE001 - the driver's errors end here
            raise self._error_of(error) from None
        memoryview(buffer)[: len(piece)] = memoryview(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def object_reader(file: ReadableFile, error_of: Callable[[Exception], Exception]) -> BinaryIO:
    """Wrap obstore's reader in a buffer of 256 KiB, so that small reads and short seeks send no request."""
    return cast("BinaryIO", io.BufferedReader(_Raw(file, error_of), 256 * 1024))
