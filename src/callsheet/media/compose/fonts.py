"""Which fonts draw a script: those of this machine, and the one inside Pillow as the floor.

A face is picked for each character that is to be drawn. A character that no font has is an error before anything is
made, never a box on the screen.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from PIL import ImageFont, features

from .advice import package_for
from .errors import MissingGlyphs, ShapingMissing
from .sfnt import FontFile, NotAFont, read_bytes, read_fonts

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
SHOWN = 12
# letters of these are joined or reordered, which is work for libraqm
SHAPED = frozenset({"ARABIC", "BENGALI", "DEVANAGARI", "GUJARATI", "GURMUKHI", "HEBREW", "KANNADA", "KHMER", "LAO"})
SHAPED |= {"MALAYALAM", "MONGOLIAN", "MYANMAR", "NKO", "ORIYA", "SINHALA", "SYRIAC", "TAMIL", "TELUGU", "THAANA"}
SHAPED |= {"THAI", "TIBETAN"}
# what is drawn for a sign that no face has; all of it is in Pillow's own font
SIMPLER = {"—": "-", "–": "-", "‑": "-", "…": "...", "’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "•": "-"}
SIMPLER |= {"→": "->", "×": "x", "−": "-"}


class Faces(NamedTuple):
    """The fonts of one script, best first. An empty path is Pillow's own font."""

    plain: tuple[FontFile, ...]
    bold: tuple[FontFile, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read to draw."""
        return tuple({Path(face.path) for face in (*self.plain, *self.bold) if face.path})


def choose(texts: Iterable[str], folders: tuple[Path, ...] | None = None) -> Faces:
    """The faces for all that is to be drawn; raises MissingGlyphs or ShapingMissing."""
    wanted = drawn_characters(texts)
    check_shaping(wanted)
    known = tuple(_ranked(font_folders() if folders is None else folders))
    chosen = _cover(wanted, known)
    missing = sorted(one for one in wanted if not any(face.has(one) for face in chosen) and one not in SIMPLER)
    if missing:
        raise MissingGlyphs(_complaint(missing))
    return Faces(tuple(chosen), tuple(_bold_of(face, known) for face in chosen))


def drawn_characters(texts: Iterable[str]) -> set[str]:
    """Characters that need a glyph: no spaces, and none that only say how others are to be drawn."""
    found = {character for text in texts for character in text}
    return {character for character in found if needs_glyph(character)}


def needs_glyph(character: str) -> bool:
    """False for spaces, joiners, marks of direction, and selectors of variants."""
    return unicodedata.category(character) not in ("Cf", "Zs", "Cc", "Zl", "Zp") and not is_selector(character)


def is_selector(character: str) -> bool:
    """Variation selectors, and the tags of flags."""
    return 0xFE00 <= ord(character) <= 0xFE0F or 0xE0000 <= ord(character) <= 0xE01EF  # noqa: PLR2004


def check_shaping(characters: Iterable[str]) -> None:
    """Raise ShapingMissing for scripts that would be drawn wrong without libraqm."""
    if features.check("raqm"):
        return
    found = sorted(one for one in characters if unicodedata.name(one, "").partition(" ")[0] in SHAPED)
    if found:
        script = unicodedata.name(found[0]).partition(" ")[0].capitalize()
        raise ShapingMissing(
            f"{script} text needs letters that join or change places, and this Pillow is built without libraqm; "
            "pip install --force-reinstall pillow gives one that has it"
        )


def font_folders() -> tuple[Path, ...]:
    """CALLSHEET_FONTS first, then the folders in which systems keep fonts."""
    home = Path.home()
    shared = os.environ.get("XDG_DATA_DIRS", "/usr/local/share:/usr/share").split(":")
    places = [Path(place) for place in os.environ.get(VARIABLE, "").split(os.pathsep) if place]
    places += [home / ".local/share/fonts", home / ".fonts", *(Path(place) / "fonts" for place in shared if place)]
    if sys.platform == "darwin":
        places += [home / "Library/Fonts", Path("/Library/Fonts"), Path("/System/Library/Fonts")]
    return tuple(dict.fromkeys(place for place in places if place.is_dir()))


def _ranked(folders: tuple[Path, ...]) -> Iterator[FontFile]:
    """All fonts, those to prefer first; Pillow's own comes before faces that only fill gaps."""
    yield from sorted([*_installed(folders), embedded()], key=_rank)


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
def embedded() -> FontFile:
    """The font inside Pillow: Latin letters only, but always there."""
    return read_bytes(embedded_bytes())


@cache
def embedded_bytes() -> bytes:
    """Its file."""
    data = getattr(ImageFont.load_default(16), "font_bytes", None)
    if not isinstance(data, bytes):  # a Pillow without FreeType
        raise MissingGlyphs("this Pillow is built without FreeType; pip install --force-reinstall pillow")
    return data


@lru_cache(maxsize=4)
def _installed(folders: tuple[Path, ...]) -> tuple[FontFile, ...]:
    found: dict[str, FontFile] = {}
    for path in _files(folders):
        try:
            for font in read_fonts(path):
                found.setdefault(f"{font.family}/{font.style}/{font.number}", font)
        except (NotAFont, OSError):
            continue  # a broken file is not ours to mend
    return tuple(found.values())


def _files(folders: tuple[Path, ...]) -> Iterator[Path]:
    count = 0
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in sorted(names):
                if name.lower().endswith(SUFFIXES) and count < MOST_FILES:
                    count += 1
                    yield Path(place, name)


def _cover(wanted: set[str], known: tuple[FontFile, ...]) -> list[FontFile]:
    """The first face that has most of it, then those that fill its gaps, in the order of preference."""
    if not known:
        return []
    best = max(known[:64], key=lambda face: sum(map(face.has, wanted)) if _is_text(face) else -1)
    chosen = [best]
    left = {character for character in wanted if not best.has(character)}
    for face in sorted(known, key=lambda one: not one.is_colour) if any(map(is_emoji, wanted)) else known:
        if not left:
            break
        has = {character for character in left if face.has(character)}
        if has and (not face.is_colour or any(map(is_emoji, has))):
            chosen.append(face)
            left -= has
    return chosen


def _is_text(face: FontFile) -> bool:
    return not face.is_colour and face.has("a") and face.has("0")


def is_emoji(character: str) -> bool:
    """Pictographs that are shown in colour where a font has them."""
    return 0x1F000 <= ord(character) <= 0x1FAFF or 0x1F1E6 <= ord(character) <= 0x1F1FF  # noqa: PLR2004


def _bold_of(face: FontFile, known: tuple[FontFile, ...]) -> FontFile:
    """The bold face of a family, or the face itself."""
    same = [font for font in known if font.family == face.family and font.style.lower() in BOLD_STYLES and font.path]
    return min(same, key=lambda font: BOLD_STYLES.index(font.style.lower())) if same else face


def _complaint(missing: list[str]) -> str:
    shown = ", ".join(f"{character} (U+{ord(character):04X})" for character in missing[:SHOWN])
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    packages = sorted({package_for(character) for character in missing})
    return (
        f"no font here has the characters {shown}{more}; install {' and '.join(packages)}, "
        f"or put a font file that has them into a folder named by {VARIABLE}"
    )
