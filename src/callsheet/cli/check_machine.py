"""What the doctor looks at on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from .findings import Finding, bad, good, warning

OLDEST_PYTHON = (3, 11)
PROGRAM_S = 10.0


def check_machine() -> list[Finding]:
    """The findings."""
    return [_python(), _uvloop(), _program("ffmpeg", "-version", "ffmpeg"), _tesseract()]


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


def _tesseract() -> Finding:
    return _program("tesseract", "--version", "tesseract-ocr")


def _program(name: str, flag: str, debian: str) -> Finding:
    """A program that tasks may call; its absence harms no others."""
    path = shutil.which(name)
    if path is None:
        advice = f"apt install {debian}, or brew install {name}; only tasks that call it need it"
        return warning(name, "not found", advice)
    try:
        run = subprocess.run([path, flag], capture_output=True, text=True, timeout=PROGRAM_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return warning(name, f"{path} does not run ({error})", f"install {debian} again")
    first = (run.stdout or run.stderr).partition("\n")[0]
    return good(name, f"{first.partition(' Copyright')[0]}, {path}")
