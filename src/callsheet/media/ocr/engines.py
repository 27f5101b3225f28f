"""The engines there are, by name. An engine reads one picture at a time, in one thread; children run it."""

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
    """What reads words. `version` tells all that its answers depend on, beside the languages."""

    name: str

    @property
    def version(self) -> str:
        """Of the program and of the passes made with it."""
        ...

    def read(self, picture: bytes, languages: Sequence[str], *, thorough: bool = False) -> list[Word]:
        """The words of a JPEG or PNG; raises NotAPicture and InputTooLarge."""
        ...


class Kind(NamedTuple):
    """An engine before it is loaded: the module that knows its languages, the one that reads, and its packages."""

    module: str
    reader: str
    needs: tuple[str, ...]


class Installed(Protocol):
    """The module of an engine."""

    def languages(self) -> frozenset[str]:
        """Those that it can read here; raises EngineMissing."""
        ...

    def advice(self, languages: Sequence[str]) -> str:
        """How to get more of them."""
        ...

    def data_for(self, languages: Sequence[str]) -> Path | None:
        """The folder of their data, when they are not in the package; raises LanguageMissing."""
        ...


KINDS = {
    "tesseract": Kind("tessdata", "tesseract", ("tesserocr", "numpy", "PIL")),
    "rapidocr": Kind("rapid", "rapid", ("rapidocr", "onnxruntime", "cv2", "numpy")),
}


def installed(name: str) -> Installed:
    """The module of an engine; raises InvalidReading for a name that is none."""
    if name not in KINDS:
        raise InvalidReading(f"there is no engine {name!r}; the engines are {', '.join(KINDS)}")
    module: Installed = import_module(f"{__package__}.{KINDS[name].module}")
    return module


def load(name: str, data: Path | None) -> Engine:
    """Load an engine into this process; raises EngineMissing."""
    engine: Engine = import_module(f"{__package__}.{KINDS[name].reader}").engine(data)
    return engine


def check(options: Reading) -> None:
    """Raise InvalidReading, EngineMissing or LanguageMissing when nothing could be read with these options."""
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
    module = installed(options.engine)
    here = module.languages()
    if missing := [code for code in options.languages if code not in here]:
        names = ", ".join(sorted(here)) or "none"
        raise LanguageMissing(
            f"{options.engine} cannot read {', '.join(map(repr, missing))} here; installed: {names}. "
            f"{module.advice(missing)}"
        )
    module.data_for(options.languages)
