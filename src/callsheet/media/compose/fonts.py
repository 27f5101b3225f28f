"""Choose the fonts for a script: those of this machine, with Pillow's own font as the last resort.

Each character gets a face. A character that no font has raises an error before any work, so that no empty box appears
on the screen.

An error names the package to install, as Debian and Ubuntu call it.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from PIL import ImageFont, features

from .errors import MissingGlyphs, ShapingMissing
from .sfnt import FontFile, NotAFont, read_bytes, read_fonts

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

VARIABLE = "CALLSHEET_FONTS"
SUFFIXES = (".ttf", ".otf", ".ttc", ".otc")
# plain faces for screens first; a machine that has none of them still has Pillow's own
FAMILIES = (
    "Inter",
    "Inter Variable",
    "Source Sans 3",
    "Noto Sans",
    "Open Sans",
    "Roboto",
    "Ubuntu",
    "Helvetica Neue",
    "Segoe UI",
    "Liberation Sans",
    "Arial",
    "DejaVu Sans",
)
PLAIN_STYLES = ("regular", "book", "roman", "normal", "medium")
BOLD_STYLES = ("bold", "semibold", "demibold", "demi bold")
ODD = ("mono", "serif", "condensed", "italic", "oblique", "math", "symbol", "display", "light", "black", "thin")
MOST_FILES = 5_000
LISTED_CHARACTERS = 12
# in these scripts letters join or change order, which needs libraqm
SHAPED_SCRIPTS = frozenset({
    "ARABIC", "BENGALI", "DEVANAGARI", "GUJARATI", "GURMUKHI", "HEBREW", "KANNADA", "KHMER", "LAO",
    "MALAYALAM", "MONGOLIAN", "MYANMAR", "NKO", "ORIYA", "SINHALA", "SYRIAC", "TAMIL", "TELUGU",
    "THAANA", "THAI", "TIBETAN",
})  # fmt: skip
# replacements for signs that no face has; Pillow's own font has all of them
SIMPLER = {"—": "-", "–": "-", "‑": "-", "…": "...", "’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "•": "-"}
SIMPLER |= {"→": "->", "×": "x", "−": "-"}


def package_for(character: str) -> str:
    """Return the package, and its font's name for other systems."""
    return STRETCHES[bisect_right(STARTS, ord(character)) - 1][1]


class Faces(NamedTuple):
    """The fonts of one script, best first. An empty path means Pillow's own font."""

    plain: tuple[FontFile, ...]
    bold: tuple[FontFile, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The font files to read."""
        return tuple({Path(face.path) for face in (*self.plain, *self.bold) if face.path})


def choose(texts: Iterable[str], folders: tuple[Path, ...] | None = None) -> Faces:
    """Return the faces for all drawn texts. Raises MissingGlyphs or ShapingMissing."""
    characters = drawn_characters(texts)
    check_shaping(characters)
    fonts = tuple(_by_preference(font_folders() if folders is None else folders))
    faces = _cover(characters, fonts)
    missing = sorted(one for one in characters if not any(face.has(one) for face in faces) and one not in SIMPLER)
    if missing:
        raise MissingGlyphs(_complaint(missing))
    return Faces(tuple(faces), tuple(_bold_of(face, fonts) for face in faces))


def drawn_characters(texts: Iterable[str]) -> set[str]:
    """Return the characters that need a glyph: no spaces, joiners or selectors."""
    characters = {character for text in texts for character in text}
    return {character for character in characters if needs_glyph(character)}


def needs_glyph(character: str) -> bool:
    """Whether a character is drawn. Spaces, joiners, direction marks and variant selectors are not."""
    return unicodedata.category(character) not in ("Cf", "Zs", "Cc", "Zl", "Zp") and not is_selector(character)


def is_selector(character: str) -> bool:
    """Whether a character is a variation selector or part of a flag's tag."""
    return 0xFE00 <= ord(character) <= 0xFE0F or 0xE0000 <= ord(character) <= 0xE01EF  # noqa: PLR2004


def check_shaping(characters: Iterable[str]) -> None:
    """Raise ShapingMissing for scripts that Pillow draws wrong without libraqm."""
    if features.check("raqm"):
        return
    shaped_characters = sorted(
        one for one in characters if unicodedata.name(one, "").partition(" ")[0] in SHAPED_SCRIPTS
    )
    if shaped_characters:
        script = unicodedata.name(shaped_characters[0]).partition(" ")[0].capitalize()
        raise ShapingMissing(
            f"{script} text needs letters that join or change places, and this Pillow is built without libraqm; "
            "pip install --force-reinstall pillow gives one that has it"
        )


def font_folders() -> tuple[Path, ...]:
    """Return the folders in CALLSHEET_FONTS, then the system's font folders."""
    home = Path.home()
    shared_folders = os.environ.get("XDG_DATA_DIRS", "/usr/local/share:/usr/share").split(":")
    places = [Path(place) for place in os.environ.get(VARIABLE, "").split(os.pathsep) if place]
    places += [
        home / ".local/share/fonts",
        home / ".fonts",
        *(Path(place) / "fonts" for place in shared_folders if place),
    ]
    if sys.platform == "darwin":
        places += [home / "Library/Fonts", Path("/Library/Fonts"), Path("/System/Library/Fonts")]
    return tuple(dict.fromkeys(place for place in places if place.is_dir()))


def _by_preference(folders: tuple[Path, ...]) -> Iterator[FontFile]:
    """Return all fonts, preferred ones first; Pillow's own ranks before faces that only fill gaps."""
    yield from sorted([*_read_folders(folders), pillow_font()], key=_rank)


def _rank(font: FontFile) -> tuple[int, int, str]:
    style, family = font.style.lower(), font.family
    plain = style in PLAIN_STYLES
    if family in FAMILIES and plain:
        return 0, FAMILIES.index(family), font.path
    if not font.path:
        return 1, 0, ""
    odd = sum(word in f"{family} {style}".lower() for word in ODD)
    return (2 if plain and not odd else 3), odd * 2 + (not plain) - family.startswith("Noto Sans"), font.path


@cache
def pillow_font() -> FontFile:
    """Return the font inside Pillow: Latin letters only, but always available."""
    return read_bytes(pillow_font_bytes())


@cache
def pillow_font_bytes() -> bytes:
    """Return the file content of Pillow's own font."""
    data = getattr(ImageFont.load_default(16), "font_bytes", None)
    if not isinstance(data, bytes):  # a Pillow without FreeType
        raise MissingGlyphs("this Pillow is built without FreeType; pip install --force-reinstall pillow")
    return data


@lru_cache(maxsize=4)
def _read_folders(folders: tuple[Path, ...]) -> tuple[FontFile, ...]:
    fonts: dict[str, FontFile] = {}
    for path in _files(folders):
        try:
            for font in read_fonts(path):
                fonts.setdefault(f"{font.family}/{font.style}/{font.number}", font)
        except (NotAFont, OSError):
            continue  # skip a broken font file
    return tuple(fonts.values())


def _files(folders: tuple[Path, ...]) -> Iterator[Path]:
    count = 0
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in sorted(names):
                if name.lower().endswith(SUFFIXES) and count < MOST_FILES:
                    count += 1
                    yield Path(place, name)


def _cover(characters: set[str], fonts: tuple[FontFile, ...]) -> list[FontFile]:
    """Return the face that has most characters, then faces for the remaining ones, in order of preference."""
    if not fonts:
        return []
    best = max(fonts[:64], key=lambda face: sum(map(face.has, characters)) if _is_text(face) else -1)
    faces = [best]
    missing = {character for character in characters if not best.has(character)}
    for face in sorted(fonts, key=lambda one: not one.is_colour) if any(map(is_emoji, characters)) else fonts:
        if not missing:
            break
        coverable = {character for character in missing if face.has(character)}
        if coverable and (not face.is_colour or any(map(is_emoji, coverable))):
            faces.append(face)
            missing -= coverable
    return faces


def _is_text(face: FontFile) -> bool:
    return not face.is_colour and face.has("a") and face.has("0")


def is_emoji(character: str) -> bool:
    """Whether a character is an emoji, which fonts may draw in colour."""
    return 0x1F000 <= ord(character) <= 0x1FAFF or 0x1F1E6 <= ord(character) <= 0x1F1FF  # noqa: PLR2004


def _bold_of(face: FontFile, fonts: tuple[FontFile, ...]) -> FontFile:
    same = [font for font in fonts if font.family == face.family and font.style.lower() in BOLD_STYLES and font.path]
    return min(same, key=lambda font: BOLD_STYLES.index(font.style.lower())) if same else face


def _complaint(missing: list[str]) -> str:
    listing = ", ".join(f"{character} (U+{ord(character):04X})" for character in missing[:LISTED_CHARACTERS])
    more = f" and {len(missing) - LISTED_CHARACTERS} more" if len(missing) > LISTED_CHARACTERS else ""
    packages = sorted({package_for(character) for character in missing})
    return (
        f"no font here has the characters {listing}{more}; install {' and '.join(packages)}, "
        f"or put a font file that has them into a folder named by {VARIABLE}"
    )
