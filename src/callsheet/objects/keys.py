"""The syntax of keys, equal for all storages, and the content type implied by a key's suffix."""

from __future__ import annotations

import mimetypes
import re

from .errors import InvalidKey

MOST_BYTES = 900  # S3 takes 1024, and a prefix of the bucket stands before it
MOST_SEGMENT_BYTES = 255  # as much as file systems take
OWN = ".callsheet"  # what a folder keeps for itself
OCTETS = "application/octet-stream"
_REFUSED = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_TYPE = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(; ?[\w.-]+=[\w.+-]+)*", re.ASCII).fullmatch
_TYPES = mimetypes.MimeTypes()  # Python's own table: that of the machine would differ from machine to machine
for _suffix, _type in {
    ".m3u8": "application/vnd.apple.mpegurl",
    ".ts": "video/mp2t",
    ".m4s": "video/iso.segment",
    ".mkv": "video/x-matroska",
    ".flac": "audio/flac",
    ".opus": "audio/ogg",
    ".ogg": "audio/ogg",
    ".m4a": "audio/mp4",
    ".vtt": "text/vtt",
    ".srt": "application/x-subrip",
    ".webp": "image/webp",
    ".avif": "image/avif",
}.items():
    _TYPES.add_type(_type, _suffix)


def checked(key: str) -> str:
    """Return the key unchanged; raises InvalidKey for a malformed key."""
    if not key or _REFUSED.search(key) or len(key.encode()) > MOST_BYTES:
        raise InvalidKey(f"a key has 1 to {MOST_BYTES} bytes, no backslash and no control character")
    segments = key.split("/")
    if any(segment in {"", ".", ".."} or len(segment.encode()) > MOST_SEGMENT_BYTES for segment in segments):
        raise InvalidKey(
            f"a key is names of 1 to {MOST_SEGMENT_BYTES} bytes between single slashes, none of them . or .."
        )
    if segments[0] == OWN:
        raise InvalidKey(f"keys do not begin with {OWN}/")
    return key


def checked_prefix(prefix: str) -> str:
    """Return a folder of keys without its trailing slash, '' for all keys; raises InvalidKey."""
    bare = prefix.removesuffix("/")
    return checked(bare) if bare or prefix else ""


def checked_type(content_type: str | None, key: str) -> str:
    """Return the given content type, or the type implied by the key's suffix; raises InvalidKey if malformed."""
    if content_type is None:
        return _TYPES.guess_type(key, strict=False)[0] or OCTETS
    if not _TYPE(content_type):
        raise InvalidKey("a content type looks like video/mp4")
    return content_type
