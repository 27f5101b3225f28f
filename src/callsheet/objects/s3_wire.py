"""Signed S3 requests that obstore does not offer: multipart uploads, their parts, presigned URLs."""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import httpx2

from callsheet.net.backoff import pause_after
from callsheet.net.driver_errors import http_errors_as
from callsheet.net.sigv4 import Request, Scope, presign, quoted_path

from .credentials import HeldCredentials
from .errors import (
    ObjectChanged,
    ObjectExists,
    ObjectNotFound,
    ObjectsError,
    ObjectsForbidden,
    ObjectsUnavailable,
    ObjectTooLarge,
    UploadIncomplete,
    UploadNotFound,
)
from .face import Data, Objects
from .keys import checked, checked_type
from .records import MOST_PARTS, ObjectInfo, Part, Signed, Upload
from .s3_errors import of_answer
from .signing import expiry_ms
from .storage_breaker import StorageBreaker

OWN_EXPIRY_S = 300
TRIES = 4
PAUSE_S = 0.1, 0.8  # the first and the longest
SLICE_BYTES = 256 * 1024
PATIENCE = httpx2.Timeout(60.0, connect=10.0)
_UPLOAD_ID = re.compile(r"<UploadId>([^<]+)</UploadId>")
_PART = re.compile(r"<Part>(.*?)</Part>", re.DOTALL)
_NEXT = re.compile(r"<IsTruncated>true</IsTruncated>")
_MARKER = re.compile(r"<NextPartNumberMarker>(\d+)</NextPartNumberMarker>")
_ETAG = re.compile(r"<ETag>([^<]+)</ETag>")


class Bucket(NamedTuple):
    """An S3 bucket: name, endpoint, region, and the prefix before all keys."""

    name: str
    endpoint: str
    region: str
    prefix: str = ""

    @property
    def base(self) -> str:
        """The bucket's URL: path-style for a custom endpoint or a name with dots, else virtual-hosted at Amazon."""
        if self.endpoint:
            return f"{self.endpoint.rstrip('/')}/{self.name}"
        if "." in self.name:  # a certificate of *.s3… does not cover it
            return f"https://s3.{self.region}.amazonaws.com/{self.name}"
        return f"https://{self.name}.s3.{self.region}.amazonaws.com"

    @property
    def origin(self) -> str:
        """Scheme, host and port of the bucket's URLs, for a browser's content security policy."""
        url = httpx2.URL(self.base)
        return f"{url.scheme}://{url.netloc.decode('ascii')}"

    def whole(self, key: str) -> str:
        """Return the key with the bucket's prefix."""
        return f"{self.prefix}/{key}" if self.prefix else key

    def url(self, key: str) -> str:
        """Return the URL of an object."""
        return f"{self.base}/{quoted_path(self.whole(key))}"


class Call(NamedTuple):
    """One S3 request about a key."""

    method: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = MappingProxyType({})
    content: bytes = b""


class Wire:
    """Sends requests signed with the current credentials; after renewing expired credentials repeats a request once."""

    def __init__(
        self, bucket: Bucket, credentials: HeldCredentials, breaker: StorageBreaker, proxy_url: str | None = None
    ) -> None:
        self.bucket = bucket
        self._proxy_url = proxy_url
        self.scope = Scope(bucket.region)
        self._credentials = credentials
        self._client: httpx2.AsyncClient | None = None
        self._breaker = breaker

    async def close(self) -> None:
        """Close the HTTP connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def signed_url(self, call: Call, expires_s: int) -> str:
        """Return a presigned URL for the request."""
        credentials = await self._credentials.fresh()
        request = Request(call.method, self.bucket.url(call.key), expires_s, call.query, call.headers)
        return presign(request, credentials, self.scope)

    async def ask(self, call: Call, doing: str) -> httpx2.Response:
        """Send an idempotent request, with up to four tries while the storage is unavailable; raises ObjectsError."""
        is_retry = False
        tries = 0
        while True:
            used = await self._credentials.fresh()
            try:
                return await self._once(call, doing)
            except ObjectsForbidden as error:
                if is_retry or not await self._credentials.cure(error, used):
                    raise
                is_retry = True
            except ObjectsUnavailable:
                tries += 1
                if tries == TRIES:
                    raise
                await asyncio.sleep(pause_after(tries, *PAUSE_S, jitter=0.5))

    async def _once(self, call: Call, doing: str) -> httpx2.Response:
        url = await self.signed_url(call, OWN_EXPIRY_S)
        self._breaker.check(doing)
        try:
            answer = await self._send(call, url, doing)
        except ObjectsError as error:
            self._breaker.note(error)
            raise
        self._breaker.note(None)
        return answer

    async def _send(self, call: Call, url: str, doing: str) -> httpx2.Response:
        if self._client is None:
            is_encrypted = self.bucket.base.startswith("https:")  # reading all certificates takes 30 ms
            self._client = httpx2.AsyncClient(timeout=PATIENCE, verify=is_encrypted, proxy=self._proxy_url)
        headers = {"content-length": str(len(call.content)), **call.headers}

        def unavailable(error: Exception) -> ObjectsUnavailable:  # without its text, which has the signed URL
            return ObjectsUnavailable(f"{doing}: the storage cannot be reached ({type(error).__name__})")

        with http_errors_as(unavailable):
            answer = await self._client.request(call.method, url, headers=headers, content=_slices(call.content))
        if not answer.is_success or "<Error>" in answer.text[:1000]:  # a completion may fail after its 200
            status = answer.status_code if not answer.is_success else httpx2.codes.INTERNAL_SERVER_ERROR
            raise of_answer(status, answer.text, doing)
        return answer

    async def begin(self, key: str, content_type: str, doing: str) -> str:
        """Begin a multipart upload and return the upload id."""
        answer = await self.ask(Call("POST", key, {"uploads": ""}, {"content-type": content_type}), doing)
        match = _UPLOAD_ID.search(answer.text)
        if match is None:
            raise ObjectsError(f"{doing}: the storage gave no upload id")
        return html.unescape(match[1])

    async def parts(self, key: str, upload_id: str, doing: str) -> list[Part]:
        """Return all written parts of an upload, in order of number."""
        newest: dict[int, tuple[str, Part]] = {}
        marker = "0"
        while True:
            query = {"uploadId": upload_id, "part-number-marker": marker, "max-parts": "1000"}
            text = (await self.ask(Call("GET", key, query), doing)).text
            for at, part in map(_part, _PART.findall(text)):
                # SeaweedFS also lists parts that were replaced, in no order: the newest counts, else the largest.
                if part.number not in newest or (at, part.size_bytes) >= _age(*newest[part.number]):
                    newest[part.number] = at, part
            following = _MARKER.search(text)
            if not _NEXT.search(text) or following is None or following[1] == marker:
                return sorted(part for _, part in newest.values())
            marker = following[1]

    async def complete(
        self, key: str, upload_id: str, parts: Sequence[Part], headers: Mapping[str, str], doing: str
    ) -> str:
        """Complete the upload and return the object's etag."""
        body = "".join(
            f"<Part><PartNumber>{part.number}</PartNumber><ETag>{html.escape(part.etag)}</ETag></Part>"
            for part in parts
        )
        content = f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode()
        answer = await self.ask(Call("POST", key, {"uploadId": upload_id}, headers, content), doing)
        match = _ETAG.search(answer.text)
        return html.unescape(match[1]) if match else ""


async def _slices(content: bytes) -> AsyncIterator[bytes]:
    """Yield the content in slices: each layer of the HTTP client would copy content passed whole."""
    for start in range(0, len(content), SLICE_BYTES):
        yield content[start : start + SLICE_BYTES]


def _age(at: str, part: Part) -> tuple[str, int]:
    return at, part.size_bytes


def _part(text: str) -> tuple[str, Part]:
    at = re.search(r"<LastModified>([^<]+)</LastModified>", text)
    number = re.search(r"<PartNumber>(\d+)</PartNumber>", text)
    size = re.search(r"<Size>(\d+)</Size>", text)
    etag = _ETAG.search(text)
    if number is None or size is None or etag is None:
        raise ObjectsError("the storage's list of parts cannot be read")
    return at[1] if at else "", Part(int(number[1]), html.unescape(etag[1]), int(size[1]))


class S3Uploads(Objects):
    """The Objects methods that send signed requests through `Wire`, without obstore."""

    _wire: Wire

    async def begin_multipart(self, key: str, *, part_bytes: int, content_type: str | None = None) -> Upload:
        """Begin a multipart upload at the storage."""
        kind = checked_type(content_type, checked(key))
        return Upload(key, await self._wire.begin(key, kind, f"begin an upload of {key}"), part_bytes, kind)

    async def sign_part(
        self,
        upload: Upload,
        number: int,
        expires_s: int,
        *,
        size_bytes: int | None = None,
        bound_to: str = "",  # noqa: ARG002 - the storage asks nobody
    ) -> Signed:
        """Sign the URL of one part with the current credentials."""
        headers = {} if size_bytes is None else {"content-length": str(size_bytes)}
        return await self._sign(Call("PUT", upload.key, part_query(upload, number), headers), expires_s)

    async def put_part(self, upload: Upload, number: int, data: Data) -> Part:
        """Write one part from memory; a failed part is sent again alone."""
        content = data if isinstance(data, bytes) else b"".join([piece async for piece in data])
        if len(content) > upload.part_bytes:
            raise ObjectTooLarge(f"part {number} of {upload.key} has more than {upload.part_bytes} bytes")
        call = Call("PUT", upload.key, part_query(upload, number), {}, content)
        answer = await self._wire.ask(call, f"put part {number} of {upload.key}")
        return Part(number, answer.headers.get("etag", ""), len(content))

    async def list_parts(self, upload: Upload) -> Sequence[Part]:
        """Return the parts that the storage lists, in order of number."""
        return await self._wire.parts(upload.key, upload.upload_id, f"list the parts of {upload.key}")

    async def complete_multipart(
        self, upload: Upload, parts: Sequence[Part] | None = None, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Complete the upload in one request, with an if-none-match header for `only_if_absent`."""
        selection = await self.list_parts(upload) if parts is None else parts
        return await self._complete(upload, selection, conditions(only_if_absent, None))

    async def _complete(self, upload: Upload, parts: Sequence[Part], headers: dict[str, str]) -> ObjectInfo:
        doing = f"complete {upload.key}"
        if [part.number for part in parts] != list(range(1, len(parts) + 1)) or not parts:
            raise UploadIncomplete(f"{doing}: parts are missing")
        try:
            await self._wire.complete(upload.key, upload.upload_id, parts, headers, doing)
        except ObjectChanged:
            if "if-none-match" in headers:
                raise ObjectExists(f"{doing}: it is there already") from None
            raise
        return await self.head(upload.key)

    async def abort_multipart(self, upload: Upload) -> None:
        """Abort the upload; an unknown upload is ignored."""
        with contextlib.suppress(UploadNotFound, ObjectNotFound):
            call = Call("DELETE", upload.key, {"uploadId": upload.upload_id})
            await self._wire.ask(call, f"abort the upload of {upload.key}")

    async def _sign(self, call: Call, expires_s: int) -> Signed:
        url = await self._wire.signed_url(call, expires_s)
        return Signed(call.method, url, dict(call.headers), expiry_ms(expires_s))


def conditions(only_if_absent: bool, if_match: str | None) -> dict[str, str]:  # noqa: FBT001 - as the face has them
    """Return the headers of a conditional write."""
    return {"if-none-match": "*"} if only_if_absent else {"if-match": if_match} if if_match else {}


def part_query(upload: Upload, number: int) -> dict[str, str]:
    """Return the query parameters of an upload part; raises UploadIncomplete for a number outside 1 to 10,000."""
    if not 1 <= number <= MOST_PARTS:
        raise UploadIncomplete(f"parts have the numbers 1 to {MOST_PARTS}")
    return {"partNumber": str(number), "uploadId": upload.upload_id}
