"""Locations of sources and outputs, as requests and jobs name them.

object:KEY            an object of this server's own storage, in a folder of the tenant's
s3://BUCKET/KEY       an object of a storage that the requester has keys for
https://HOST/…        a signed URL, for a source only; a job holds the host alone, the URL itself is sealed
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from callsheet.objects.errors import InvalidKey
from callsheet.objects.keys import checked, checked_prefix

OWN, S3, URL = "object", "s3", "url"
IS_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]").fullmatch
MAX_URL = 2_048
SIGNS = re.compile(r"(x-(amz|goog|oss|ms|cos)-|q-)?signature", re.IGNORECASE).fullmatch
SIGNATURE = re.compile(
    r"x-(amz|goog|oss|ms|cos)-.*|signature|expires|policy|key-pair-id|awsaccesskeyid|googleaccessid|ossaccesskeyid"
    r"|security-token|q-(ak|sign|signature|sign-algorithm|sign-time|key-time|header-list|url-param-list)",
    re.IGNORECASE,
).fullmatch
AZURE = frozenset(
    [
        "sv",
        "ss",
        "srt",
        "sp",
        "se",
        "st",
        "spr",
        "sig",
        "sr",
        "sip",
        "si",
        "skoid",
        "sktid",
        "skt",
        "ske",
        "sks",
        "skv",
        "sdd",
        "ses",
        "saoid",
        "suoid",
        "scid",
    ]
)


class Place(NamedTuple):
    """A parsed source or output location. `path` is a key or prefix, '' for a URL; `host` is the bucket or URL host."""

    kind: str
    host: str
    path: str

    def __str__(self) -> str:
        match self.kind:
            case "object":
                return f"object:{self.path}"
            case "s3":
                return f"s3://{self.host}/{self.path}"
        return self.host

    def below(self, name: str) -> Place:
        """Return the location of `name` under this prefix."""
        return self._replace(path=f"{self.path}/{name}" if self.path and name else self.path or name)


def source_of(text: str) -> Place:
    """Parse a source location; raises ValueError, whose text never contains the URL."""
    if text.startswith("object:"):
        return Place(OWN, "", _key(text.removeprefix("object:")))
    if text.startswith("s3://"):
        bucket, key = _bucket(text)
        return Place(S3, bucket, _key(key))
    if text.startswith(("https://", "http://")):
        return Place(URL, _host(text), "")
    raise ValueError("write object:KEY, s3://BUCKET/KEY or a signed https:// URL")


def target_of(text: str) -> Place:
    """Parse the location for outputs; raises ValueError."""
    if text.startswith("object:"):
        return Place(OWN, "", _prefix(text.removeprefix("object:")))
    if text.startswith("s3://"):
        bucket, prefix = _bucket(text)
        return Place(S3, bucket, _prefix(prefix))
    raise ValueError("write object:PREFIX or s3://BUCKET/PREFIX")


def _bucket(text: str) -> tuple[str, str]:
    bucket, _, path = text.removeprefix("s3://").partition("/")
    if not IS_BUCKET(bucket):
        raise ValueError("a bucket has 3 to 63 lower-case letters, digits, '.' and '-'; keys do not belong into a URL")
    return bucket, path


def _key(text: str) -> str:
    try:
        return checked(text)
    except InvalidKey as error:
        raise ValueError(str(error)) from None


def _prefix(text: str) -> str:
    try:
        return checked_prefix(text)
    except InvalidKey as error:
        raise ValueError(str(error)) from None


def _host(text: str) -> str:
    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.port != 0 else None  # port 0 is refused, like an invalid port
    except ValueError:
        host = None
    if not host or len(text) > MAX_URL:
        raise ValueError(f"a source's URL names a host and has at most {MAX_URL} characters")
    return f"{parts.scheme}://{_brackets(host) if '[' in parts.netloc else host}"


def _brackets(host: str) -> str:
    """Return an IPv6 address in URL brackets, in its shortest spelling; raises ValueError."""
    try:
        return f"[{ipaddress.IPv6Address(host)}]"
    except ValueError:
        raise ValueError("a source's URL names a host; what stands in brackets is an IPv6 address") from None


def without_signature(text: str) -> str:
    """Return a source without the signature in its URL, because the same source has another signature each time."""
    if not text.startswith(("https://", "http://")):
        return text
    parts = urlsplit(text)
    query = parse_qsl(parts.query, keep_blank_values=True)
    is_signed = any(SIGNS(name) for name, _ in query)  # without a signature, `expires` is a name like any other
    is_azure = any(name == "sig" for name, _ in query)
    members = [
        (name, value)
        for name, value in query
        if not (is_signed and SIGNATURE(name)) and not (is_azure and name in AZURE)
    ]
    return parts._replace(query=urlencode(members), fragment="").geturl()
