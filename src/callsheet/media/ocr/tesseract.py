"""Tesseract in this process, by tesserocr: a pass over the picture, one over its bright text, and an optional third.

The first pass finds text on even backgrounds; the mask of bright pixels finds captions over pictures.

`merge` joins the passes: where two of them saw the same place, the more confident word stays.
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
from .picture import bright_text, grey
from .records import Box, Word

SAME = 0.5  # shared area of the smaller box
MARGIN = 2.0  # so that a tie does not tear a line apart
DOUBTFUL = 60.0  # an earlier word below this may be replaced by a shorter one

MASK_CONFIDENCE = 60.0  # minimum confidence of a word that only the second or third pass sees
KNOWN_CONFIDENCE = 80.0  # words this confident are final: the second pass skips their place
LONG = 16  # words with this many letters are scored letter by letter
SURE_LETTERS = 80.0  # on average
PASSES = "passes-2"  # increase it when equal pictures would yield other words
RESOLUTION = 70  # dots per inch of a screen; without it Tesseract guesses and prints a warning


def merge(words: list[Word], more: list[Word]) -> list[Word]:
    """Return `words`, plus the later pass's words that are new or better than the words they overlap."""
    words_so_far = list(words)
    for word in more:
        overlapping = [old for old in words_so_far if overlap(old.box, word.box) >= SAME]
        if not overlapping or _is_better(word, overlapping):
            words_so_far = [old for old in words_so_far if old not in overlapping]
            words_so_far.append(word)
    return words_so_far


def overlap(one: Box, other: Box) -> float:
    """Return the shared area of two boxes, relative to the smaller."""
    width = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    height = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    smaller = min(one.width * one.height, other.width * other.height)
    return width * height / smaller if width > 0 and height > 0 and smaller else 0.0


def _is_better(new: Word, overlapping: list[Word]) -> bool:
    """Whether one word should replace its fragments or a less confident word; a fragment never replaces it."""
    confident = [old for old in overlapping if old.confidence >= DOUBTFUL]
    letters = sum(len(old.text) for old in confident)
    if len(new.text) < letters:
        return False
    return len(overlapping) > 1 or all(new.confidence > old.confidence + MARGIN for old in overlapping)


class Tesseract:
    """The Tesseract engine. One instance serves many threads; each thread holds its own API per language set."""

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
        """The version string: Tesseract version, then our pass version."""
        return f"{self._tesserocr.tesseract_version().split()[1]} {PASSES}"

    def read(self, picture: bytes, languages: Sequence[str], *, thorough: bool = False) -> list[Word]:
        """Return the words of all passes, without duplicates. Raises NotAPicture, InputTooLarge, LanguageMissing."""
        image = grey(picture)
        if image is None:
            return []
        api, modes = self._api(tuple(languages)), self._tesserocr.PSM
        _show(api, image.tobytes(), image.width, image.height)
        words = self._rescore_long_words(api, list(self._recognise(api, modes.AUTO, "whole")))
        mask = bright_text(image, [word.box for word in words if word.confidence >= KNOWN_CONFIDENCE])
        if mask is not None:
            _show(api, mask.pixels.tobytes(), mask.pixels.shape[1], mask.pixels.shape[0])
            words_of_pass = self._recognise(api, modes.SPARSE_TEXT, "bright")
            words = merge(words, [_shift(word, mask.x, mask.y) for word in words_of_pass if _is_sure(word)])
        if thorough:
            _show(api, image.tobytes(), image.width, image.height)
            api.SetVariable("thresholding_method", "2")  # Sauvola: a limit for each neighbourhood
            words_of_pass = self._recognise(api, modes.AUTO, "local")
            words = merge(words, [word for word in words_of_pass if _is_sure(word)])
            api.SetVariable("thresholding_method", "0")
        api.Clear()
        return words

    def _api(self, languages: tuple[str, ...]) -> Any:
        apis: dict[tuple[str, ...], Any] = self._local.__dict__.setdefault("apis", {})
        if languages not in apis:
            folder = self._data or tessdata.data_for(languages)
            codes, newest = "+".join(languages), self._tesserocr.OEM.LSTM_ONLY
            try:
                apis[languages] = self._tesserocr.PyTessBaseAPI(path=str(folder), lang=codes, oem=newest)
            except RuntimeError:
                raise EngineMissing(
                    f"Tesseract cannot use its data for {codes} in {folder}; install it again"
                ) from None
        return apis[languages]

    def _rescore_long_words(self, api: Any, words: list[Word]) -> list[Word]:
        """Score long words, such as paths, by their letters: Tesseract scores a word by its worst letter."""
        doubtful = {word.box for word in words if _is_long(word) and word.confidence < KNOWN_CONFIDENCE}
        if not doubtful or (iterator := api.GetIterator()) is None:
            return words
        level, letters = self._tesserocr.RIL, defaultdict[Box, list[float]](list)
        for letter in self._tesserocr.iterate_level(iterator, level.SYMBOL):
            left, top, right, bottom = letter.BoundingBox(level.WORD) or (0, 0, 0, 0)
            box = Box(left, top, right - left, bottom - top)
            if box in doubtful:
                letters[box].append(float(letter.Confidence(level.SYMBOL)))
        means = {box: fmean(confidences) for box, confidences in letters.items()}
        return [
            word._replace(confidence=means[word.box]) if means.get(word.box, 0.0) >= SURE_LETTERS else word
            for word in words
        ]

    def _recognise(self, api: Any, mode: int, pass_id: str) -> Iterator[Word]:
        api.SetPageSegMode(mode)
        if not api.Recognize() or (iterator := api.GetIterator()) is None:
            return
        level = self._tesserocr.RIL
        block = line = 0
        for word in self._tesserocr.iterate_level(iterator, level.WORD):
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
    api.SetImageBytes(pixels, width, height, 1, width)
    api.SetSourceResolution(RESOLUTION)


def _is_long(word: Word) -> bool:
    return len(word.text) >= LONG


def _is_sure(word: Word) -> bool:
    return word.confidence >= MASK_CONFIDENCE


def _shift(word: Word, x: int, y: int) -> Word:
    return word._replace(box=word.box._replace(x=word.box.x + x, y=word.box.y + y))
