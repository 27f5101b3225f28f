"""OCR engines by name. An engine reads one picture at a time, in one thread; children run it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from .errors import InvalidReading, LanguageMissing
from .records import Reading, Word

MOST_PROCESSES = 64
MOST_BATCH = 1000


class Engine(Protocol):
    """Reads words from a picture. `version` identifies everything besides languages that its results depend on."""

    name: str

    @property
    def version(self) -> str:
        """The version string: engine program version, then our pass version."""
        ...

    def read(self, picture: bytes, languages: Sequence[str], *, thorough: bool = False) -> list[Word]:
        """Return the words of a JPEG or PNG. Raises NotAPicture and InputTooLarge."""
        ...


class Kind(NamedTuple):
    """An engine before loading: its language module, its reader module, and the required packages."""

    module: str
    reader: str
    needs: tuple[str, ...]


class EngineModule(Protocol):
    """The interface of an engine's module."""

    def languages(self) -> frozenset[str]:
        """Return the languages readable on this machine. Raises EngineMissing."""
        ...

    def advice(self, languages: Sequence[str]) -> str:
        """Return how to install more languages."""
        ...

    def data_for(self, languages: Sequence[str]) -> Path | None:
        """Return the folder of the languages' data, None if the package holds it. Raises LanguageMissing."""
        ...


KINDS = {
    "tesseract": Kind("tessdata", "tesseract", ("tesserocr", "numpy", "PIL")),
    "rapidocr": Kind("rapid", "rapid", ("rapidocr", "onnxruntime", "cv2", "numpy")),
}


def engine_module(name: str) -> EngineModule:
    """Return the module of an engine. Raises InvalidReading for an unknown name."""
    if name not in KINDS:
        raise InvalidReading(f"there is no engine {name!r}; the engines are {', '.join(KINDS)}")
    module: EngineModule = import_module(f"{__package__}.{KINDS[name].module}")
    return module


def load(name: str, data: Path | None) -> Engine:
    """Load an engine into this process; raises EngineMissing."""
    engine: Engine = import_module(f"{__package__}.{KINDS[name].reader}").engine(data)
    return engine


def check(options: Reading) -> None:
    """Raise InvalidReading, EngineMissing or LanguageMissing for options that cannot work."""
    if not options.languages:
        raise InvalidReading("languages must name at least one language, such as eng")
    if not 0.0 <= options.min_confidence <= 1.0:
        raise InvalidReading(f"min_confidence is {options.min_confidence}, and must lie between 0 and 1")
    if not 1 <= options.batch <= MOST_BATCH:
        raise InvalidReading(f"batch is {options.batch}, and must lie between 1 and {MOST_BATCH}")
    if not 0 <= options.processes <= MOST_PROCESSES:
        raise InvalidReading(f"processes is {options.processes}, and must lie between 0 and {MOST_PROCESSES}")
    if not options.frame_s > 0:
        raise InvalidReading(f"frame_s is {options.frame_s}, and must be above 0")
    module = engine_module(options.engine)
    available_languages = module.languages()
    if missing := [code for code in options.languages if code not in available_languages]:
        names = ", ".join(sorted(available_languages)) or "none"
        raise LanguageMissing(
            f"{options.engine} cannot read {', '.join(map(repr, missing))} here; installed: {names}. "
            f"{module.advice(missing)}"
        )
    module.data_for(options.languages)
