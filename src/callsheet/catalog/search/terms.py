"""The catalogue's word list in memory, for matching misread words: one per process, refreshed by version.

A word from this list is never shown directly: it reaches readers only through database rows that they may see.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from .steps import Ask, Steps
from .words import look_alike

LAST = "\U0010ffff"
RELOAD_VIDEOS = 32  # if more videos changed, all words are loaded again


class Terms:
    """Index words with their frequency, the number of segments that contain them. Threads may share it."""

    def __init__(self) -> None:
        self.version = -1
        self.newest = 0  # the greatest number of a video
        self.frequency: dict[str, int] = {}
        self._forward: list[str] = []
        self._text = "\n"  # the words of _forward, one per line
        self._backward: list[str] = []  # reversed words, sorted, to search by suffix
        self._alike: dict[str, list[str]] = defaultdict(list)
        self._lock = threading.Lock()

    def refresh(self) -> Steps[None]:
        """Load the words that changed since the last refresh; an unchanged catalogue costs one small query."""
        ((version, self.newest),) = yield Ask("version")
        since = self.version
        if version == since:
            return
        changed = [] if since < 0 else (yield Ask("words_since", (since, RELOAD_VIDEOS + 1)))
        if since < 0 or len(changed) > RELOAD_VIDEOS:
            rows = yield Ask("all_terms")
        else:
            words = {word for (line,) in changed for word in json.loads(line) if not word.startswith("=")}
            rows = (yield Ask("some_terms", (sorted(words),))) if words else []
        self.apply(version, rows)

    def apply(self, version: int, rows: Iterable[tuple[str, int]]) -> None:
        """Add or update words with their current frequency, unless a newer version was applied already."""
        with self._lock:
            if version <= self.version:
                return
            fresh = [term for term, _ in rows if term not in self.frequency]
            self.frequency.update(rows)
            for term in fresh:
                self._alike[look_alike(term)].append(term)
            # sorted() is linear on mostly sorted lists; new lists, so that concurrent readers keep the old ones
            self._forward = sorted(self._forward + fresh)
            self._text = "\n".join(["", *self._forward, ""])
            self._backward = sorted(self._backward + [term[::-1] for term in fresh])
            self.version = version

    def rows(self, term: str) -> int:
        """Return an upper bound of the videos that contain a word: its segment count or the newest video number."""
        return min(self.frequency.get(term, 0), self.newest)

    def starting(self, prefix: str) -> list[str]:
        """Return the words that begin with `prefix`."""
        forward = self._forward
        return forward[bisect_left(forward, prefix) : bisect_left(forward, prefix + LAST)]

    def ending(self, suffix: str) -> list[str]:
        """Return the words that end with `suffix`."""
        backward, start = self._backward, suffix[::-1]
        return [term[::-1] for term in backward[bisect_left(backward, start) : bisect_left(backward, start + LAST)]]

    def containing(self, part: str) -> list[str]:
        """Return the words that contain `part`. Searching one joined text is ten times as fast as word by word."""
        found, text = [], self._text
        at = text.find(part)
        while at >= 0:
            end = text.index("\n", at)
            found.append(text[text.rindex("\n", 0, at) + 1 : end])
            at = text.find(part, end)
        return found

    def alike(self, term: str) -> list[str]:
        """Return the words that OCR may confuse with `term`."""
        return list(self._alike.get(look_alike(term), ()))
