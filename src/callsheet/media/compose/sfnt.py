"""Read a font file's names and characters. TrueType, OpenType and their collections.

A machine may have hundreds of font files, so only a few tables of each are read.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

COLLECTION = b"ttcf"
FORMS = (b"\x00\x01\x00\x00", b"OTTO", b"true")
UNICODE, MACINTOSH, WINDOWS = 0, 1, 3
FAMILY, STYLE, TYPO_FAMILY, TYPO_STYLE = 1, 2, 16, 17
BITMAP_TABLES = frozenset({b"CBDT", b"sbix"})
COLOUR_TABLES = BITMAP_TABLES | {b"COLR"}
MOST_BYTES = 4 << 20
MOST_FONTS = 64


class NotAFont(ValueError):
    """The file is damaged, or no TrueType or OpenType font."""


@dataclass(frozen=True, eq=False, slots=True)
class FontFile:
    """One font, the `number`th of its file. `starts` and `ends` are the sorted character ranges.

    Not a tuple, because it is a cache key, and hashing a tuple would read thousands of ranges each time.
    """

    path: str
    number: int
    family: str
    style: str
    is_colour: bool
    is_variable: bool
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def has(self, character: str) -> bool:
        """Whether this font contains a glyph for a character."""
        at = bisect_right(self.starts, ord(character)) - 1
        return at >= 0 and ord(character) <= self.ends[at]


def read_fonts(path: Path) -> list[FontFile]:
    """Return all fonts of a file. Raises NotAFont or OSError."""
    with path.open("rb") as file:
        return _read(file, str(path))


def read_bytes(data: bytes) -> FontFile:
    """Return the font in a buffer, with an empty path. Raises NotAFont."""
    return _read(BytesIO(data), "")[0]


def _read(file: BinaryIO, path: str) -> list[FontFile]:
    try:
        head = file.read(12)
        if head[:4] == COLLECTION:
            count = min(MOST_FONTS, struct.unpack(">I", head[8:12])[0])
            places = struct.unpack(f">{count}I", file.read(4 * count))
        elif head[:4] in FORMS:
            places = (0,)
        else:
            raise NotAFont("no font")
        return [_font(file, path, index, place) for index, place in enumerate(places)]
    except (struct.error, IndexError, OverflowError, KeyError) as error:
        raise NotAFont(str(error)) from None


def _font(file: BinaryIO, path: str, index: int, place: int) -> FontFile:
    file.seek(place + 4)
    count = struct.unpack(">H", file.read(2))[0]
    file.read(6)
    tables = {}
    for _ in range(count):
        tag, _sum, offset, length = struct.unpack(">4sIII", file.read(16))
        tables[tag] = (offset, min(length, MOST_BYTES))
    if not _is_drawable(file, tables):
        raise NotAFont("its glyphs are paintings (COLR version 1 or SVG), which FreeType leaves blank here")
    names = _names(_table(file, tables[b"name"]))
    ranges = _ranges(_table(file, tables[b"cmap"]))
    return FontFile(
        path,
        index,
        names.get(TYPO_FAMILY) or names.get(FAMILY, ""),
        names.get(TYPO_STYLE) or names.get(STYLE, ""),
        bool(COLOUR_TABLES & tables.keys()),
        b"fvar" in tables,
        tuple(start for start, _ in ranges),
        tuple(end for _, end in ranges),
    )


def _is_drawable(file: BinaryIO, tables: dict[bytes, tuple[int, int]]) -> bool:
    """Whether the font's plain glyphs have content; some colour fonts have blank ones."""
    if BITMAP_TABLES & tables.keys():
        return True
    if b"COLR" in tables:
        version, plain_layers = struct.unpack(">HH", _table(file, tables[b"COLR"])[:4])
        return bool(version == 0 or plain_layers > 0)
    return b"SVG " not in tables


def _table(file: BinaryIO, place: tuple[int, int]) -> bytes:
    file.seek(place[0])
    return file.read(place[1])


def _names(table: bytes) -> dict[int, str]:
    """Return names by number; English names of Windows take precedence."""
    names: dict[int, str] = {}
    count, texts = struct.unpack(">HH", table[2:6])
    for at in range(count):
        platform, _, language, number, length, offset = struct.unpack(">6H", table[6 + 12 * at : 18 + 12 * at])
        raw = table[texts + offset : texts + offset + length]
        text = raw.decode("mac_roman" if platform == MACINTOSH else "utf-16-be", "replace")
        if number not in names or (platform == WINDOWS and language == 0x409):  # noqa: PLR2004 - English
            names[number] = text
    return names


def _ranges(table: bytes) -> list[tuple[int, int]]:
    best: list[tuple[int, int]] = []
    best_format = -1
    for at in range(struct.unpack(">H", table[2:4])[0]):
        platform, encoding, offset = struct.unpack(">HHI", table[4 + 8 * at : 12 + 8 * at])
        form = struct.unpack(">H", table[offset : offset + 2])[0]
        if (
            form in (4, 12)
            and form > best_format
            and (platform == UNICODE or (platform, encoding) in ((3, 1), (3, 10)))
        ):
            best, best_format = (_long(table[offset:]) if form == 12 else _short(table[offset:])), form  # noqa: PLR2004
    return sorted(best)


def _long(table: bytes) -> list[tuple[int, int]]:
    """Parse format 12: groups of (first, last, glyph); a group of glyph 0 is empty."""
    count = struct.unpack(">I", table[12:16])[0]
    groups = struct.iter_unpack(">III", table[16 : 16 + 12 * count])
    return [(first, last) for first, last, glyph in groups if glyph or last > first]


def _short(table: bytes) -> list[tuple[int, int]]:
    """Parse format 4: segments with a delta, or with an offset into a glyph list, in which 0 means no glyph."""
    count = struct.unpack(">H", table[6:8])[0] // 2

    def column(at: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}H", table[at : at + 2 * count])

    ends, starts = column(14), column(16 + 2 * count)
    deltas, offsets = column(16 + 4 * count), column(16 + 6 * count)
    ranges: list[tuple[int, int]] = []
    for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start > end or start == 0xFFFF:  # noqa: PLR2004 - the last segment is a mark
            continue
        if not offsets[at]:
            hole = (-deltas[at]) & 0xFFFF  # the one character that would be glyph 0
            ranges += [(start, end)] if not start <= hole <= end else [(start, hole - 1), (hole + 1, end)]
            continue
        base = 16 + 6 * count + 2 * at + offsets[at]
        glyphs = table[base : base + 2 * (end - start + 1)]
        ranges += [(start + n, start + n) for n in range(len(glyphs) // 2) if glyphs[2 * n : 2 * n + 2] != b"\0\0"]
    return [(start, end) for start, end in ranges if start <= end]
