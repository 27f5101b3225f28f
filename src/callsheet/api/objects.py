"""`/objects/{key}`: read and write objects of a folder by signed URL. S3 storage has signed URLs of its own."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from callsheet.http import attempt_files, object_access, problems
from callsheet.http.attempt_files import File
from callsheet.http.connections import admit
from callsheet.http.object_access import objects_of
from callsheet.http.problems import Problem
from callsheet.http.state import ServerState, state_of
from callsheet.kernel.errors import QuotaExceeded
from callsheet.objects import ObjectInfo, Objects
from callsheet.objects.signing import Claims, OwnObjects, disposition

IDLE_S = 60.0  # a client silent for this long is disconnected
MOST_BYTES = attempt_files.UNSAID_BYTES  # for a URL without size; S3's limit for one request
# Types shown inline. All others are downloads: HTML and SVG would run scripts with this server's origin.
IS_INLINE_TYPE = re.compile(
    r"(video|audio)/[\w.+-]+|image/(png|jpeg|webp|gif|avif)|text/(plain|vtt)|application/(json|vnd\.apple\.mpegurl)"
).fullmatch
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})").fullmatch
OWN_POLICY = "default-src 'none'; sandbox"
BINARY = {"schema": {"type": "string", "format": "binary"}}
SIGNATURE_PARAMETERS = {
    "parameters": [
        {"name": "expires", "in": "query", "required": True, "schema": {"type": "integer"}},
        {"name": "signature", "in": "query", "required": True, "schema": {"type": "string"}},
    ]
}
router = APIRouter(prefix="/objects", tags=["objects"])
Key = Annotated[str, Path(description="As it stands in the signed URL.")]


class Span(NamedTuple):
    """A requested byte range; `end` is exclusive."""

    start: int
    end: int


@router.get(
    "/{key:path}",
    summary="Read an object",
    response_class=Response,
    openapi_extra=SIGNATURE_PARAMETERS,
    responses={
        200: {"content": {"application/octet-stream": BINARY}},
        206: {"content": {"application/octet-stream": BINARY}, "description": "the bytes that Range asks for"},
        304: {"description": "If-None-Match has it"},
        **problems.responses("link_refused", "object_not_found", "range_not_satisfiable", "objects_unavailable"),
    },
)
async def read(request: Request, key: Key) -> Response:
    """Read an object, or one `Range` of its bytes. The URL's signature is the only credential."""
    objects, claims = _check_signature(request, "GET", key)
    return await object_response(request, objects, key, claims.name)


async def object_response(request: Request, objects: Objects, key: str, download_name: str = "") -> Response:
    """Return a response with the object or the requested range. With `download_name`, browsers save it as a file."""
    info = await objects.head(key)
    headers = _headers(info, download_name)
    if request.headers.get("if-none-match") in {info.etag, "*"}:
        return Response(status_code=304, headers={"etag": info.etag, "cache-control": headers["cache-control"]})
    span = _span(request, info)
    if span is None:
        stream = await _start(objects.stream(key, if_match=info.etag))
        return _stream_response(stream, 200, {**headers, "content-length": str(info.size_bytes)})
    stream = await _start(objects.stream(key, start=span.start, end=span.end, if_match=info.etag))
    content_range = f"bytes {span.start}-{span.end - 1}/{info.size_bytes}"
    length = str(span.end - span.start)
    return _stream_response(stream, 206, {**headers, "content-range": content_range, "content-length": length})


@router.put(
    "/{key:path}",
    summary="Write an object, or a part of one",
    response_class=Response,
    openapi_extra={
        **SIGNATURE_PARAMETERS,
        "requestBody": {"required": True, "content": {"application/octet-stream": BINARY}},
    },
    responses={
        200: {"description": "It is there; `ETag` names this version."},
        **problems.responses(
            "bad_request",
            "link_refused",
            "upload_not_found",
            "key_conflict",
            "object_too_large",
            "quota_exceeded",
            "unsupported_media_type",
            "objects_unavailable",
        ),
    },
)
async def write(request: Request, key: Key) -> Response:
    """Write the request body as an object of the size and type that the signed URL names."""
    objects, claims = _check_signature(request, "PUT", key)
    state = state_of(request)

    async def check() -> None:
        await object_access.check(state.engine.store, state.workers, key, claims.bound)

    upload = await objects.find_upload(key, claims.upload) if claims.part else None
    await check()
    length = request.headers.get("content-length")
    if claims.size is not None and length is not None and int(length) != claims.size:
        code = "object_too_large" if int(length) > claims.size else "bad_request"
        raise Problem(code, f"this URL is for exactly {claims.size} bytes")
    if claims.type and request.headers.get("content-type", "") != claims.type:
        raise Problem("unsupported_media_type", f"this URL is for {claims.type}; send it as Content-Type")
    body = _body(request, claims.size, check)
    if upload is not None:
        etag = f'"{(await objects.put_part(upload, claims.part, body)).etag}"'
    else:
        etag = (await _put_whole(state, objects, key, claims, body)).etag
    return Response(status_code=200, headers={"etag": etag})


async def _put_whole(
    state: ServerState, objects: Objects, key: str, claims: Claims, body: AsyncIterator[bytes]
) -> ObjectInfo:
    """Write an object. For an attempt's file, reserve the most bytes that may arrive, then settle on the actual bytes.

    Bytes are reserved anew for each request: an earlier request with the same URL may have settled on fewer bytes.
    """
    target = object_access.attempt_of(claims.bound)
    (job,) = await state.engine.store.get([target[0]]) if target is not None else (None,)
    if target is None or job is None:
        return await objects.put(key, body, content_type=claims.type or None)
    most = attempt_files.UNSAID_BYTES if claims.size is None else claims.size
    attempt, name = attempt_files.of(job, target[1]), key.split("/", 4)[-1]

    async def reserve(how: Callable[[File], File]) -> None:
        await attempt_files.change(state.quotas, state.engine.store, attempt, name, how)

    await reserve(lambda file: file.with_whole(most, is_said=claims.size is not None))
    info = await objects.put(key, body, content_type=claims.type or None)
    if claims.size is None:
        try:
            await reserve(lambda file: file._replace(whole=max(file.announced_bytes, info.size_bytes)))
        except QuotaExceeded:  # another request with this URL was settled meanwhile
            await objects.delete(key)
            raise
    return info


async def _body(request: Request, size: int | None, check: Callable[[], Awaitable[None]]) -> AsyncIterator[bytes]:
    """Yield the body as it arrives; raises Problem if its length is wrong or it stalls, and any error of `check`."""
    most, total = MOST_BYTES if size is None else size, 0
    pieces = request.stream()
    while True:
        try:
            async with asyncio.timeout(IDLE_S):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise Problem("bad_request", f"nothing came for {IDLE_S:g} s") from None
        if piece is None:
            break
        total += len(piece)
        if total > most:
            raise Problem("object_too_large", f"this URL is for {most} bytes")
        if piece:
            yield piece
    if size is not None and total != size:
        raise Problem("bad_request", f"this URL is for exactly {size} bytes, and {total} came")
    await check()  # the upload may have been completed while the body arrived


def _check_signature(request: Request, method: str, key: str) -> tuple[OwnObjects, Claims]:
    """Return the objects and the URL's claims after checking its signature; raises LinkRefused or LinkExpired."""
    objects = objects_of(state_of(request))
    if not isinstance(objects, OwnObjects) or objects.signer is None:
        raise Problem("not_found", "the objects of this server have URLs of their own")
    claims = objects.signer.check(method, key, request.query_params.multi_items())
    admit(request.scope, "")  # the URL is the proof
    return objects, claims


def _headers(info: ObjectInfo, download_name: str) -> dict[str, str]:
    name = download_name or info.key.rpartition("/")[2]
    inline = not download_name and IS_INLINE_TYPE(info.content_type.partition(";")[0]) is not None
    return {
        "content-type": info.content_type,
        "content-disposition": disposition(name, inline=inline),
        "content-security-policy": OWN_POLICY,
        "cache-control": "private, max-age=0, must-revalidate",
        "accept-ranges": "bytes",
        "etag": info.etag,
        "last-modified": formatdate(info.modified_ms / 1000, usegmt=True),
    }


def _span(request: Request, info: ObjectInfo) -> Span | None:
    """Return the requested byte range; None for the whole object. Multiple ranges and other units are ignored."""
    match = RANGE(request.headers.get("range", ""))
    if match is None or match[0] == "bytes=-":
        return None
    if request.headers.get("if-range", info.etag) != info.etag:
        return None  # the client has another version, so send the whole object
    first, last = match[1], match[2]
    if first:
        span = Span(int(first), min(int(last) + 1, info.size_bytes) if last else info.size_bytes)
    else:
        span = Span(max(0, info.size_bytes - int(last)), info.size_bytes)
    if first and last and int(last) < int(first):
        return None
    if span.start >= span.end:
        size = str(info.size_bytes)
        raise Problem("range_not_satisfiable", f"it has {size} bytes", headers={"Content-Range": f"bytes */{size}"})
    return span


async def _start(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Return the stream after reading its first piece, so that errors are raised before the response starts."""
    first = await anext(stream, b"")

    async def all_of_it() -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(stream):
            yield first
            async for piece in stream:
                yield piece

    return all_of_it()


def _stream_response(stream: AsyncIterator[bytes], status: int, headers: dict[str, str]) -> Response:
    response = StreamingResponse(stream, status)
    for name, value in headers.items():  # StreamingResponse would add a charset to the content type
        response.headers[name] = value
    return response
