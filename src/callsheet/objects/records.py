"""What the face takes and gives. A record that carries a secret does not show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MOST_PARTS = 10_000


class ObjectInfo(NamedTuple):
    """An object without its bytes. A list does not know content types: '' there."""

    key: str
    size_bytes: int
    etag: str
    modified_ms: int
    content_type: str = ""


class Fetched(NamedTuple):
    """What was moved: the object, the SHA-256 of all of it, and the bytes that went over the wire this time."""

    info: ObjectInfo
    sha256: str
    bytes_moved: int


class Signed(NamedTuple):
    """A request that anybody may make until it expires, with exactly these headers."""

    method: str
    url: str
    headers: Mapping[str, str]
    expires_at_ms: int

    def __repr__(self) -> str:
        return f"Signed(method={self.method!r}, url='***', expires_at_ms={self.expires_at_ms})"


class Upload(NamedTuple):
    """An open multipart upload, which these fields name again at any time. All parts but the last have `part_bytes`."""

    key: str
    upload_id: str
    part_bytes: int
    content_type: str = ""


class Part(NamedTuple):
    """A part that arrived."""

    number: int
    etag: str
    size_bytes: int
