"""Presigned S3 URLs (Signature Version 4) for any request, also for upload parts and with a session token.

obstore presigns only GET and PUT of whole objects, and no headers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from callsheet.sigv4 import ALGORITHM, Canonical, Scope, in_order, signature

from .credentials import Credentials

__all__ = ["Request", "Scope", "presign", "quoted_path"]
LONGEST_S = 7 * 24 * 3600  # S3 refuses longer ones
UNSIGNED = "UNSIGNED-PAYLOAD"


class Request(NamedTuple):
    """A request to sign. `url` has a quoted path and no query; the client must send exactly these `headers`."""

    method: str
    url: str
    expires_s: int
    query: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})


def presign(request: Request, credentials: Credentials, scope: Scope, *, at: float | None = None) -> str:
    """Return the request's URL with the signature in the query."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() if at is None else at))
    place = urlsplit(request.url)
    signed = in_order({**request.headers, "host": place.netloc})
    asked = {
        **request.query,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key_id}/{scope.on(stamp)}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(max(1, min(LONGEST_S, request.expires_s))),
        "X-Amz-SignedHeaders": ";".join(signed),
    }
    if credentials.session_token:
        asked["X-Amz-Security-Token"] = credentials.session_token
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(asked.items()))
    canonical = Canonical(request.method, place.path, query, signed, UNSIGNED)
    return f"{request.url}?{query}&X-Amz-Signature={signature(canonical, credentials.secret_access_key, scope, stamp)}"


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")


def quoted_path(key: str) -> str:
    """Return a key quoted for a URL path."""
    return quote(key, safe="/-_.~")
