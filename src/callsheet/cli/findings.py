"""What the doctor finds."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from .passwords import without_passwords


class Mark(StrEnum):
    """How it looks."""

    GOOD = "✓"
    WARNING = "!"
    BAD = "✗"


class Finding(NamedTuple):
    """One line of the doctor's: what was looked at, how it is, and what to do next."""

    mark: Mark
    name: str
    text: str
    advice: str = ""

    def to_show(self) -> Finding:
        """On one line, without passwords."""
        return self._replace(text=" ".join(without_passwords(self.text).split()))


def good(name: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(Mark.GOOD, name, text)


def warning(name: str, text: str, advice: str = "") -> Finding:
    """Worth a look."""
    return Finding(Mark.WARNING, name, text, advice)


def bad(name: str, text: str, advice: str = "") -> Finding:
    """Nothing works before this is mended."""
    return Finding(Mark.BAD, name, text, advice)
