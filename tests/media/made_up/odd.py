"""Files that are strange in one way each, most of them with frames that carry their own number (`number_in`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .records import MadeUp

ODD_MAKERS: dict[str, Callable[[Path], MadeUp]] = {}
ODD: tuple[str, ...] = tuple(ODD_MAKERS)
