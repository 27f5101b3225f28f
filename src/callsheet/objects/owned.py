"""`OwnedObjects`: the objects as one job may use them. Each verb asks first whether the key belongs to its requester.

No task gets any other objects: what a payload names can then be a stranger's in its text alone. Reading: the tenant's
uploads and outputs, the files of its jobs and videos, and what operators share with all. Writing: the tenant's outputs,
and the files of the job itself. A contract that has checked more (a video's row) adds that with `with_folders`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from .counted import Bill, Counter, length_of
from .errors import ObjectNotOwned, ObjectsError
from .face import Data, Objects, Progress
from .folders import JOBS, SHARED, folder_of, is_below, named_by, outputs_of, uploads_of
from .keys import checked
from .records import Fetched, ObjectInfo, Part, Signed, Upload
from .threads import in_thread

LOOKUP_S = 60.0
T = TypeVar("T")


class Owners(Protocol):
    """Who knows whose a job or a video is. None: there is none such, or it cannot be known here."""

    async def of_job(self, job_id: str) -> str | None:
        """The requester of a job."""
        ...

    async def of_video(self, video_id: str) -> str | None:
        """The owner of a video."""
        ...


class Holder(NamedTuple):
    """For whom objects are bound: a requester, and the job that runs for it, '' outside of one.

    `folders` may be read and written beside these, `readable` only be read: a contract has looked at whose they are.
    `payer` is for whom the bytes of these folders are counted, where that is somebody else.
    """

    requester_id: str
    job_id: str = ""
    folders: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    payer: str | None = None


Opens = Callable[[], Awaitable[Objects]]


class Source(NamedTuple):
    """Where bound objects come from. `opens` finds the storage for the loop that asks; blocking verbs use `loop`.

    `counter` counts what is written; None where nothing is.
    """

    opens: Opens
    owners: Owners
    loop: asyncio.AbstractEventLoop
    counter: Counter | None = None


class OwnedObjects(Objects):
    """Objects that belong to somebody. Every verb raises ObjectNotOwned for a key that does not."""

    def __init__(self, source: Source, holder: Holder) -> None:
        self.place = f"the objects of {folder_of(holder.requester_id)}"
        self._source = source
        self._holder = holder

    async def may_read(self, key: str) -> bool:
        """Whether the holder may read a key, or list a folder of keys; raises InvalidKey for what is no key."""
        known = self._known(checked(key))
        return await self._looked_up(key) if known is None else known

    def may_write(self, key: str) -> bool:
        """Whether the holder may write a key; raises InvalidKey for what is no key."""
        checked(key)
        own = any(key.startswith(f"{folder}/") for folder in self._own_folders)
        return own or any(is_below(key, folder) for folder in self._holder.folders)

    @property
    def _own_folders(self) -> tuple[str, ...]:
        outputs, job_id = outputs_of(self._holder.requester_id), self._holder.job_id
        return (outputs, f"{JOBS}/{job_id}") if job_id else (outputs,)

    def _known(self, key: str) -> bool | None:
        """Whether a key may be read by its text alone; None when somebody has to be asked whose it is."""
        holder, named = self._holder, named_by(key)
        if any(is_below(key, folder) for folder in (*holder.folders, *holder.readable)):
            return True
        match named.kind:
            case "tenant":
                return named.id == folder_of(holder.requester_id)
            case "job" if named.id == holder.job_id:
                return True
            case "job" | "video":
                return None
        return named.kind == "shared"

    async def _looked_up(self, key: str) -> bool:
        named, owners = named_by(key), self._source.owners
        owner = await (owners.of_job(named.id) if named.kind == "job" else owners.of_video(named.id))
        return owner == self._holder.requester_id

    async def _readable(self, key: str) -> Objects:
        if not await self.may_read(key):
            raise self._refusal("read", key)
        return await self._source.opens()

    async def _writable(self, *keys: str) -> Objects:
        for key in keys:
            if not self.may_write(key):
                raise self._refusal("write", key)
        return await self._source.opens()

    def _bill(self, key: str) -> Bill:
        """For whom a key that is written is counted."""
        holder = self._holder
        others = any(is_below(key, folder) for folder in holder.folders)
        return Bill(self._source.counter, holder.payer if others and holder.payer else holder.requester_id)

    def _refusal(self, doing: str, key: str) -> ObjectNotOwned:
        own = self._own_folders
        folders = (uploads_of(self._holder.requester_id), *own, SHARED) if doing == "read" else own
        allowed = ", ".join(f"{folder}/" for folder in folders)
        return ObjectNotOwned(f"{doing} {key[:200]}: it is no object of this job's requester; name one below {allowed}")

    def _waited_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work on the loop, for verbs that block."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(work, self._source.loop).result(LOOKUP_S)
        work.close()
        raise ObjectsError("open_reader blocks: call it in a thread, as with asyncio.to_thread")

    async def close(self) -> None:
        """Do nothing: the storage belongs to the app, which closes it."""

    async def put(
        self,
        key: str,
        data: Data,
        *,
        content_type: str | None = None,
        only_if_absent: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Write an object of the holder's."""
        raw = await self._writable(key)
        async with self._bill(key).writing(raw, key, length_of(data)) as writing:
            body = writing.checked(data)
            info = await raw.put(key, body, content_type=content_type, only_if_absent=only_if_absent, if_match=if_match)
        await writing.settle(info.size_bytes)
        return info

    async def put_file(
        self,
        key: str,
        path: Path | str,
        *,
        content_type: str | None = None,
        only_if_absent: bool = False,
        progress: Progress | None = None,
    ) -> Fetched:
        """Write a file of this machine as an object of the holder's."""
        raw = await self._writable(key)
        async with self._bill(key).writing(raw, key, (await in_thread(Path(path).stat)).st_size) as writing:
            fetched = await raw.put_file(
                key, path, content_type=content_type, only_if_absent=only_if_absent, progress=progress
            )
        await writing.settle(fetched.info.size_bytes)
        return fetched

    async def get_file(
        self, key: str, path: Path | str, *, max_bytes: int | None = None, progress: Progress | None = None
    ) -> Fetched:
        """Read an object that the holder may have into a file."""
        return await (await self._readable(key)).get_file(key, path, max_bytes=max_bytes, progress=progress)

    async def head(self, key: str) -> ObjectInfo:
        """An object that the holder may have, without its bytes."""
        return await (await self._readable(key)).head(key)

    async def stream(
        self, key: str, *, start: int = 0, end: int | None = None, if_match: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of an object that the holder may have."""
        raw = await self._readable(key)
        async with contextlib.aclosing(raw.stream(key, start=start, end=end, if_match=if_match)) as pieces:
            async for piece in pieces:
                yield piece

    async def list(self, prefix: str = "", *, after: str = "") -> AsyncGenerator[ObjectInfo, None]:
        """The objects below a folder that the holder may have; all folders at once are never its own."""
        folder = prefix.removesuffix("/")
        if not folder:
            raise self._refusal("read", "/")
        raw = await self._readable(folder)
        async with contextlib.aclosing(raw.list(folder, after=after)) as found:
            async for info in found:
                yield info

    async def copy(self, source: str, target: str, *, only_if_absent: bool = False) -> ObjectInfo:
        """Copy what the holder may read to where it may write."""
        await self._readable(source)
        raw = await self._writable(target)
        async with self._bill(target).writing(raw, target, (await raw.head(source)).size_bytes) as writing:
            info = await raw.copy(source, target, only_if_absent=only_if_absent)
        await writing.settle(info.size_bytes)
        return info

    async def delete(self, *keys: str) -> None:
        """Remove objects of the holder's."""
        raw = await self._writable(*keys)
        for bill, some in itertools.groupby(keys, self._bill):
            await bill.delete(raw, list(some))

    def open_reader(self, key: str) -> BinaryIO:
        """A seekable file of an object that the holder may have. It blocks: use it in a thread."""
        return self._waited_for(self._readable(key)).open_reader(key)

    async def sign_get(self, key: str, expires_s: int, *, download_name: str | None = None) -> Signed:
        """A URL for an object that the holder may have."""
        return await (await self._readable(key)).sign_get(key, expires_s, download_name=download_name)

    async def sign_put(
        self,
        key: str,
        expires_s: int,
        *,
        content_type: str | None = None,
        size_bytes: int | None = None,
        bound_to: str = "",
    ) -> Signed:
        """A URL that writes an object of the holder's."""
        raw = await self._writable(key)
        return await raw.sign_put(key, expires_s, content_type=content_type, size_bytes=size_bytes, bound_to=bound_to)

    async def begin_multipart(self, key: str, *, part_bytes: int, content_type: str | None = None) -> Upload:
        """Open an upload to an object of the holder's."""
        return await (await self._writable(key)).begin_multipart(key, part_bytes=part_bytes, content_type=content_type)

    async def sign_part(
        self, upload: Upload, number: int, expires_s: int, *, size_bytes: int | None = None, bound_to: str = ""
    ) -> Signed:
        """A URL for one part of an upload of the holder's."""
        raw = await self._writable(upload.key)
        return await raw.sign_part(upload, number, expires_s, size_bytes=size_bytes, bound_to=bound_to)

    async def put_part(self, upload: Upload, number: int, data: Data) -> Part:
        """Write one part of an upload of the holder's."""
        return await (await self._writable(upload.key)).put_part(upload, number, data)

    async def list_parts(self, upload: Upload) -> Sequence[Part]:
        """The parts of an upload of the holder's."""
        return await (await self._writable(upload.key)).list_parts(upload)

    async def complete_multipart(
        self, upload: Upload, parts: Sequence[Part] | None = None, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Make an object of the holder's of its parts."""
        raw = await self._writable(upload.key)
        size = sum(part.size_bytes for part in parts or await raw.list_parts(upload))
        async with self._bill(upload.key).writing(raw, upload.key, size) as writing:
            info = await raw.complete_multipart(upload, parts, only_if_absent=only_if_absent)
        await writing.settle(info.size_bytes)
        return info

    async def abort_multipart(self, upload: Upload) -> None:
        """Drop an upload of the holder's."""
        await (await self._writable(upload.key)).abort_multipart(upload)


def with_folders(
    objects: OwnedObjects, folders: Sequence[str] = (), *, readable: Sequence[str] = (), payer: str | None = None
) -> OwnedObjects:
    """The same objects with more folders. For contracts alone, once they have looked at whose these are.

    What is written to the folders is counted for `payer`, else for the job's requester.
    """
    holder = objects._holder  # noqa: SLF001 - of this module
    more = holder._replace(
        folders=(*holder.folders, *folders), readable=(*holder.readable, *readable), payer=payer or holder.payer
    )
    return OwnedObjects(objects._source, more)  # noqa: SLF001
