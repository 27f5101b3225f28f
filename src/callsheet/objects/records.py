"""Parameter and result types of the objects interface. The repr of a record hides secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MOST_PARTS = 10_000


class ObjectInfo(NamedTuple):
    """An object's metadata. Lists leave `content_type` empty."""

    key: str
    size_bytes: int
    etag: str
    modified_ms: int
    content_type: str = ""


class Fetched(NamedTuple):
    """A finished transfer: the object, the SHA-256 of the whole object, and the bytes transferred by this call."""

    info: ObjectInfo
    sha256: str
    bytes_moved: int


class Signed(NamedTuple):
    """A signed request: valid without credentials until `expires_at_ms`, with exactly these headers."""

    method: str
    url: str
    headers: Mapping[str, str]
    expires_at_ms: int

    def __repr__(self) -> str:
        return f"Signed(method={self.method!r}, url='***', expires_at_ms={self.expires_at_ms})"


class Upload(NamedTuple):
    """An open multipart upload; the fields can be stored and reused later. All parts but the last have `part_bytes`."""

    key: str
    upload_id: str
    part_bytes: int
    content_type: str = ""


class Part(NamedTuple):
    """A written part of a multipart upload."""

    number: int
    etag: str
    size_bytes: int
