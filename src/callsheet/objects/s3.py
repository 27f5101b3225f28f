"""Objects in an S3 bucket, through obstore. Multipart uploads and signed URLs use `s3_uploads.py` and `s3_wire.py`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import obstore
from obstore.store import S3Store

from callsheet.net.sigv4 import quoted_path

from .credentials import HeldCredentials
from .errors import (
    ObjectChanged,
    ObjectNotFound,
    ObjectsError,
    ObjectsForbidden,
    ObjectTooLarge,
)
from .face import Data
from .keys import checked, checked_prefix, checked_type
from .records import MOST_PARTS, ObjectInfo, Part, Signed, Upload
from .s3_errors import is_range_beyond_the_end, of_driver
from .s3_wire import Bucket, Call, S3Uploads, Wire, conditions, part_query
from .signing import disposition
from .storage_breaker import StorageBreaker
from .threads import pieces, regroup
from .transfer import object_reader

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential

T = TypeVar("T")
MEBIBYTE = 1024 * 1024
PART_BYTES = 5 * MEBIBYTE  # of a stream whose size is known; S3 takes no smaller ones, and four are in memory
BLIND_PART_BYTES = 16 * MEBIBYTE  # of one whose size is not: 10,000 of them are 156 GiB
IN_FLIGHT = 4
PIECE_BYTES = MEBIBYTE
COPY_BYTES = 5 * 1024 * MEBIBYTE  # S3 copies no more in one request
COPY_PART_BYTES = 1024 * MEBIBYTE
ABORT_S = 10.0


class S3Objects(S3Uploads):
    """Objects in one bucket, below its prefix."""

    def __init__(
        self,
        bucket: Bucket,
        credentials: HeldCredentials,
        *,
        proxy_url: str | None = None,
        breaker: StorageBreaker | None = None,
    ) -> None:
        """`proxy_url` is a proxy for all connections. Instances may share a `breaker`; None creates a new breaker."""
        self.place = f"s3://{bucket.name}/{bucket.prefix}" + (f" at {bucket.endpoint}" if bucket.endpoint else "")
        self.origin = bucket.origin
        self._bucket = bucket
        self._credentials = credentials
        self._breaker = breaker or StorageBreaker()
        self._wire = Wire(bucket, credentials, self._breaker, proxy_url)
        proxy: ClientConfig = {"proxy_url": proxy_url} if proxy_url is not None else {}
        self._store = S3Store(
            bucket.name,
            prefix=bucket.prefix or None,
            endpoint=bucket.base,
            region=bucket.region,
            virtual_hosted_style_request=True,  # `base` has the bucket's name in it already
            client_options={
                "allow_http": bucket.base.startswith("http:"),
                "connect_timeout": "10s",
                "read_timeout": "60s",
                "timeout": "7d",  # of a whole answer: its default of 30 s would cut large ones
                **proxy,
            },
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
            credential_provider=self._for_obstore,
        )

    def _for_obstore(self) -> S3Credential:
        """Return the credentials as expiring now, so that obstore asks for each request and replacements apply."""
        held = self._credentials.current
        return {
            "access_key_id": held.access_key_id,
            "secret_access_key": held.secret_access_key,
            "token": held.session_token or None,
            "expires_at": datetime.now(UTC),
        }

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._wire.close()

    async def put(
        self,
        key: str,
        data: Data,
        *,
        content_type: str | None = None,
        only_if_absent: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Write a small object in one request, a large one as a multipart upload with four parts in flight."""
        kind = checked_type(content_type, checked(key))
        size = len(data) if isinstance(data, bytes) else getattr(data, "size_bytes", None)
        part_bytes = part_bytes_for(size)
        parts = regroup(pieces(data), part_bytes)
        async with contextlib.aclosing(parts):
            first = await anext(parts)
            second = await anext(parts, None) if len(first) == part_bytes else None
            if second is None:
                return await self._put_small(key, first, kind, _mode(only_if_absent, if_match))
            first_pieces = [first, second]
            del first, second  # they would be in memory until the end
            upload = await self.begin_multipart(key, part_bytes=part_bytes, content_type=kind)
            try:
                done_parts = await self._send(upload, _chain(first_pieces, parts))
                return await self._complete(upload, done_parts, conditions(only_if_absent, if_match))
            except BaseException:
                with contextlib.suppress(ObjectsError, TimeoutError):
                    async with asyncio.timeout(ABORT_S):
                        await self.abort_multipart(upload)
                raise

    async def _put_small(self, key: str, data: bytes, kind: str, mode: Any) -> ObjectInfo:
        try:
            await self._do(
                lambda: self._store.put_async(
                    key, data, attributes={"Content-Type": kind}, mode=mode, use_multipart=False
                ),
                f"put {key}",
            )
        except ObjectNotFound:  # a condition on one that is not there
            raise ObjectChanged(f"put {key}: it is not there any more") from None
        return await self.head(key)

    async def _send(self, upload: Upload, parts: AsyncIterable[bytes]) -> list[Part]:
        running: set[asyncio.Task[Part]] = set()
        done_parts: list[Part] = []
        number = 0
        try:
            async for piece in parts:
                number += 1
                if number > MOST_PARTS:
                    raise ObjectTooLarge(f"put {upload.key}: more than {MOST_PARTS} parts of {upload.part_bytes} bytes")
                running.add(asyncio.create_task(self.put_part(upload, number, piece)))
                del piece
                if len(running) == IN_FLIGHT:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    done_parts += [task.result() for task in done]
            done_parts += await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return sorted(done_parts)

    async def head(self, key: str) -> ObjectInfo:
        """Return an object's size, etag, time and content type; raises ObjectNotFound."""
        checked(key)
        doing = f"head {key}"
        try:
            result = await self._do(lambda: self._store.get_async(key, options={"head": True}), doing, unseen=True)
        except ObjectsForbidden as error:
            if error.provider_code:
                raise
            # An answer to HEAD has no body and so no error code: a GET of a byte tells it, and new keys are asked for.
            with contextlib.suppress(_BeyondTheEnd):
                await self._do(lambda: self._store.get_range_async(key, start=0, end=1), doing)
            result = await self._do(lambda: self._store.get_async(key, options={"head": True}), doing)
        return _info(result.meta, str(result.attributes.get("Content-Type", "")))

    async def stream(
        self, key: str, *, start: int = 0, end: int | None = None, if_match: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the object's bytes from one GET request."""
        checked(key)
        if end is not None and end <= start:
            return
        doing = f"get {key}"
        options: dict[str, Any] = {"if_match": if_match} if if_match else {}
        if start or end is not None:
            options["range"] = (start, end) if end is not None else {"offset": start}
        try:
            result = await self._do(lambda: self._store.get_async(key, options=cast("Any", options)), doing)
        except _BeyondTheEnd:
            return
        try:
            async for piece in result.stream(min_chunk_size=PIECE_BYTES):
                yield bytes(piece)
        except Exception as error:  # noqa: BLE001 - the driver's errors end here
            raise of_driver(error, doing) from None

    async def list(self, prefix: str = "", *, after: str = "") -> AsyncGenerator[ObjectInfo, None]:
        """List page by page; with renewed credentials the list continues behind the last key."""
        below = checked_prefix(prefix)
        doing, is_retry = f"list {below}", False
        while True:
            used = await self._credentials.fresh()
            try:
                async for page in self._store.list(below or None, offset=after or None, chunk_size=1000):
                    for meta in page:
                        after = meta["path"]
                        yield _info(meta)
            except Exception as error:  # noqa: BLE001 - likewise
                failure = of_driver(error, doing)
                if is_retry or not await self._credentials.cure(failure, used):
                    raise failure from None
                is_retry = True
            else:
                return

    async def copy(self, source: str, target: str, *, only_if_absent: bool = False) -> ObjectInfo:
        """Copy within the storage: one request, but parts for objects above 5 GiB and for `only_if_absent`."""
        info = await self.head(source)
        kind = checked_type(info.content_type or None, checked(target))
        if info.size_bytes and (only_if_absent or info.size_bytes > COPY_BYTES):
            upload = await self.begin_multipart(target, part_bytes=COPY_PART_BYTES, content_type=kind)
            try:
                for number, start in enumerate(range(0, info.size_bytes, COPY_PART_BYTES), 1):
                    await self._copy_part(upload, number, info, start)
                return await self.complete_multipart(upload, only_if_absent=only_if_absent)
            except BaseException:
                await self.abort_multipart(upload)
                raise
        if only_if_absent:
            return await self.put(target, b"", content_type=kind, only_if_absent=True)
        await self._do(lambda: self._store.copy_async(source, target), f"copy {source} to {target}")
        return await self.head(target)

    async def _copy_part(self, upload: Upload, number: int, info: ObjectInfo, start: int) -> None:
        last = min(start + COPY_PART_BYTES, info.size_bytes) - 1
        headers = {
            "x-amz-copy-source": f"/{self._bucket.name}/{quoted_path(self._bucket.whole(info.key))}",
            "x-amz-copy-source-if-match": info.etag,
            "x-amz-copy-source-range": f"bytes={start}-{last}",
        }
        await self._wire.ask(Call("PUT", upload.key, part_query(upload, number), headers), f"copy {info.key}")

    async def delete(self, *keys: str) -> None:
        """Delete up to 1,000 keys per request."""
        for key in keys:
            checked(key)
        for start in range(0, len(keys), 1000):
            some = list(keys[start : start + 1000])
            with contextlib.suppress(ObjectNotFound):
                await self._do(lambda some=some: self._store.delete_async(some), f"delete {some[0]}")  # type: ignore[misc]

    def open_reader(self, key: str) -> BinaryIO:
        """Open a seekable file that requests one mebibyte at a time."""
        checked(key)
        try:
            return object_reader(obstore.open_reader(self._store, key), lambda error: of_driver(error, f"read {key}"))
        except Exception as error:  # noqa: BLE001 - likewise
            raise of_driver(error, f"read {key}") from None

    async def sign_get(self, key: str, expires_s: int, *, download_name: str | None = None) -> Signed:
        """Sign a download URL of the storage."""
        query = {"response-content-disposition": disposition(download_name)} if download_name else {}
        return await self._sign(Call("GET", checked(key), query), expires_s)

    async def sign_put(
        self,
        key: str,
        expires_s: int,
        *,
        content_type: str | None = None,
        size_bytes: int | None = None,
        bound_to: str = "",  # noqa: ARG002 - the storage asks nobody
    ) -> Signed:
        """Sign an upload URL of the storage; the signature covers the content-type and content-length headers."""
        headers = {"content-type": checked_type(content_type, key)} if content_type else {}
        if size_bytes is not None:
            headers["content-length"] = str(size_bytes)
        return await self._sign(Call("PUT", checked(key), {}, headers), expires_s)

    async def _do(self, work: Callable[[], Awaitable[T]], doing: str, *, unseen: bool = False) -> T:
        """Run one obstore request, and repeat the request once if expired credentials were renewed.

        `unseen` marks a HEAD request, whose response has no body: a refusal without error code renews no credentials.
        """
        is_retry = False
        while True:
            used = await self._credentials.fresh()
            self._breaker.check(doing)
            try:
                answer = await work()
            except Exception as error:  # noqa: BLE001 - all that a driver raises becomes one of ours
                if is_range_beyond_the_end(error):
                    raise _BeyondTheEnd(doing) from None
                failure = of_driver(error, doing)
                self._breaker.note(failure)
                blind = unseen and not failure.provider_code
                if is_retry or blind or not await self._credentials.cure(failure, used):
                    raise failure from None
                is_retry = True
            else:
                self._breaker.note(None)
                return answer


class _BeyondTheEnd(ObjectsError):
    """The requested range begins behind the object's last byte."""


def part_bytes_for(size_bytes: int | None) -> int:
    """Return the part size for an object: 10,000 parts must hold all bytes."""
    if size_bytes is None:
        return BLIND_PART_BYTES
    least = -(-size_bytes // MOST_PARTS)
    return max(PART_BYTES, -(-least // MEBIBYTE) * MEBIBYTE)


def _mode(only_if_absent: bool, if_match: str | None) -> Any:  # noqa: FBT001 - as the face has them
    return "create" if only_if_absent else {"e_tag": if_match} if if_match else "overwrite"


def _info(meta: Any, content_type: str = "") -> ObjectInfo:
    modified_ms = round(meta["last_modified"].timestamp() * 1000)
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"] or "", modified_ms, content_type)


async def _chain(first: list[bytes], rest: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of `first`, then of `rest`; yielded pieces are released, to bound memory."""
    while first:
        yield first.pop(0)
    async for piece in rest:
        yield piece
        del piece
