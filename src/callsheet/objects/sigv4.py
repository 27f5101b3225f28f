"""AWS Signature Version 4 in the query of a URL, by its public description: also for parts, and with a session token.

obstore signs GET and PUT of whole objects only, and no headers; this signs any request.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from .credentials import Credentials

ALGORITHM = "AWS4-HMAC-SHA256"
LONGEST_S = 7 * 24 * 3600  # S3 refuses longer ones
UNSIGNED = "UNSIGNED-PAYLOAD"


class Scope(NamedTuple):
    """What a signature is good for."""

    region: str
    service: str = "s3"


class Request(NamedTuple):
    """What is to be signed. `url` has its path quoted and no query; `headers` must be sent just so."""

    method: str
    url: str
    expires_s: int
    query: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})


def presign(request: Request, credentials: Credentials, scope: Scope, *, at: float | None = None) -> str:
    """The URL with its signature."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() if at is None else at))
    within = f"{stamp[:8]}/{scope.region}/{scope.service}/aws4_request"
    place = urlsplit(request.url)
    given = {name.lower(): " ".join(value.split()) for name, value in request.headers.items()}
    signed = {"host": place.netloc, **given}
    names = ";".join(sorted(signed))
    asked = {
        **request.query,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key_id}/{within}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(max(1, min(LONGEST_S, request.expires_s))),
        "X-Amz-SignedHeaders": names,
    }
    if credentials.session_token:
        asked["X-Amz-Security-Token"] = credentials.session_token
    text = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(asked.items()))
    head = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    canonical = "\n".join((request.method, place.path or "/", text, head, names, UNSIGNED))
    to_sign = "\n".join((ALGORITHM, stamp, within, hashlib.sha256(canonical.encode()).hexdigest()))
    signature = hmac.new(_key(credentials, within), to_sign.encode(), hashlib.sha256).hexdigest()
    return f"{request.url}?{text}&X-Amz-Signature={signature}"


def _key(credentials: Credentials, within: str) -> bytes:
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in within.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")


def quoted_path(key: str) -> str:
    """A key as it stands in a URL."""
    return quote(key, safe="/-_.~")
