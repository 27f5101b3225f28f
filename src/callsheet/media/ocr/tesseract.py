"""Tesseract inside this process, by tesserocr: the whole picture, then its bright text alone, then if asked once more.

One pass over the whole finds text on even ground; captions over pictures are found in the mask of what is bright.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from . import tessdata
from .errors import EngineMissing
from .merging import merged
from .picture import bright_text, grey
from .records import Box, Word

MASK_CONFIDENCE = 60.0  # of a word that only the second or third pass sees
KNOWN_CONFIDENCE = 80.0  # from here on the first pass is believed, and the second need not look there
LONG = 16  # letters of a word that is judged by each of them
SURE_LETTERS = 80.0  # on average
PASSES = "passes-2"  # changes when the same pictures would give other words
RESOLUTION = 70  # of a screen, in dots per inch: else Tesseract guesses, and says so


class Tesseract:
    """One of these serves any number of threads: each has its own program in memory, per set of languages."""

    name = "tesseract"

    def __init__(self, data: Path | None = None) -> None:
        os.environ["OMP_THREAD_LIMIT"] = "1"  # before the import: several threads for one picture are slower than one
        try:
            tesserocr = import_module("tesserocr")  # an extra, without types
        except ImportError:
            raise EngineMissing(tessdata.MISSING) from None
        self._tesserocr: Any = tesserocr
        self._data = data
        self._local = threading.local()

    @property
    def version(self) -> str:
        """Of the library, and of the passes made here."""
        return f"{self._tesserocr.tesseract_version().split()[1]} {PASSES}"

    def read(self, picture: bytes, languages: Sequence[str], *, thorough: bool = False) -> list[Word]:
        """All words of all passes, each once; raises NotAPicture, InputTooLarge and LanguageMissing."""
        image = grey(picture)
        if image is None:
            return []
        api, modes = self._api(tuple(languages)), self._tesserocr.PSM
        _show(api, image.tobytes(), image.width, image.height)
        words = self._judged(api, list(self._recognised(api, modes.AUTO, "whole")))
        mask = bright_text(image, [word.box for word in words if word.confidence >= KNOWN_CONFIDENCE])
        if mask is not None:
            _show(api, mask.pixels.tobytes(), mask.pixels.shape[1], mask.pixels.shape[0])
            found = self._recognised(api, modes.SPARSE_TEXT, "bright")
            words = merged(words, [_moved(word, mask.x, mask.y) for word in found if _is_sure(word)])
        if thorough:
            _show(api, image.tobytes(), image.width, image.height)
            api.SetVariable("thresholding_method", "2")  # Sauvola: a limit for each neighbourhood
            found = self._recognised(api, modes.AUTO, "local")
            words = merged(words, [word for word in found if _is_sure(word)])
            api.SetVariable("thresholding_method", "0")
        api.Clear()
        return words

    def _api(self, languages: tuple[str, ...]) -> Any:
        known: dict[tuple[str, ...], Any] = self._local.__dict__.setdefault("apis", {})
        if languages not in known:
            folder = self._data or tessdata.data_for(languages)
            codes, newest = "+".join(languages), self._tesserocr.OEM.LSTM_ONLY
            try:
                known[languages] = self._tesserocr.PyTessBaseAPI(path=str(folder), lang=codes, oem=newest)
            except RuntimeError:
                raise EngineMissing(
                    f"Tesseract cannot use its data for {codes} in {folder}; install it again"
                ) from None
        return known[languages]

    def _judged(self, api: Any, words: list[Word]) -> list[Word]:
        """Long words, such as paths, by their letters: Tesseract is as sure of a word as of its worst letter."""
        doubtful = {word.box for word in words if _is_long(word) and word.confidence < KNOWN_CONFIDENCE}
        if not doubtful or (found := api.GetIterator()) is None:
            return words
        level, letters = self._tesserocr.RIL, defaultdict[Box, list[float]](list)
        for letter in self._tesserocr.iterate_level(found, level.SYMBOL):
            left, top, right, bottom = letter.BoundingBox(level.WORD) or (0, 0, 0, 0)
            box = Box(left, top, right - left, bottom - top)
            if box in doubtful:
                letters[box].append(float(letter.Confidence(level.SYMBOL)))
        means = {box: fmean(found) for box, found in letters.items()}
        return [
            word._replace(confidence=means[word.box]) if means.get(word.box, 0.0) >= SURE_LETTERS else word
            for word in words
        ]

    def _recognised(self, api: Any, mode: int, pass_id: str) -> Iterator[Word]:
        api.SetPageSegMode(mode)
        if not api.Recognize() or (found := api.GetIterator()) is None:
            return
        level = self._tesserocr.RIL
        block = line = 0
        for word in self._tesserocr.iterate_level(found, level.WORD):
            if word.Empty(level.WORD):
                continue
            block += word.IsAtBeginningOf(level.BLOCK)
            line += word.IsAtBeginningOf(level.TEXTLINE)
            text = word.GetUTF8Text(level.WORD).strip()
            if text:
                left, top, right, bottom = word.BoundingBox(level.WORD)
                box = Box(left, top, right - left, bottom - top)
                confidence = float(word.Confidence(level.WORD))
                yield Word(text, box, confidence, word.WordRecognitionLanguage(), block, line, pass_id)


def engine(data: Path | None = None) -> Tesseract:
    """Load it; raises EngineMissing."""
    return Tesseract(data)


def _show(api: Any, pixels: bytes, width: int, height: int) -> None:
    """Give it a grey picture, one byte per pixel."""
    api.SetImageBytes(pixels, width, height, 1, width)
    api.SetSourceResolution(RESOLUTION)


def _is_long(word: Word) -> bool:
    return len(word.text) >= LONG


def _is_sure(word: Word) -> bool:
    return word.confidence >= MASK_CONFIDENCE


def _moved(word: Word, x: int, y: int) -> Word:
    return word._replace(box=word.box._replace(x=word.box.x + x, y=word.box.y + y))
