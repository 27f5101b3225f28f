"""RapidOCR, an optional engine with bundled models, run by ONNX.

It finds more in hard frames, at several times the cost. Its own picture decoder is not used: frames pass the same
decoder and checks as Tesseract's.
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
# the package has one model for all of these; models of other scripts would need a download
LANGUAGES = frozenset({"eng", "deu", "fra", "spa", "ita", "por", "nld", "chi_sim"})
LONGEST_SIDE = 960  # size for line detection; 640 loses a fifth of the words, 1280 costs half as much again
SETTINGS = {
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "Global.use_cls": False,
    "Global.log_level": "critical",
    "Det.limit_type": "max",
    "Det.limit_side_len": LONGEST_SIDE,
}
PASSES = f"side-{LONGEST_SIDE}"


def languages() -> frozenset[str]:
    """Return the languages of the bundled model. Raises EngineMissing."""
    if importlib.util.find_spec("rapidocr") is None or importlib.util.find_spec("onnxruntime") is None:
        raise EngineMissing(MISSING)
    return LANGUAGES


def advice(languages: Sequence[str]) -> str:
    """Recommend Tesseract, since the package has only one model."""
    return f"For {', '.join(languages)} use the engine tesseract"


def data_for(_languages: Sequence[str]) -> Path | None:
    """Return None: the package includes its data."""
    return None


def engine(data: Path | None = None) -> Engine:
    """Load the engine. Raises EngineMissing."""
    return Rapid(data)


class Rapid:
    """The RapidOCR engine. One instance serves one thread."""

    name = "rapidocr"

    def __init__(self, _data: Path | None = None) -> None:
        try:
            self._read: Any = import_module("rapidocr").RapidOCR(params=SETTINGS)
        except ImportError:
            raise EngineMissing(MISSING) from None

    @property
    def version(self) -> str:
        """Version of the package, and the detection size."""
        return f"{version('rapidocr')} {PASSES}"

    def read(self, picture: bytes, languages: Sequence[str], *, thorough: bool = False) -> list[Word]:  # noqa: ARG002
        """Return all words; `thorough` has no effect. Raises NotAPicture and InputTooLarge."""
        from .picture import bgr  # noqa: PLC0415 - the parent reads the languages without these packages

        pixels = bgr(picture)
        if pixels is None:
            return []
        result = self._read(pixels, return_word_box=True)
        return list(_words(result.word_results or (), languages[0]))


def _words(lines: Sequence[Sequence[Any]], language: str) -> Iterator[Word]:
    """Yield each line's words as one block; a word has text, score and four corners."""
    for number, line in enumerate(lines, 1):
        for text, score, corners in line:
            if text.strip() and corners is not None:
                yield Word(text.strip(), _box(corners), 100 * float(score), language, number, number, "rapid")


def _box(corners: Sequence[Sequence[float]]) -> Box:
    across, down = [int(x) for x, _ in corners], [int(y) for _, y in corners]
    return Box(min(across), min(down), max(across) - min(across), max(down) - min(down))
