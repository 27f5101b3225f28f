"""`Objects`: one interface to object storage in a folder, an S3 bucket or memory.

A storage class implements the abstract methods; this class builds the remaining methods from these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from . import transfer
from .errors import InvalidKey, ObjectNotFound, ObjectsUnavailable
from .keys import checked_prefix
from .records import Fetched, ObjectInfo, Part, Signed, Upload

Data = bytes | AsyncIterable[bytes]
Progress = Callable[[int, int], None]
AT_ONCE = 1_000


class Objects(ABC):
    """Objects by key. Every method raises ObjectsError; ObjectsUnavailable if the storage cannot be reached."""

    place: str
    """The location of the objects, for people to read; contains no secret."""

    origin: str = ""
    """The origin of signed URLs, as `https://host:port`; '' for URLs of Callsheet's own server."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r})"

    @abstractmethod
    async def close(self) -> None:
        """Close connections and files. Calling twice is allowed."""

    @abstractmethod
    async def put(
        self,
        key: str,
        data: Data,
        *,
        content_type: str | None = None,
        only_if_absent: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Write an object atomically. Raises ObjectExists, or ObjectChanged if the etag differs from `if_match`."""

    @abstractmethod
    async def head(self, key: str) -> ObjectInfo:
        """Return an object's size, etag, time and content type; raises ObjectNotFound."""

    @abstractmethod
    def stream(
        self, key: str, *, start: int = 0, end: int | None = None, if_match: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes from `start` up to `end` (excluded). Raises ObjectChanged if the etag is not `if_match`."""

    @abstractmethod
    def list(self, prefix: str = "", *, after: str = "") -> AsyncGenerator[ObjectInfo, None]:
        """Yield each object below the folder `prefix` once; `after` is a key of an earlier list to continue behind.

        Objects come in byte order of their keys; only some S3 imitations list folder by folder.
        """

    @abstractmethod
    async def copy(self, source: str, target: str, *, only_if_absent: bool = False) -> ObjectInfo:
        """Copy an object with its content type; raises ObjectNotFound, ObjectExists."""

    @abstractmethod
    async def delete(self, *keys: str) -> None:
        """Delete objects; a missing key is no error."""

    @abstractmethod
    def open_reader(self, key: str) -> BinaryIO:
        """Open an object as a seekable file, for libraries that read files. Reads block: use the file in a thread."""

    @abstractmethod
    async def sign_get(self, key: str, expires_s: int, *, download_name: str | None = None) -> Signed:
        """Sign a URL for reading the object without credentials; browsers save the object as `download_name`."""

    @abstractmethod
    async def sign_put(
        self,
        key: str,
        expires_s: int,
        *,
        content_type: str | None = None,
        size_bytes: int | None = None,
        bound_to: str = "",
    ) -> Signed:
        """Sign a URL for writing the object without credentials, with exactly this content type and size if given.

        `bound_to` names an upload or an attempt: Callsheet's own server refuses the write once that has ended.
        An S3 cannot check `bound_to`: copy an object that must not change from such a key to another key.
        """

    @abstractmethod
    async def begin_multipart(self, key: str, *, part_bytes: int, content_type: str | None = None) -> Upload:
        """Begin a multipart upload; all parts but the last have `part_bytes`. The object appears on completion."""

    @abstractmethod
    async def sign_part(
        self, upload: Upload, number: int, expires_s: int, *, size_bytes: int | None = None, bound_to: str = ""
    ) -> Signed:
        """Sign a URL for writing one part (1 to 10,000) without credentials; sign again after expiry."""

    @abstractmethod
    async def put_part(self, upload: Upload, number: int, data: Data) -> Part:
        """Write one part; writing the same number again replaces the part. Raises UploadNotFound, ObjectTooLarge."""

    @abstractmethod
    async def list_parts(self, upload: Upload) -> Sequence[Part]:
        """Return the completely written parts in order of number; raises UploadNotFound."""

    @abstractmethod
    async def complete_multipart(
        self, upload: Upload, parts: Sequence[Part] | None = None, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Join `parts`, or all written parts if None, to the object. Raises UploadIncomplete, UploadNotFound."""

    @abstractmethod
    async def abort_multipart(self, upload: Upload) -> None:
        """Delete an upload and its parts; an unknown upload is no error."""

    async def put_file(
        self,
        key: str,
        path: Path | str,
        *,
        content_type: str | None = None,
        only_if_absent: bool = False,
        progress: Progress | None = None,
    ) -> Fetched:
        """Write a local file in bounded memory. Calls `progress` with the bytes sent and the total bytes."""
        return await transfer.put_file(self, key, Path(path), transfer.Sending(content_type, only_if_absent, progress))

    async def get_file(
        self, key: str, path: Path | str, *, max_bytes: int | None = None, progress: Progress | None = None
    ) -> Fetched:
        """Download an object to a file in bounded memory, by way of `path` + ".part".

        After a broken connection the download resumes at the last byte; so does a second call, unless the object
        changed. Raises ObjectTooLarge at the first sign of more than `max_bytes`.
        """
        return await transfer.get_file(self, key, Path(path), transfer.Taking(max_bytes, progress))

    async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return all bytes of an object; raises ObjectTooLarge."""
        return await transfer.collect(self.stream(key), key, max_bytes)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end` (excluded), fewer at the end of the object."""
        return b"".join([chunk async for chunk in self.stream(key, start=start, end=end)])

    async def exists(self, key: str) -> bool:
        """Return whether the key has an object."""
        try:
            await self.head(key)
        except ObjectNotFound:
            return False
        return True

    async def delete_prefix(self, prefix: str) -> int:
        """Delete all objects below a folder and return their number. Raises InvalidKey for the prefix ''."""
        if not checked_prefix(prefix):
            raise InvalidKey("name the folder whose objects are to be removed")
        count, before = 0, ""
        while some := [info.key async for info in _first(self.list(prefix), AT_ONCE)]:
            if some[0] == before:
                raise ObjectsUnavailable(f"delete {before}: it is still there")
            await self.delete(*some)
            count, before = count + len(some), some[0]
        return count


async def _first(items: AsyncIterator[ObjectInfo], most: int) -> AsyncGenerator[ObjectInfo, None]:
    count = 0
    async for item in items:
        yield item
        count += 1
        if count == most:
            return
