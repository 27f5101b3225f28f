"""Request ids: the client's id if it is safe to log and to store with jobs, else a new id.

An id that looks like a key, token, session or JWT is rejected, and so is any part of the request's own credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from callsheet.engine.ids import new_id

IS_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}").fullmatch
IS_SECRET = re.compile(
    rb"cs_[a-z]+_.*"  # keys, workers' tokens and enrolments
    rb"|whsec_.*"
    rb"|[A-Za-z0-9_-]{43}"  # 256 bits: sessions, tickets and lease tokens
    rb"|[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"  # a JWT
    rb"|gh[a-z]_.*|sk-.*|xox[a-z]-.*|AKIA[A-Z0-9]{12,}",  # credentials of other services
    re.DOTALL,
).fullmatch
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"cookie", b"proxy-authorization"})
WORDS = re.compile(rb"[\s;,=]+")
LONG = 12


def id_of(client_id: bytes, headers: Iterable[tuple[bytes, bytes]], secret: bytes = b"") -> str:
    """Return the client's request id if it may be logged, else a new id. `secret` is the server's own key."""
    if not client_id or not IS_ID(client_id) or IS_SECRET(client_id) or client_id == secret:
        return new_id()
    if any(_tells(client_id, value) for name, value in headers if name in CREDENTIALS):
        return new_id()
    return client_id.decode()


def _tells(client_id: bytes, credential: bytes) -> bool:
    """Return whether an id equals a credential or one of its words, or is a long substring of it."""
    return client_id in WORDS.split(credential) or (len(client_id) >= LONG and client_id in credential)
