"""Choose the ffmpeg to run: the one in CALLSHEET_FFMPEG, else the newest safe version on this machine.

Without a safe version the imageio-ffmpeg wheel comes first, then the system's ffmpeg. SAFE_BRANCHES and
SAFE_FROM name the safe versions.

CVE-2026-8461, a heap overflow that an AVI, MKV or MOV file can cause, has a fix in each branch: 8.0.3, 8.1.2 and 9.0.
`tools/check_pins.py` fails `make check` when a pinned wheel carries an older ffmpeg.
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

from callsheet.sandbox.command import environment

from .errors import FfmpegMissing, FfmpegUnfit

SAFE_BRANCHES = {(8, 0): 3, (8, 1): 2}  # a branch, and its first patch release with the fix
SAFE_FROM = (9, 0)  # this release and all later ones
SAFE_VERSIONS = "8.0.3, 8.1.2 or 9.0"  # the same for people
# 7.0 is the oldest that the tests are run with; 5.1 loses the end of an HLS whose frames are uneven
OLDEST_VERSION = (7, 0)

Numbers = tuple[int, ...]

log = logging.getLogger("callsheet.media")

ASK_S = 20.0
VARIABLE = "CALLSHEET_FFMPEG"
ADVICE = f"pip install imageio-ffmpeg, or set {VARIABLE} to the path of an ffmpeg that is {SAFE_VERSIONS} or newer"
# every media task needs these; further needs of an output are checked with its spec
REQUIRED_FEATURES = ("libx264", "aac", "scale", "fps", "setsar", "volume", "loudnorm")
_VERSION = re.compile(r"ffmpeg version (\S+)")
_CODER = re.compile(r"^ [VAS][F.][S.][X.][B.][D.] (\S+)", re.MULTILINE)
_FILTER = re.compile(r"^ [T.][S.][C.]? *(\S+) +\S*->", re.MULTILINE)


def version_of_pyav() -> str:
    """Return the version of PyAV's ffmpeg, such as `8.1.2`, or "" if unknown. Raises ModuleNotFoundError."""
    import av  # noqa: PLC0415 - an extra, and 50 MB that only few callers need

    return str(getattr(av, "ffmpeg_version_info", ""))


def numbers_of(version: str) -> Numbers:
    """Return a version as numbers: `n9.0.2-17-g2a57` is (9, 0, 2). Empty for a build without a release number."""
    leading = re.match(r"n?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in leading[1].split(".")) if leading else ()


def is_safe(numbers: Numbers) -> bool:
    """Whether this release has the fixes for known holes. A build without a release number does not count as safe."""
    if numbers >= SAFE_FROM:
        return True
    branch = (*numbers, 0)[:2]
    return branch in SAFE_BRANCHES and (*numbers, 0, 0)[2] >= SAFE_BRANCHES[branch]


def is_old(numbers: Numbers) -> bool:
    """Whether this release lacks features of media tasks."""
    return () < numbers < OLDEST_VERSION


class Binary(NamedTuple):
    """An ffmpeg that runs here, with its version, encoders and filters."""

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
        """Whether this version has the fixes for the known holes in demuxers and decoders."""
        return is_safe(self.numbers)

    @property
    def lacks(self) -> str:
        """The features that media tasks need and this ffmpeg lacks, as text; empty when it suffices."""
        if is_old(self.numbers):
            return f"a version of {'.'.join(map(str, OLDEST_VERSION))} or newer"
        return ", ".join(name for name in REQUIRED_FEATURES if not self.has(name))

    def has(self, *names: str) -> bool:
        """Whether this ffmpeg has all named encoders and filters."""
        return all(name in self.encoders or name in self.filters for name in names)


class Choice(NamedTuple):
    """The chosen ffmpeg, the reason, and the rejected ones with their reasons."""

    binary: Binary
    reason: str
    is_forced: bool = False
    others: tuple[tuple[Binary, str], ...] = ()

    @property
    def danger(self) -> str:
        """The reason not to open strangers' files with this ffmpeg; empty when none is known."""
        if self.binary.is_safe:
            return ""
        version = self.binary.version if self.binary.numbers else f"{self.binary.version} (which names no release)"
        return f"ffmpeg {version} may have known holes (CVE-2026-8461); {SAFE_VERSIONS} and newer have not"


def find_ffmpeg() -> Path:
    """Return the path of the chosen ffmpeg. Raises FfmpegMissing and FfmpegUnfit."""
    return choose().binary.path


@cache
def ffmpeg() -> Binary:
    """Return the ffmpeg of this machine, chosen once per process. Raises FfmpegMissing and FfmpegUnfit."""
    choice = choose()
    if choice.danger:
        log.warning("%s: %s", choice.binary.path, choice.danger)
    return choice.binary


def choose() -> Choice:
    """Examine every ffmpeg on this machine and choose one. Raises FfmpegMissing and FfmpegUnfit."""
    forced_path = os.environ.get(VARIABLE)
    if forced_path:
        return _forced_choice(forced_path)
    return best_of([binary for path in _on_path() if (binary := _examine_or_none(path))], _wheels())


def best_of(system: list[Binary], wheel: Binary | None) -> Choice:
    """Return the newest safe fit version, else the wheel's, else the system's newest. Raises as `choose` does."""
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
        shortcomings = "; ".join(f"{binary.path} lacks {binary.lacks}" for binary in every)
        raise FfmpegUnfit(f"no ffmpeg here suffices: {shortcomings}; {ADVICE}")
    else:
        raise FfmpegMissing(f"no ffmpeg is installed; {ADVICE}")
    return Choice(best, reason, others=tuple((one, _why_not(one)) for one in every if one is not best))


def _why_not(binary: Binary) -> str:
    if binary.lacks:
        return f"it lacks {binary.lacks}"
    return "it is no newer" if binary.is_safe else f"it is below {SAFE_VERSIONS}"


def _forced_choice(program: str) -> Choice:
    path = Path(program).resolve()
    if not _is_program(path):
        raise FfmpegMissing(f"{program} is no program that this user can run; {ADVICE}")
    binary = examine(path)
    if binary.lacks:
        raise FfmpegUnfit(f"{VARIABLE}={program} is ffmpeg {binary.version} and lacks {binary.lacks}; {ADVICE}")
    return Choice(binary, f"{VARIABLE} names it", is_forced=True)


def examine(path: Path) -> Binary:
    """Run an ffmpeg to read its version, encoders and filters. Raises FfmpegMissing."""
    version = _VERSION.search(_output_of(path, "-version"))
    if version is None:
        raise FfmpegMissing(f"{path} does not say that it is ffmpeg; {ADVICE}")
    encoders = _CODER.findall(_output_of(path, "-hide_banner", "-encoders"))
    filters = _FILTER.findall(_output_of(path, "-hide_banner", "-filters"))
    return Binary(path, version[1], frozenset(encoders), frozenset(filters))


def in_wheel() -> Path | None:
    """Return the program inside the imageio-ffmpeg wheel, or None without the wheel."""
    spec = importlib.util.find_spec("imageio_ffmpeg")
    if spec is None or spec.origin is None:
        return None
    programs = sorted((Path(spec.origin).parent / "binaries").glob("ffmpeg-*"))
    return programs[-1].resolve() if programs else None


def _wheels() -> Binary | None:
    path = in_wheel()
    return _examine_or_none(path) if path is not None else None


def _on_path() -> Iterator[Path]:
    """Yield each ffmpeg on the PATH once. Relative folders are skipped."""
    places = [Path(place, "ffmpeg") for place in os.get_exec_path() if os.path.isabs(place)]  # noqa: PTH117 - the entries are strings
    yield from dict.fromkeys(place.resolve() for place in places if _is_program(place))


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _examine_or_none(path: Path) -> Binary | None:
    """Return the examined program, or None, with a warning, if it does not run."""
    try:
        return examine(path)
    except FfmpegMissing as error:
        log.warning("%s", error)
        return None


def _output_of(path: Path, *arguments: str) -> str:
    try:
        run = subprocess.run(  # noqa: S603 - the path is that of a program on this machine
            [path, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=ASK_S,
            check=True,
            env=environment(Path("/")),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise FfmpegMissing(f"{path} does not run ({type(error).__name__}); {ADVICE}") from None
    return run.stdout.decode("utf-8", "replace")
