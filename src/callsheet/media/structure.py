"""Check that a file is as long as its own structure declares: a truncated download often decodes without error."""

from __future__ import annotations

import struct
from typing import BinaryIO

from .errors import CorruptInput, TruncatedInput

MOST_BOXES = 200_000
SEGMENT = b"\x18\x53\x80\x67"
UNKNOWN_SIZES = (0, 0x7FFFFFFF, 0xFFFFFFFF)  # from writers that could not seek back
SLACK_BYTES = 8  # padding that only some writers count


def check_structure(demuxer: str, file: BinaryIO, size_bytes: int) -> None:
    """Raise TruncatedInput or CorruptInput for incomplete MP4, Matroska, AVI and WAV files."""
    check = {"mov": _check_boxes, "matroska": _check_segment, "avi": _check_riff, "wav": _check_riff}.get(demuxer)
    if check is not None:
        check(file, size_bytes)


def _check_boxes(file: BinaryIO, size_bytes: int) -> None:
    """Walk the boxes of an MP4 file: each must lie inside the file, and one must be the index (`moov`)."""
    at, index = 0, False
    for _ in range(MOST_BOXES):
        file.seek(at)
        head = file.read(16)
        if len(head) < 8:  # noqa: PLR2004 - the size and the name of a box
            break
        length, name = struct.unpack(">I4s", head[:8])
        if length == 1 and len(head) == 16:  # noqa: PLR2004
            (length,) = struct.unpack(">Q", head[8:])
        elif length == 0:
            length = size_bytes - at
        if length < 8 or not name.isascii():  # noqa: PLR2004 - data after the last box does not matter
            break
        index = index or name in (b"moov", b"meta")
        if at + length > size_bytes:
            raise TruncatedInput(
                f"the file ends after {size_bytes} bytes, {at + length - size_bytes} too early; fetch it again"
            )
        at += length
    if not index:
        raise CorruptInput("the file has no index (moov): its writer did not finish, or it is not whole")


def _check_segment(file: BinaryIO, size_bytes: int) -> None:
    file.seek(0)
    head = file.read(4096)
    at = head.find(SEGMENT)
    if at < 0 or at + 12 > len(head):
        raise CorruptInput("the file has a Matroska head and nothing after it")
    first = head[at + 4]
    width = 9 - first.bit_length()
    if not first:
        raise CorruptInput("the file has a Matroska head and a size that cannot be")
    length = int.from_bytes(head[at + 4 : at + 4 + width], "big") & ((1 << 7 * width) - 1)
    is_unknown = length == (1 << 7 * width) - 1
    end = at + 4 + width + length
    if not is_unknown and end > size_bytes:
        raise TruncatedInput(f"the file ends after {size_bytes} bytes, {end - size_bytes} too early; fetch it again")


def _check_riff(file: BinaryIO, size_bytes: int) -> None:
    file.seek(0)
    magic, length = struct.unpack("<4sI", file.read(8))
    if magic == b"RIFF" and length not in UNKNOWN_SIZES and length > size_bytes - 8 + SLACK_BYTES:
        raise TruncatedInput(
            f"the file ends after {size_bytes} bytes, and says that it has {length + 8}; fetch it again"
        )
