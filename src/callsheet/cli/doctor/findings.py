"""A finding of `callsheet doctor`: one line about one thing that can be wrong."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from callsheet.cli.errors import without_passwords


class Mark(StrEnum):
    """How good a finding is."""

    GOOD = "✓"
    WARNING = "!"
    BAD = "✗"


class Finding(NamedTuple):
    """What was checked, its state, and what to do about it."""

    mark: Mark
    name: str
    text: str
    advice: str = ""

    def to_show(self) -> Finding:
        """Return the finding on one line, without passwords."""
        return self._replace(text=" ".join(without_passwords(self.text).split()))


def good(name: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(Mark.GOOD, name, text)


def warning(name: str, text: str, advice: str = "") -> Finding:
    """Return a finding that an operator should look at."""
    return Finding(Mark.WARNING, name, text, advice)


def bad(name: str, text: str, advice: str = "") -> Finding:
    """Return a finding about something broken."""
    return Finding(Mark.BAD, name, text, advice)
