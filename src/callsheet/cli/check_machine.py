"""What the doctor looks at on this machine."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from callsheet.media import binaries
from callsheet.media.errors import FfmpegMissing, FfmpegUnfit
from callsheet.media.ocr import tessdata
from callsheet.sandbox import command

from .findings import Finding, bad, good, warning

OLDEST_PYTHON = (3, 11)


def check_machine() -> list[Finding]:
    """Return the findings of `callsheet doctor` about this machine."""
    return [_python(), _uvloop(), *_ffmpeg(), _pyav(), _tesseract()]


def _python() -> Finding:
    text = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return good("Python", text)
    return bad("Python", text, "install 3.11 or newer")


def _uvloop() -> Finding:
    try:
        return good("uvloop", version("uvloop"))
    except PackageNotFoundError:
        return warning("uvloop", "not installed, so workers are slower", "pip install uvloop")


def _ffmpeg() -> list[Finding]:
    """Which ffmpeg tasks would use and why, and how well it is shut in; its absence harms no other tasks."""
    try:
        choice = binaries.choose()
    except FfmpegUnfit as error:
        return [bad("ffmpeg", *_halves(error)), _box()]
    except FfmpegMissing as error:
        return [warning("ffmpeg", _halves(error)[0], f"{binaries.ADVICE}; only media tasks need it")]
    text = f"{choice.binary.version}, {choice.binary.path} ({choice.reason})"
    used = warning("ffmpeg", text, f"{choice.danger}: {binaries.ADVICE}") if choice.danger else good("ffmpeg", text)
    return [used, *map(_unused, choice.others), _box()]


def _unused(other: tuple[binaries.Binary, str]) -> Finding:
    """An ffmpeg that lies here and is passed over: worth a look only where it has known holes."""
    binary, why = other
    text = f"{binary.version}, {binary.path}: not used, {why}"
    if binary.is_safe:
        return good("other ffmpeg", text)
    return warning("other ffmpeg", text, "media tasks do not use it; keep it from strangers' files elsewhere, too")


def _pyav() -> Finding:
    """The libraries of ffmpeg inside PyAV, which look into files and decode frames."""
    try:
        bundled = binaries.version_of_pyav()
    except ModuleNotFoundError:
        return warning("PyAV", "not installed", "pip install 'callsheet[media]'; only media tasks need it")
    text = f"{version('av')} with ffmpeg {bundled or 'of an unknown version'}"
    if binaries.is_safe(binaries.numbers_of(bundled)):
        return good("PyAV", text)
    advice = f"it may have known holes (CVE-2026-8461): pip install -U av, for {binaries.SAFE_VERSIONS} or newer"
    return warning("PyAV", text, advice)


def _halves(error: Exception) -> tuple[str, str]:
    """What is wrong, and what to do."""
    what, _, advice = str(error).rpartition("; ")
    return what, advice


def _box() -> Finding:
    """What keeps a decoder that a file has taken over from doing harm."""
    walls = command.walls()
    network = "no network" if walls.no_network else "network open"
    files = "sees its own files only" if walls.landlock else "sees all files of this user"
    how = ", ".join(name for name in ("namespace", "seccomp", "landlock") if getattr(walls, name))
    text = f"{network}, {files}" + (f" ({how})" if how else "")
    if not walls.no_network:
        advice = "allow unshare or seccomp in this container, or give the worker no way out of its network"
        return warning("ffmpeg sandbox", text, advice)
    if not walls.landlock:
        return warning("ffmpeg sandbox", text, "a kernel with Landlock (Linux 5.13) hides other files from it")
    return good("ffmpeg sandbox", text)


def _tesseract() -> Finding:
    """The library in-process, and its trained data; or the program."""
    data = next(iter(tessdata.folders()), None)
    if data is None:
        advice = "pip install 'callsheet[media]', or apt install tesseract-ocr; only tasks that read text need it"
        return warning("tesseract", "no trained data found", advice)
    try:
        name = f"tesserocr {version('tesserocr')}"
    except PackageNotFoundError:
        advice = "pip install 'callsheet[media]'; only tasks that read text need it"
        return warning("tesseract", "tesserocr is not installed", advice)
    languages = sorted(path.stem for path in data.glob("*.traineddata") if path.stem != "osd")
    return good("tesseract", f"{name}, reads {', '.join(languages)}, {data}")
