"""Detect a file's format by its first bytes, never by its name. The detected `Kind` names the only allowed demuxer.

Files that only point elsewhere (HLS, DASH, ffconcat, SDP and other lists) are refused: their demuxers open further
files and addresses on behalf of the list's author.

`check_structure` checks that a file is as long as its own structure declares: a truncated download often decodes
without error.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .errors import CorruptInput, EmptyFile, InputTooLarge, NotMedia, TruncatedInput, UnsupportedInput

MOST_BOXES = 200_000
SEGMENT = b"\x18\x53\x80\x67"
UNKNOWN_SIZES = (0, 0x7FFFFFFF, 0xFFFFFFFF)  # from writers that could not seek back
SLACK_BYTES = 8  # padding that only some writers count

HEAD_BYTES = 64 * 1024
TEXT_BYTES = 4096
MAX_BYTES = 100 * 1024**3
TS_PACKETS = ((188, 0), (192, 4))  # MPEG-TS, and the same with four bytes of time before each packet
TS_LOOKS = 5


def check_structure(demuxer: str, file: BinaryIO, size_bytes: int) -> None:
    """Raise TruncatedInput or CorruptInput for incomplete MP4, Matroska, AVI and WAV files."""
    check = {"mov": _check_boxes, "matroska": _check_segment, "avi": _check_riff, "wav": _check_riff}.get(demuxer)
    if check is not None:
        check(file, size_bytes)


def _check_boxes(file: BinaryIO, size_bytes: int) -> None:
    """Walk the boxes of an MP4 file: all boxes lie inside the file, one box is the index (`moov`)."""
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


class Kind(NamedTuple):
    """A media format; `demuxer` is ffmpeg's name for its reader."""

    name: str
    demuxer: str
    mime: str


MP3 = Kind("mp3", "mp3", "audio/mpeg")
AAC = Kind("aac", "aac", "audio/aac")
FLAC = Kind("flac", "flac", "audio/flac")
TS = Kind("mpegts", "mpegts", "video/mp2t")
MP4 = Kind("mp4", "mov", "video/mp4")
MATROSKA = Kind("matroska", "matroska", "video/x-matroska")
WEBM = Kind("webm", "matroska", "video/webm")
AVIF = Kind("avif", "mov", "image/avif")
# the first bytes of each format; "." is any byte
SIGNATURES: tuple[tuple[bytes, Kind], ...] = (
    (rb"....(ftyp|moov|mdat|wide|free|skip|pnot)", MP4),
    (rb"\x1a\x45\xdf\xa3", MATROSKA),
    (rb"RIFF....AVI ", Kind("avi", "avi", "video/x-msvideo")),
    (rb"(RIFF|RF64|BW64)....WAVE", Kind("wav", "wav", "audio/wav")),
    (rb"RIFF....WEBP", Kind("webp", "webp_pipe", "image/webp")),
    (rb"riff\x2e\x91\xcf\x11", Kind("w64", "w64", "audio/wav")),
    (rb"FLV\x01", Kind("flv", "flv", "video/x-flv")),
    (rb"OggS\x00", Kind("ogg", "ogg", "application/ogg")),
    (rb"fLaC", FLAC),
    (rb"FORM....AIF[FC]", Kind("aiff", "aiff", "audio/aiff")),
    (rb"caff\x00\x01", Kind("caf", "caf", "audio/x-caf")),
    (rb"#!AMR", Kind("amr", "amr", "audio/amr")),
    (rb"\x0b\x77", Kind("ac3", "ac3", "audio/ac3")),
    (rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11", Kind("asf", "asf", "video/x-ms-asf")),
    (rb"\x00\x00\x01\xba", Kind("mpeg", "mpeg", "video/mpeg")),
    (rb"\x06\x0e\x2b\x34", Kind("mxf", "mxf", "application/mxf")),
    (rb"DKIF", Kind("ivf", "ivf", "video/x-ivf")),
    (rb"YUV4MPEG2 ", Kind("y4m", "yuv4mpegpipe", "video/x-yuv4mpeg")),
    (rb"\x89PNG\r\n\x1a\n", Kind("png", "png_pipe", "image/png")),
    (rb"\xff\xd8\xff", Kind("jpeg", "jpeg_pipe", "image/jpeg")),
    (rb"GIF8[79]a", Kind("gif", "gif", "image/gif")),
)
_SIGNATURES = tuple((re.compile(pattern, re.DOTALL), kind) for pattern, kind in SIGNATURES)
KINDS = frozenset(kind for _, kind in SIGNATURES) | {MP3, AAC, TS, WEBM, AVIF}
LISTS: tuple[tuple[bytes, str], ...] = (
    (rb"#EXTM3U", "an HLS or M3U playlist"),
    (rb"ffconcat\b", "an ffconcat list"),
    (rb"<\?xml.*<MPD\b|<MPD\b", "a DASH manifest"),
    (rb".*<(SmoothStreamingMedia|CompositionPlaylist|smil|asx|playlist)\b", "a streaming manifest"),
    (rb"\[playlist\]|\[Reference\]", "a playlist"),
    (rb"v=0\s.*^m=", "a session description (SDP)"),
    (rb"(file|url)\s+\S", "a concat list"),
    (rb"(concatf?|subfile|crypto|data|async|cache|tee|https?|ftp|rtmp|rtsp|tcp|udp|gopher|file)[:,]", "an address"),
)
_LISTS = tuple((re.compile(pattern, re.DOTALL | re.MULTILINE | re.IGNORECASE), what) for pattern, what in LISTS)
OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"SQLite format 3", "a database"),
)


def sniff(path: Path, *, max_bytes: int = MAX_BYTES) -> Kind:
    """Return a file's format. Raises EmptyFile, NotMedia, UnsupportedInput or InputTooLarge.

    An incomplete MP4, Matroska, AVI or WAV file raises TruncatedInput or CorruptInput.
    """
    with open_regular_file(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:
            raise EmptyFile("the file is empty; upload it again")
        if size_bytes > max_bytes:
            raise InputTooLarge(f"the file has {size_bytes} bytes, and {max_bytes} are the most")
        kind = kind_of(file.read(HEAD_BYTES))
        check_structure(kind.demuxer, file, size_bytes)
        return kind


@contextmanager
def open_regular_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Links, pipes and devices are refused unread."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotMedia(f"the file cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotMedia("this is no regular file")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def kind_of(head: bytes) -> Kind:
    """Return the format that begins with these bytes."""
    if (text := _as_text(head[:TEXT_BYTES])) is not None:
        _refuse_text(text)
    for pattern, kind in _SIGNATURES:
        if pattern.match(head):
            return _subformat(kind, head)
    if _is_transport_stream(head):
        return TS
    if (audio := _bare_audio(head)) is not None:
        return audio
    what = next((what for magic, what in OTHERS if head.startswith(magic)), "not a form of media that is known here")
    raise NotMedia(f"the file is {what}")


def _as_text(head: bytes) -> bytes | None:
    """Return the beginning as UTF-8 if it is text; its last character may be incomplete."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) and not head.startswith(b"\xff\xfe\xff"):
        head = head.decode("utf-16", "replace").encode("utf-8", "replace")
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    strange = sum(not (mark.isprintable() or mark in "\r\n\t\f") for mark in text[:-1]) + text[:-1].count("�")
    return None if strange else text.encode()


def _refuse_text(text: bytes) -> None:
    if text.startswith((b"#!AMR", b"YUV4MPEG2 ")):  # these formats start with text
        return
    text = text.lstrip()
    for pattern, what in _LISTS:
        if pattern.match(text):
            raise UnsupportedInput(f"the file is {what}; such a list is never followed: send the media itself")
    raise NotMedia("the file is text, whatever its name says")


def _subformat(kind: Kind, head: bytes) -> Kind:
    if kind is MATROSKA and b"webm" in head[:64]:
        return WEBM
    if kind is MP4 and head[4:12] in (b"ftypavif", b"ftypavis", b"ftypheic", b"ftypmif1"):
        return AVIF
    return kind


def _is_transport_stream(head: bytes) -> bool:
    return any(
        len(head) > size + skip and all(head[at] == 0x47 for at in range(skip, min(len(head), size * TS_LOOKS), size))  # noqa: PLR2004
        for size, skip in TS_PACKETS
    )


def _bare_audio(head: bytes) -> Kind | None:
    """Detect MP3 or AAC without a container, perhaps after an ID3 tag. Two consecutive frames must match."""
    if head.startswith(b"ID3") and len(head) > 10:  # noqa: PLR2004
        tag = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
        rest = head[tag:]
        if not rest:
            return MP3  # a tag with a large picture
        if rest.startswith(b"fLaC"):
            return FLAC
        return _bare_audio(rest.lstrip(b"\0")) or (MP3 if not rest.lstrip(b"\0") else None)
    for kind, length in ((AAC, _aac_frame), (MP3, _mp3_frame)):
        first = length(head[:8])
        if first and (len(head) <= first + 8 or length(head[first : first + 8])):
            return kind
    return None


def _aac_frame(head: bytes) -> int:
    """Return the length of the ADTS frame at this point, or 0."""
    if len(head) < 7 or head[0] != 0xFF or head[1] & 0xF6 != 0xF0:  # noqa: PLR2004
        return 0
    length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return length if length > 7 else 0  # noqa: PLR2004


def _mp3_frame(head: bytes) -> int:
    """Return the length of the MPEG audio frame at this point, or 0."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:  # noqa: PLR2004
        return 0
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    rate, sampling, padding = head[2] >> 4, head[2] >> 2 & 3, head[2] >> 1 & 1
    if version == 1 or layer != 1 or rate in (0, 15) or sampling == 3:  # noqa: PLR2004 - layer III alone
        return 0
    first = version == 3  # noqa: PLR2004 - MPEG 1
    kbits = (RATES_1 if first else RATES_2)[rate - 1]
    hertz = (44100, 48000, 32000)[sampling] >> (0 if first else 1 if version == 2 else 2)  # noqa: PLR2004
    return (144 if first else 72) * kbits * 1000 // hertz + padding


RATES_1 = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
RATES_2 = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
