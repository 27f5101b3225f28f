"""`Objects`: one face over a folder, S3 and memory. What the storages do differently is hidden behind it.

A storage brings the verbs that are abstract here; the others are made of them.
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
    """Objects under keys. Every verb raises ObjectsError; `ObjectsUnavailable` where the storage cannot be reached."""

    place: str
    """Where the objects are, for people: no secret is in it."""

    origin: str = ""
    """Where signed URLs lead to, as `https://host:port`; empty when that is our own server."""

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
        """Let go of connections and files. May be called twice."""

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
        """Write an object, whole or not at all. Raises ObjectExists, or ObjectChanged when its etag is another."""

    @abstractmethod
    async def head(self, key: str) -> ObjectInfo:
        """An object without its bytes; raises ObjectNotFound."""

    @abstractmethod
    def stream(
        self, key: str, *, start: int = 0, end: int | None = None, if_match: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` up to `end` (excluded). Raises ObjectChanged when its etag is another."""

    @abstractmethod
    def list(self, prefix: str = "", *, after: str = "") -> AsyncGenerator[ObjectInfo, None]:
        """All objects below the folder `prefix`, each once; with `after`, those behind a key that a list gave.

        They come in the order of their keys' bytes; only some imitations of S3 go folder by folder.
        """

    @abstractmethod
    async def copy(self, source: str, target: str, *, only_if_absent: bool = False) -> ObjectInfo:
        """Copy an object with its content type; raises ObjectNotFound, ObjectExists."""

    @abstractmethod
    async def delete(self, *keys: str) -> None:
        """Remove objects; one that is missing is no error."""

    @abstractmethod
    def open_reader(self, key: str) -> BinaryIO:
        """A seekable file of an object for libraries that read by themselves. It blocks: use it in a thread."""

    @abstractmethod
    async def sign_get(self, key: str, expires_s: int, *, download_name: str | None = None) -> Signed:
        """A URL that anybody may read the object with; as a download under a name when one is given."""

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
        """A URL that anybody may write the object with: of exactly this type and size where they are given.

        `bound_to` names an upload or an attempt that has to be open still; our own server asks for it at each write.
        An S3 cannot: what must not change is copied from such a key to another one.
        """

    @abstractmethod
    async def begin_multipart(self, key: str, *, part_bytes: int, content_type: str | None = None) -> Upload:
        """Open an upload of parts, all but the last of `part_bytes`. Nothing is under the key until it is complete."""

    @abstractmethod
    async def sign_part(
        self, upload: Upload, number: int, expires_s: int, *, size_bytes: int | None = None, bound_to: str = ""
    ) -> Signed:
        """A URL that anybody may write one part with (1 to 10,000); ask again when it is too old."""

    @abstractmethod
    async def put_part(self, upload: Upload, number: int, data: Data) -> Part:
        """Write one part; a second time replaces it. Raises UploadNotFound, ObjectTooLarge."""

    @abstractmethod
    async def list_parts(self, upload: Upload) -> Sequence[Part]:
        """The parts that arrived whole, in order; raises UploadNotFound."""

    @abstractmethod
    async def complete_multipart(
        self, upload: Upload, parts: Sequence[Part] | None = None, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Make the object of these parts, or of all that arrived. Raises UploadIncomplete, UploadNotFound."""

    @abstractmethod
    async def abort_multipart(self, upload: Upload) -> None:
        """Drop an upload and its parts; one that is gone is no error."""

    async def put_file(
        self,
        key: str,
        path: Path | str,
        *,
        content_type: str | None = None,
        only_if_absent: bool = False,
        progress: Progress | None = None,
    ) -> Fetched:
        """Write a file of this machine in bounded memory. `progress` gets the bytes done and all bytes."""
        return await transfer.put_file(self, key, Path(path), transfer.Sending(content_type, only_if_absent, progress))

    async def get_file(
        self, key: str, path: Path | str, *, max_bytes: int | None = None, progress: Progress | None = None
    ) -> Fetched:
        """Read an object into a file, in bounded memory, by way of `path` + ".part".

        A connection that breaks goes on where it broke; so does a second call, while the object is the same.
        Raises ObjectTooLarge as soon as that is known.
        """
        return await transfer.get_file(self, key, Path(path), transfer.Taking(max_bytes, progress))

    async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """All bytes of an object; raises ObjectTooLarge."""
        return await transfer.collected(self.stream(key), key, max_bytes)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end` (excluded), fewer at the end of the object."""
        return b"".join([chunk async for chunk in self.stream(key, start=start, end=end)])

    async def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        try:
            await self.head(key)
        except ObjectNotFound:
            return False
        return True

    async def delete_prefix(self, prefix: str) -> int:
        """Remove all objects below a folder; how many. All objects at once are never meant: InvalidKey."""
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
