"""Which font package to install for a character without a glyph. Package names are those of Debian and Ubuntu."""

from __future__ import annotations

from bisect import bisect_right

CJK = "fonts-noto-cjk (Noto Sans CJK)"
EMOJI = "fonts-noto-color-emoji (NotoColorEmoji.ttf with bitmaps; COLRv1 fonts cannot be drawn)"
OTHER = "fonts-noto-core and fonts-noto-extra (Noto Sans for all scripts)"
CORE = "fonts-noto-core (Noto Sans)"
# first character of each stretch, in order
STRETCHES = (
    (0x0000, CORE),
    (0x1100, CJK),
    (0x1200, OTHER),
    (0x2E80, CJK),
    (0xA000, OTHER),
    (0xAC00, CJK),
    (0xD800, OTHER),
    (0xF900, CJK),
    (0xFB00, CORE),
    (0xFE30, CJK),
    (0xFE70, CORE),
    (0xFF00, CJK),
    (0x10000, OTHER),
    (0x1F000, EMOJI),
    (0x1FB00, OTHER),
    (0x20000, CJK),
    (0x40000, OTHER),
)
STARTS = tuple(start for start, _ in STRETCHES)


def package_for(character: str) -> str:
    """Return the package, and its font's name for other systems."""
    return STRETCHES[bisect_right(STARTS, ord(character)) - 1][1]
