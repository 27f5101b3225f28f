"""RapidOCR, an extra: models inside its package, run by ONNX. It finds more in hard frames, at several times the cost.

Its own reader of pictures is not used: frames come from the same door as Tesseract's, with the same checks.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import EngineMissing
from .records import Box, Word

if TYPE_CHECKING:
    from .engines import Engine

MISSING = "rapidocr is not installed; pip install 'callsheet[rapidocr]'"
# one model for all of these is in the package; those of other scripts would have to be fetched
LANGUAGES = frozenset({"eng", "deu", "fra", "spa", "ita", "por", "nld", "chi_sim"})
LONGEST_SIDE = 960  # what lines are looked for in; 640 loses a fifth of the words, 1280 costs half as much again
SETTINGS = {
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "Global.use_cls": False,
    "Global.log_level": "critical",
    "Det.limit_type": "max",
    "Det.limit_side_len": LONGEST_SIDE,
}
PASSES = f"side-{LONGEST_SIDE}"


def languages() -> frozenset[str]:
    """Those of the model in the package; raises EngineMissing."""
    if importlib.util.find_spec("rapidocr") is None or importlib.util.find_spec("onnxruntime") is None:
        raise EngineMissing(MISSING)
    return LANGUAGES


def advice(languages: Sequence[str]) -> str:
    """There is one model."""
    return f"For {', '.join(languages)} use the engine tesseract"


def data_for(_languages: Sequence[str]) -> Path | None:
    """Nothing beside the package."""
    return None


def engine(data: Path | None = None) -> Engine:
    """Load it; raises EngineMissing."""
    return Rapid(data)


class Rapid:
    """One of these serves one thread."""

    name = "rapidocr"

    def __init__(self, _data: Path | None = None) -> None:
        try:
            self._read: Any = import_module("rapidocr").RapidOCR(params=SETTINGS)
        except ImportError:
            raise EngineMissing(MISSING) from None

    @property
    def version(self) -> str:
        """Of the package, and of what lines are looked for in."""
        return f"{version('rapidocr')} {PASSES}"

    def read(self, picture: bytes, languages: Sequence[str], *, thorough: bool = False) -> list[Word]:  # noqa: ARG002
        """All words; `thorough` changes nothing. Raises NotAPicture and InputTooLarge."""
        from .picture import bgr  # noqa: PLC0415 - the parent asks for languages without the packages of this

        pixels = bgr(picture)
        if pixels is None:
            return []
        found = self._read(pixels, return_word_box=True)
        return list(_words(found.word_results or (), languages[0]))


def _words(lines: Sequence[Sequence[Any]], language: str) -> Iterator[Word]:
    """Each line is a block; a word is its text, its score and four corners."""
    for number, line in enumerate(lines, 1):
        for text, score, corners in line:
            if text.strip() and corners is not None:
                yield Word(text.strip(), _box(corners), 100 * float(score), language, number, number, "rapid")


def _box(corners: Sequence[Sequence[float]]) -> Box:
    across, down = [int(x) for x, _ in corners], [int(y) for _, y in corners]
    return Box(min(across), min(down), max(across) - min(across), max(down) - min(down))
