"""Tesseract inside this process, by tesserocr: the whole picture, then its bright text alone, then if asked once more.

One pass over the whole finds text on even ground; captions over pictures are found in the mask of what is bright.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from . import tessdata
from .errors import EngineMissing
from .merging import merged
from .picture import bright_text, grey
from .records import Box, Word

MASK_CONFIDENCE = 60.0  # of a word that only the second or third pass sees
KNOWN_CONFIDENCE = 80.0  # from here on the first pass is believed, and the second need not look there
PASSES = "passes-1"  # changes when the same pictures would give other words
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
        words = list(self._recognised(api, modes.AUTO, "whole"))
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


def _show(api: Any, pixels: bytes, width: int, height: int) -> None:
    """Give it a grey picture, one byte per pixel."""
    api.SetImageBytes(pixels, width, height, 1, width)
    api.SetSourceResolution(RESOLUTION)


def _is_sure(word: Word) -> bool:
    return word.confidence >= MASK_CONFIDENCE


def _moved(word: Word, x: int, y: int) -> Word:
    return word._replace(box=word.box._replace(x=word.box.x + x, y=word.box.y + y))
