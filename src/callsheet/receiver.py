"""A receiver of callbacks: verify each request, and handle each event once. Standard library only.

    receiver = Receiver([os.environ["WEBHOOK_SECRET"]])
    event = receiver.verify(request.headers, request.body)       # raises NotVerified
    with receiver.once(event.event_id) as first:
        if first:
            handle(event.body)

`verify` checks the signature, in constant time, against each of the secrets; the timestamp, within five minutes; that
the nonce is new; and that header and body have the same event id. If several processes receive callbacks, let them
share nonces and event ids: `RedisSeen` or `SqlSeen`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["SQL", "MemorySeen", "NotVerified", "Received", "Receiver", "RedisSeen", "Seen", "SqlSeen"]

SKEW_S = 300
EVENTS_KEPT_S = 7 * 86_400
PREFIX = "x-euterpe-"
IS_NONCE = re.compile(r"[A-Za-z0-9_+/=-]{1,256}").fullmatch
SQL = "CREATE TABLE webhook_seen (name VARCHAR(255) PRIMARY KEY, expires_at BIGINT NOT NULL)"


class NotVerified(Exception):
    """The request cannot be trusted. Answer with 400 or 401, and do nothing else."""


class Received(NamedTuple):
    """A verified event. `body` is the parsed JSON, `raw` the signed bytes."""

    event_id: str
    attempt: int
    body: Any
    raw: bytes


class Seen(Protocol):
    """Storage for names that expire: nonces and event ids."""

    def add(self, name: str, ttl_s: int) -> bool:
        """Store a name for `ttl_s` seconds; return False if the name is stored already."""
        ...

    def forget(self, name: str) -> None:
        """Remove a name."""
        ...


class Receiver:
    """Verify callbacks with one secret, or with several while secrets rotate."""

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        seen: Seen | None = None,
        skew_s: int = SKEW_S,
        clock: Callable[[], float] = time.time,
        check_event_id: bool = True,
    ) -> None:
        if not secrets:
            raise ValueError("give the secret that the endpoint showed when it was made")
        self._keys = [_key(secret) for secret in secrets]
        self._seen = seen or MemorySeen(clock=clock)
        self._skew_s = skew_s
        self._clock = clock
        self._check_event_id = check_event_id

    def verify(self, headers: Mapping[str, str], raw: bytes) -> Received:
        """Return the event of a request, or raise NotVerified; `raw` is the request's unparsed body."""
        found = {name.lower(): value for name, value in headers.items()}
        timestamp, nonce, event_id = (found.get(PREFIX + name, "") for name in ("timestamp", "nonce", "event-id"))
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 13):  # noqa: PLR2004 - seconds
            raise NotVerified("there is no timestamp")
        if not nonce or not event_id:
            raise NotVerified("a header is missing")
        # A "." separates the signed parts: a nonce with a "." could contain a piece of the body.
        if not IS_NONCE(nonce):
            raise NotVerified("the nonce may have letters, digits, '-', '_', '+', '/' and '=' alone")
        if abs(self._clock() - int(timestamp)) > self._skew_s:
            raise NotVerified("the timestamp is too far from now")
        signed = b".".join((timestamp.encode(), nonce.encode("utf-8", "replace"), raw))
        if not self._is_signed(signed, found.get(PREFIX + "signature", "")):
            raise NotVerified("the signature does not fit")
        body = self._parse(raw, event_id)
        if not self._seen.add(f"nonce:{nonce}", 2 * self._skew_s + 60):
            raise NotVerified("this very request came before")
        attempt = found.get("webhook-attempt", "")
        return Received(event_id, int(attempt) if attempt.isdecimal() else 0, body, raw)

    @contextlib.contextmanager
    def once(self, event_id: str) -> Iterator[bool]:
        """Yield True the first time an event arrives, else False; if the block raises, the event may arrive again."""
        name = f"event:{event_id}"
        first = self._seen.add(name, EVENTS_KEPT_S)
        try:
            yield first
        except BaseException:
            if first:
                self._seen.forget(name)
            raise

    def _is_signed(self, signed: bytes, told: str) -> bool:
        given = [text.strip().encode("utf-8", "replace") for text in told.split(",")][:4]
        expected = [hmac.new(key, signed, hashlib.sha256).hexdigest().encode() for key in self._keys]
        return any([hmac.compare_digest(a, b) for a in given for b in expected])  # noqa: C419 - all of them, always

    def _parse(self, raw: bytes, event_id: str) -> Any:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            raise NotVerified("the body is no JSON") from None
        if self._check_event_id and (not isinstance(body, dict) or body.get("event_id") != event_id):
            raise NotVerified("the event's id is another one in the body")
        return body


class MemorySeen:
    """Store names in this process; above `most` names the oldest are removed."""

    def __init__(self, most: int = 100_000, *, clock: Callable[[], float] = time.time) -> None:
        self._known: OrderedDict[str, float] = OrderedDict()
        self._most = most
        self._clock = clock

    def add(self, name: str, ttl_s: int) -> bool:
        """See the protocol."""
        now = self._clock()
        if self._known.get(name, 0) > now:
            return False
        self._known[name] = now + ttl_s
        self._known.move_to_end(name)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return True

    def forget(self, name: str) -> None:
        """See the protocol."""
        self._known.pop(name, None)


class RedisSeen:
    """Store names in Redis, through a `redis.Redis` client; receiving processes may share one database."""

    def __init__(self, client: Any, prefix: str = "webhook-seen:") -> None:
        self._client = client
        self._prefix = prefix

    def add(self, name: str, ttl_s: int) -> bool:
        """See the protocol."""
        return bool(self._client.set(self._prefix + name, "1", nx=True, ex=ttl_s))

    def forget(self, name: str) -> None:
        """See the protocol."""
        self._client.delete(self._prefix + name)


class SqlSeen:
    """Store names in a table, through a DB-API connection; `SQL` creates the table.

    `mark` is the driver's parameter mark: `?` or `%s`.
    """

    def __init__(self, connect: Callable[[], Any], mark: str = "?", *, clock: Callable[[], float] = time.time) -> None:
        self._connect = connect
        self._clock = clock
        self._delete = f"DELETE FROM webhook_seen WHERE expires_at <= {mark}"  # noqa: S608 - the mark is the caller's
        self._forget = f"DELETE FROM webhook_seen WHERE name = {mark}"  # noqa: S608
        self._insert = f"INSERT INTO webhook_seen VALUES ({mark}, {mark}) ON CONFLICT DO NOTHING"  # noqa: S608

    def add(self, name: str, ttl_s: int) -> bool:
        """See the protocol."""
        now = int(self._clock())
        return self._run((self._delete, (now,)), (self._insert, (name, now + ttl_s))) == 1

    def forget(self, name: str) -> None:
        """See the protocol."""
        self._run((self._forget, (name,)))

    def _run(self, *statements: tuple[str, tuple[object, ...]]) -> int:
        connection = self._connect()
        try:
            cursor = connection.cursor()
            for sql, values in statements:
                cursor.execute(sql, values)
            count = int(cursor.rowcount)
            connection.commit()
        finally:
            connection.close()
        return count


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith("whsec_") or not key:
        raise ValueError("a webhook secret begins with whsec_")
    return key
