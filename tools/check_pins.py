"""Check that no pinned wheel contains an ffmpeg with known holes: `python -m tools.check_pins`.

The version is read from the ffmpeg program and library inside the wheel, never from the wheel's own number, so the
pinned wheels must be installed: `make check` installs them first. A pin for another Python version cannot be read here;
its version must not be older than the installed wheel.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

from callsheet.media import binaries
from callsheet.media.binaries import SAFE_VERSIONS, is_safe, numbers_of

REQUIREMENTS = Path(__file__).parents[1] / "requirements"


class Carrier(NamedTuple):
    """A wheel with an ffmpeg inside: its name and number, and the ffmpeg's version as that calls itself."""

    name: str
    number: str
    ffmpeg: str


def installed_carriers() -> list[Carrier]:
    """The wheels of this environment that carry an ffmpeg; raises PackageNotFoundError when one is missing."""
    program = binaries.in_wheel()
    if program is None:
        raise PackageNotFoundError("imageio-ffmpeg")
    return [
        Carrier("imageio-ffmpeg", version("imageio-ffmpeg"), binaries.examine(program).version),
        Carrier("av", version("av"), binaries.version_of_pyav()),
    ]


class Pin(NamedTuple):
    """A line of a lock file. `is_here`: it holds for this Python and system."""

    name: str
    number: str
    is_here: bool


def pins(file: Path) -> list[Pin]:
    """The pinned packages of a lock file."""
    lines = re.findall(r"^[A-Za-z0-9][^\\\n]*==[^\\\n]*", file.read_text("utf-8"), re.MULTILINE)
    requirements = [Requirement(line) for line in lines]
    return [
        Pin(one.name, next(iter(one.specifier)).version, one.marker is None or one.marker.evaluate())
        for one in requirements
    ]


def problems(files: Iterable[Path], carriers: list[Carrier]) -> list[str]:
    """Return one line per unsafe pin; empty when every pinned wheel's ffmpeg is safe."""
    by_name = {carrier.name: carrier for carrier in carriers}
    return [
        f"{file.name} pins {pin.name} {pin.number}, {wrong}"
        for file in sorted(files)
        for pin in pins(file)
        if pin.name in by_name and (wrong := _wrong_with(pin, by_name[pin.name]))
    ]


def _wrong_with(pin: Pin, carrier: Carrier) -> str:
    if not pin.is_here:
        older = Version(pin.number) < Version(carrier.number)
        return f"which is older than {carrier.number}, the one for this Python; move it" if older else ""
    if pin.number != carrier.number:
        return f"and {carrier.number} is installed: run `make venv`"
    if is_safe(numbers_of(carrier.ffmpeg)):
        return ""
    advice = f"move the pin to a release that carries {SAFE_VERSIONS} or newer"
    return f"which carries ffmpeg {carrier.ffmpeg}; {advice}"


def main() -> int:
    """Print what is wrong; 0 when nothing is."""
    try:
        wrong = problems(REQUIREMENTS.glob("*.txt"), installed_carriers())
    except (PackageNotFoundError, ModuleNotFoundError) as error:
        wrong = [f"{error} is not installed: run `make venv`"]
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
