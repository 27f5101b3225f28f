"""AWS Signature Version 4, by its public description: in the headers of a POST, or in the query of a presigned URL.

obstore presigns only GET and PUT of whole objects, and no headers; `presign` takes any request, also for upload parts.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"
LONGEST_S = 7 * 24 * 3600  # S3 refuses longer ones
UNSIGNED = "UNSIGNED-PAYLOAD"


class AccessKeys(Protocol):
    """Access keys of AWS; temporary keys have a session token."""

    @property
    def access_key_id(self) -> str:
        """The public half of the keys."""
        ...

    @property
    def secret_access_key(self) -> str:
        """The secret half of the keys."""
        ...

    @property
    def session_token(self) -> str:
        """The session token, '' if the keys are not temporary."""
        ...


class Scope(NamedTuple):
    """The region and service of a signature."""

    region: str
    service: str = "s3"

    def on(self, stamp: str) -> str:
        """Return the scope for a timestamp like 20261116T061500Z."""
        return f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"


class Canonical(NamedTuple):
    """A request to sign. `query` is sorted and quoted; `headers` come from `in_order`."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    payload: str

    @property
    def names(self) -> str:
        """The names of the signed headers, separated by semicolons."""
        return ";".join(self.headers)

    def text(self) -> str:
        """Return the request's canonical form."""
        lines = "".join(f"{name}:{value}\n" for name, value in self.headers.items())
        return "\n".join((self.method, self.path or "/", self.query, lines, self.names, self.payload))


def in_order(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers in signing form: sorted by name, in lower case, with single spaces."""
    return dict(sorted((name.lower(), " ".join(value.split())) for name, value in headers.items()))


def signing_key(secret_access_key: str, scope: Scope, stamp: str) -> bytes:
    """Return the signing key of a day, a region and a service."""
    key = f"AWS4{secret_access_key}".encode()
    for part in scope.on(stamp).split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def signature(request: Canonical, secret_access_key: str, scope: Scope, stamp: str) -> str:
    """Return the signature of a request at a timestamp."""
    digest = hashlib.sha256(request.text().encode()).hexdigest()
    text = "\n".join((ALGORITHM, stamp, scope.on(stamp), digest))
    return hmac.new(signing_key(secret_access_key, scope, stamp), text.encode(), hashlib.sha256).hexdigest()


class Request(NamedTuple):
    """A request to presign. `url` has a quoted path and no query; the client must send exactly these `headers`."""

    method: str
    url: str
    expires_s: int
    query: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})


def presign(request: Request, keys: AccessKeys, scope: Scope, *, at: float | None = None) -> str:
    """Return the request's URL with the signature in the query."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() if at is None else at))
    parts = urlsplit(request.url)
    headers = in_order({**request.headers, "host": parts.netloc})
    fields = {
        **request.query,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{keys.access_key_id}/{scope.on(stamp)}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(max(1, min(LONGEST_S, request.expires_s))),
        "X-Amz-SignedHeaders": ";".join(headers),
    }
    if keys.session_token:
        fields["X-Amz-Security-Token"] = keys.session_token
    query = "&".join(f"{_quote(name)}={_quote(value)}" for name, value in sorted(fields.items()))
    canonical = Canonical(request.method, parts.path, query, headers, UNSIGNED)
    return f"{request.url}?{query}&X-Amz-Signature={signature(canonical, keys.secret_access_key, scope, stamp)}"


class Post(NamedTuple):
    """A POST to sign in its headers."""

    url: str
    body: bytes
    headers: Mapping[str, str]


def signed_headers(post: Post, keys: AccessKeys, scope: Scope, stamp: str) -> dict[str, str]:
    """Return the headers with a signature over them and the body; `stamp` is the time as 20261116T061500Z."""
    parts = urlsplit(post.url)
    all_headers = {**post.headers, "host": parts.netloc, "x-amz-date": stamp}
    if keys.session_token:
        all_headers["x-amz-security-token"] = keys.session_token
    request = Canonical("POST", parts.path, "", in_order(all_headers), hashlib.sha256(post.body).hexdigest())
    proof = (
        f"Credential={keys.access_key_id}/{scope.on(stamp)}, SignedHeaders={request.names}, "
        f"Signature={signature(request, keys.secret_access_key, scope, stamp)}"
    )
    return {**all_headers, "authorization": f"{ALGORITHM} {proof}"}


def _quote(text: str) -> str:
    return quote(text, safe="-_.~")


def quoted_path(key: str) -> str:
    """Return a key quoted for a URL path."""
    return quote(key, safe="/-_.~")
