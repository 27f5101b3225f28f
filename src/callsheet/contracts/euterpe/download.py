"""Downloads a source from a signed URL: connects only to checked addresses, streams to disk, resumes after a cut.

No redirects, no proxies. Errors never contain the URL, because the URL grants access.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import httpcore2

from callsheet.kernel.errors import CallsheetError, Outage, is_from_driver
from callsheet.net.backoff import pause_after
from callsheet.net.guard import Resolve, Rules, SystemResolver, Target, addresses_of, target_of
from callsheet.objects.errors import ObjectTooLarge
from callsheet.vault.refresh import Meaning, meaning_of

from .pace import minimum_pace

OK, PARTIAL = 200, 206
TRIES = 5  # in a row without a single byte
PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
TIMES = {"connect": 10.0, "read": 60.0, "write": 10.0, "pool": 10.0}
ERROR_BYTES = 4_096
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{0,200})")
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)").fullmatch


class Refused(CallsheetError):
    """The source's server answered with this status; `stale` means that newer credentials may help."""

    code = "source_refused"

    def __init__(self, status: int, *, stale: bool = False) -> None:
        super().__init__(f"the source's server answered with status {status}")
        self.status = status
        self.stale = stale


class CutOff(Outage):
    """The source's server is unreachable, too slow, or keeps breaking connections."""

    code = "source_unavailable"
    waits_for = "storage"


class Taken(NamedTuple):
    """Size and hash of a downloaded source."""

    size_bytes: int
    sha256: str


class Guarded(httpcore2.AsyncNetworkBackend):
    """Connects only to addresses that the guard has checked for this connection."""

    def __init__(self, rules: Rules, resolve: Resolve) -> None:
        self._rules, self._resolve = rules, resolve
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the protocol's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first checked address that answers; raises BlockedTarget."""
        target = Target("", tls=False, host=host, port=port, path="/", authority=host)
        addresses = await addresses_of(target, self._rules, self._resolve)
        failure: Exception = httpcore2.ConnectError("no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(self, path: str, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        """Refuse: sources never use Unix sockets."""
        raise httpcore2.ConnectError(f"no socket {Path(path).name} is opened for a source")

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)


class Downloads:
    """Downloads sources from URLs. `room` receives the number of remaining bytes, and may raise."""

    def __init__(self, rules: Rules, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._rules = rules
        self._resolve: Resolve = resolve or SystemResolver(4)
        self._tls = tls or ssl.create_default_context()

    async def take(
        self,
        url: str,
        path: Path,
        max_bytes: int,
        room: Callable[[int], None],
        progress: Callable[[int, int], None],
    ) -> Taken:
        """Download a URL into a file. Raises Refused, CutOff, ObjectTooLarge, InvalidTarget, BlockedTarget."""
        host = target_of(url, self._rules).authority.encode()  # httpcore2 leaves out the brackets of an IPv6 address
        with path.open("wb", buffering=0) as file:
            part = _Part(file, max_bytes, room, progress)
            backend = Guarded(self._rules, self._resolve)
            slow = CutOff("the source's server sends too slowly")
            async with (
                httpcore2.AsyncConnectionPool(ssl_context=self._tls, network_backend=backend) as pool,
                minimum_pace(slow) as part.count,
            ):
                await self._follow(pool, url, host, part)
            return Taken(part.received_bytes, part.sha256.hexdigest())

    async def _follow(self, pool: httpcore2.AsyncConnectionPool, url: str, host: bytes, part: _Part) -> None:
        tries = 0
        while tries < TRIES:
            before = part.received_bytes
            headers = [(b"host", host), *part.headers()]
            try:
                async with pool.stream("GET", url, headers=headers, extensions={"timeout": TIMES}) as answer:
                    if await _take(answer, part):
                        return
            except CallsheetError:
                raise
            except Exception as error:
                if part.disk_failed or not is_from_driver(error, "httpcore2"):
                    raise
            tries = 1 if part.received_bytes > before else tries + 1
            await asyncio.sleep(pause_after(tries, PAUSE_S, LONGEST_PAUSE_S))
        raise CutOff("the source's server cannot be reached, or breaks off again and again")


class _Part:
    """The part of a source downloaded so far."""

    def __init__(
        self, file: BinaryIO, max_bytes: int, room: Callable[[int], None], progress: Callable[[int, int], None]
    ) -> None:
        self._file, self._max_bytes, self._room, self._progress = file, max_bytes, room, progress
        self.sha256 = hashlib.sha256()
        self.received_bytes = 0
        self.total: int | None = None
        self.version = b""
        self.disk_failed = False
        self.count: Callable[[int], None] = lambda _: None  # counts all received bytes, including repeated ones

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return headers that request the remaining bytes of the same version."""
        plain = [(b"user-agent", b"callsheet"), (b"accept-encoding", b"identity")]
        if not self.received_bytes or not self.version:
            return plain
        return [*plain, (b"range", b"bytes=%d-" % self.received_bytes), (b"if-range", self.version)]

    def begin(self, total: int | None, version: bytes, at: int) -> None:
        """Start an answer at byte `at`; another offset restarts the file. Raises ObjectTooLarge or `room`'s error."""
        if at != self.received_bytes:
            self._file.seek(0)
            self._file.truncate()
            self.sha256, self.received_bytes = hashlib.sha256(), 0
        self.total, self.version = total, version
        self._check(total or 0)
        if total is not None:
            self._room(total - self.received_bytes)

    def add(self, piece: bytes) -> None:
        """Append a piece to the file; raises ObjectTooLarge."""
        self._check(self.received_bytes + len(piece))
        rest = memoryview(piece)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self.disk_failed = True
            raise
        self.sha256.update(piece)
        self.received_bytes += len(piece)
        self._progress(self.received_bytes, self.total or 0)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._max_bytes:
            raise ObjectTooLarge(f"the source has {size_bytes} bytes or more, and {self._max_bytes} are allowed")


async def _take(answer: httpcore2.Response, part: _Part) -> bool:
    """Write an answer's body to the file; returns True if the source is complete."""
    headers = {name.lower(): value for name, value in answer.headers}
    if answer.status not in (OK, PARTIAL):
        raise await _refusal(answer)
    length = headers.get(b"content-length", b"").decode("latin-1")
    at, total = 0, int(length) if length.isdigit() else None
    if answer.status == PARTIAL:
        match = _RANGE(headers.get(b"content-range", b"").decode("latin-1"))
        if match is None or int(match[1]) != part.received_bytes:
            raise Refused(answer.status)
        at, total = int(match[1]), int(match[2]) if match[2].isdigit() else None
    version = headers.get(b"etag", b"")
    part.begin(total, version if not version.startswith(b"W/") else b"", at)
    async for piece in answer.aiter_stream():
        await asyncio.to_thread(part.add, piece)
        part.count(len(piece))
    return part.total is None or part.received_bytes >= part.total


async def _refusal(answer: httpcore2.Response) -> Refused:
    """Return the error for an answer's status and the first ERROR_BYTES of its body."""
    body = b""
    with contextlib.suppress(httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError):
        async for piece in answer.aiter_stream():
            body += piece
            if len(body) >= ERROR_BYTES:
                break
    text = body[:ERROR_BYTES].decode("utf-8", "replace")
    code, message = _CODE.search(text), _MESSAGE.search(text)
    meaning = meaning_of(code[1] if code else "", answer.status, message[1] if message else "")
    return Refused(answer.status, stale=meaning is Meaning.REFRESH)


def free_bytes(folder: Path) -> int:
    """Return the free bytes on a folder's disk."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
