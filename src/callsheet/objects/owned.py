"""`OwnedObjects`: object storage for one job. Every method first checks that the key belongs to the job's requester.

Tasks get no other access to objects, so a payload that names another tenant's key reads nothing. A job may read its
tenant's uploads and outputs, the files of the tenant's jobs and videos, and the `shared/` folder; a job may write its
tenant's outputs and its own files. A contract that has checked another owner (a video's row) calls `with_folders`.
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
    """Finds the owner of a job or a video. None means an unknown job or video, or an owner unknown to this process."""

    async def of_job(self, job_id: str) -> str | None:
        """Return the requester id of a job, None for an unknown job."""
        ...

    async def of_video(self, video_id: str) -> str | None:
        """Return the requester id of a video's owner, None for an unknown video."""
        ...


class Holder(NamedTuple):
    """The requester whose objects are accessible, and its running job (`job_id` is '' outside a job).

    The holder may also read and write `folders`, and read `readable`: a contract has checked the folders' owner.
    `payer` is the requester whose quota counts the bytes of `folders`, if not the holder's own.
    """

    requester_id: str
    job_id: str = ""
    folders: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    payer: str | None = None


Opens = Callable[[], Awaitable[Objects]]


class Source(NamedTuple):
    """The storage behind OwnedObjects. `opens` returns the storage for the running loop; `open_reader` uses `loop`.

    `counter` counts written bytes; None if written bytes are not counted.
    """

    opens: Opens
    owners: Owners
    loop: asyncio.AbstractEventLoop
    counter: Counter | None = None


class OwnedObjects(Objects):
    """The objects that one holder may use. Every method raises ObjectNotOwned for a key of another requester."""

    def __init__(self, source: Source, holder: Holder) -> None:
        self.place = f"the objects of {folder_of(holder.requester_id)}"
        self._source = source
        self._holder = holder

    async def may_read(self, key: str) -> bool:
        """Return whether the holder may read a key, or list a folder of keys; raises InvalidKey for a malformed key."""
        decision = self._allowed_by_key(checked(key))
        return await self._looked_up(key) if decision is None else decision

    def may_write(self, key: str) -> bool:
        """Return whether the holder may write a key; raises InvalidKey for a malformed key."""
        checked(key)
        own = any(key.startswith(f"{folder}/") for folder in self._own_folders)
        return own or any(is_below(key, folder) for folder in self._holder.folders)

    @property
    def _own_folders(self) -> tuple[str, ...]:
        outputs, job_id = outputs_of(self._holder.requester_id), self._holder.job_id
        return (outputs, f"{JOBS}/{job_id}") if job_id else (outputs,)

    def _allowed_by_key(self, key: str) -> bool | None:
        """Decide by the key's text whether the holder may read it; None if the owner requires a database lookup."""
        holder, owner = self._holder, named_by(key)
        if any(is_below(key, folder) for folder in (*holder.folders, *holder.readable)):
            return True
        match owner.kind:
            case "tenant":
                return owner.id == folder_of(holder.requester_id)
            case "job" if owner.id == holder.job_id:
                return True
            case "job" | "video":
                return None
        return owner.kind == "shared"

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
        """Return the Bill of the requester whose quota counts the bytes of a key."""
        holder = self._holder
        others = any(is_below(key, folder) for folder in holder.folders)
        return Bill(self._source.counter, holder.payer if others and holder.payer else holder.requester_id)

    def _refusal(self, doing: str, key: str) -> ObjectNotOwned:
        own = self._own_folders
        folders = (uploads_of(self._holder.requester_id), *own, SHARED) if doing == "read" else own
        own_folders = ", ".join(f"{folder}/" for folder in folders)
        return ObjectNotOwned(
            f"{doing} {key[:200]}: it is no object of this job's requester; name one below {own_folders}"
        )

    def _waited_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the source's event loop and block for its result, for `open_reader`."""
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
        """Write an object to a key of the holder; raises ObjectNotOwned, QuotaExceeded."""
        raw = await self._writable(key)
        async with self._bill(key).writing(raw, key, length_of(data)) as writing:
            body = writing.charging(data)
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
        """Write a local file to a key of the holder; raises ObjectNotOwned, QuotaExceeded."""
        raw = await self._writable(key)
        async with self._bill(key).writing(raw, key, (await in_thread(Path(path).stat)).st_size) as writing:
            result = await raw.put_file(
                key, path, content_type=content_type, only_if_absent=only_if_absent, progress=progress
            )
        await writing.settle(result.info.size_bytes)
        return result

    async def get_file(
        self, key: str, path: Path | str, *, max_bytes: int | None = None, progress: Progress | None = None
    ) -> Fetched:
        """Download an object to a local file; raises ObjectNotOwned for another requester's key."""
        return await (await self._readable(key)).get_file(key, path, max_bytes=max_bytes, progress=progress)

    async def head(self, key: str) -> ObjectInfo:
        """Return an object's size, etag and content type; raises ObjectNotOwned for another requester's key."""
        return await (await self._readable(key)).head(key)

    async def stream(
        self, key: str, *, start: int = 0, end: int | None = None, if_match: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield an object's bytes; raises ObjectNotOwned for another requester's key."""
        raw = await self._readable(key)
        async with contextlib.aclosing(raw.stream(key, start=start, end=end, if_match=if_match)) as pieces:
            async for piece in pieces:
                yield piece

    async def list(self, prefix: str = "", *, after: str = "") -> AsyncGenerator[ObjectInfo, None]:
        """List the objects below a folder; raises ObjectNotOwned for another requester's folder, or the prefix ''."""
        folder = prefix.removesuffix("/")
        if not folder:
            raise self._refusal("read", "/")
        raw = await self._readable(folder)
        async with contextlib.aclosing(raw.list(folder, after=after)) as infos:
            async for info in infos:
                yield info

    async def copy(self, source: str, target: str, *, only_if_absent: bool = False) -> ObjectInfo:
        """Copy an object from a readable key to a writable key; raises ObjectNotOwned, QuotaExceeded."""
        await self._readable(source)
        raw = await self._writable(target)
        async with self._bill(target).writing(raw, target, (await raw.head(source)).size_bytes) as writing:
            info = await raw.copy(source, target, only_if_absent=only_if_absent)
        await writing.settle(info.size_bytes)
        return info

    async def delete(self, *keys: str) -> None:
        """Delete objects of the holder and subtract their bytes from the requester's count."""
        raw = await self._writable(*keys)
        for bill, some in itertools.groupby(keys, self._bill):
            await bill.delete(raw, list(some))

    def open_reader(self, key: str) -> BinaryIO:
        """Open an object as a seekable file. Reads block: use the file in a thread."""
        return self._waited_for(self._readable(key)).open_reader(key)

    async def sign_get(self, key: str, expires_s: int, *, download_name: str | None = None) -> Signed:
        """Sign a download URL; raises ObjectNotOwned for another requester's key."""
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
        """Sign an upload URL; raises ObjectNotOwned for another requester's key."""
        raw = await self._writable(key)
        return await raw.sign_put(key, expires_s, content_type=content_type, size_bytes=size_bytes, bound_to=bound_to)

    async def begin_multipart(self, key: str, *, part_bytes: int, content_type: str | None = None) -> Upload:
        """Begin a multipart upload to a key of the holder."""
        return await (await self._writable(key)).begin_multipart(key, part_bytes=part_bytes, content_type=content_type)

    async def sign_part(
        self, upload: Upload, number: int, expires_s: int, *, size_bytes: int | None = None, bound_to: str = ""
    ) -> Signed:
        """Sign the URL of one part of the holder's multipart upload."""
        raw = await self._writable(upload.key)
        return await raw.sign_part(upload, number, expires_s, size_bytes=size_bytes, bound_to=bound_to)

    async def put_part(self, upload: Upload, number: int, data: Data) -> Part:
        """Write one part of the holder's multipart upload."""
        return await (await self._writable(upload.key)).put_part(upload, number, data)

    async def list_parts(self, upload: Upload) -> Sequence[Part]:
        """List the parts of the holder's multipart upload."""
        return await (await self._writable(upload.key)).list_parts(upload)

    async def complete_multipart(
        self, upload: Upload, parts: Sequence[Part] | None = None, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Join the parts of the holder's multipart upload to an object; raises QuotaExceeded."""
        raw = await self._writable(upload.key)
        size = sum(part.size_bytes for part in parts or await raw.list_parts(upload))
        async with self._bill(upload.key).writing(raw, upload.key, size) as writing:
            info = await raw.complete_multipart(upload, parts, only_if_absent=only_if_absent)
        await writing.settle(info.size_bytes)
        return info

    async def abort_multipart(self, upload: Upload) -> None:
        """Abort the holder's multipart upload."""
        await (await self._writable(upload.key)).abort_multipart(upload)


def with_folders(
    objects: OwnedObjects, folders: Sequence[str] = (), *, readable: Sequence[str] = (), payer: str | None = None
) -> OwnedObjects:
    """Return the objects with access to more folders. Only contracts may call this, after checking the folders' owner.

    Bytes written to `folders` count against the quota of `payer`, else against the job's requester.
    """
    holder = objects._holder  # noqa: SLF001 - of this module
    more = holder._replace(
        folders=(*holder.folders, *folders), readable=(*holder.readable, *readable), payer=payer or holder.payer
    )
    return OwnedObjects(objects._source, more)  # noqa: SLF001
