"""AWS Signature Version 4, by its public description: a request's canonical form, the key, the signature.

The caller puts the signature into a header (`vault/sigv4.py`) or into the query of a URL (`objects/sigv4.py`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

ALGORITHM = "AWS4-HMAC-SHA256"


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
