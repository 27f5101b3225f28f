"""The catalogue's word list in memory, and the expansion of a query word: OCR variants, one wrong letter, longer words.

One list per process, refreshed by version. A word from it is never shown directly: it reaches readers only through
database rows that they may see.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate, takewhile
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from .db_requests import Ask, Steps
from .query import Part
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
        changes = [] if since < 0 else (yield Ask("words_since", (since, RELOAD_VIDEOS + 1)))
        if since < 0 or len(changes) > RELOAD_VIDEOS:
            rows = yield Ask("all_terms")
        else:
            words = {word for (line,) in changes for word in json.loads(line) if not word.startswith("=")}
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
        words, text = [], self._text
        at = text.find(part)
        while at >= 0:
            end = text.index("\n", at)
            words.append(text[text.rindex("\n", 0, at) + 1 : end])
            at = text.find(part, end)
        return words

    def alike(self, term: str) -> list[str]:
        """Return the words that OCR may confuse with `term`."""
        return list(self._alike.get(look_alike(term), ()))


NAMES = {"fuzzy": ("exact", "folded", "fuzzy", "prefix"), "exact": ("exact",), "substring": ("exact", "substring")}
FUZZY_MIN = 4  # letters
PREFIX_MIN = 3
PREFIX_MIN_DIGITS = 2
MOST = {"folded": 64, "fuzzy": 128, "prefix": 64, "substring": 256}  # index words per tier and query word
MOST_ROWS = 4_000  # postings per tier and query word, an upper bound of the work

Tiers = tuple[tuple[str, ...], ...]


class Expanded(NamedTuple):
    """Index words by tier, best first. The first tier is the query word itself; each word is in one tier only."""

    tiers: Tiers
    is_cut: bool  # True if a limit dropped matching words


def expand(part: Part, terms: Terms) -> Expanded:
    """Return the index words that match a query word, by tier, as loosely as `part.fit` allows."""
    term, fit = part.term, part.fit
    kinds = [_Kind("exact", [term])]
    if fit in {"contains", "starts", "ends"}:
        look = {"contains": terms.containing, "starts": terms.starting, "ends": terms.ending}[fit]
        kinds.append(_Kind("substring", look(term)))
    elif fit != "equal":
        kinds.append(_Kind("folded", terms.alike(term)))
        if fit != "quoted":
            kinds.append(_Kind("fuzzy", _one_letter_off(term, terms)))
        if fit == "word" and len(term) >= (PREFIX_MIN_DIGITS if term.isdigit() else PREFIX_MIN):
            kinds.append(_Kind("prefix", terms.starting(term)))
    return _limit(kinds, terms)


class _Kind(NamedTuple):
    name: str
    words: list[str]


def _limit(kinds: list[_Kind], terms: Terms) -> Expanded:
    """Put each word into its best tier and cut each tier to the limits of words and postings.

    OCR variants and wrong letters keep the rarest words: a misread form is rare, and a frequent look-alike is usually a
    different word. Prefix and substring matches keep the most frequent words, which users most likely mean.
    """
    frequency = terms.frequency
    tiers: list[tuple[str, ...]] = [tuple(kinds[0].words)]
    words_in_tiers, is_cut = set(tiers[0]), False
    for name, words in kinds[1:]:
        sign = 1 if name in {"folded", "fuzzy"} else -1
        fresh = {term for term in words if term not in words_in_tiers and frequency[term] > 0}
        by_rank = sorted(fresh, key=lambda term: (sign * frequency[term], term))
        rows = accumulate(terms.rows(term) for term in by_rank)
        most = min(MOST[name], max(1, sum(1 for _ in takewhile(lambda sum_: sum_ <= MOST_ROWS, rows))))
        is_cut = is_cut or most < len(by_rank)
        tiers.append(tuple(by_rank[:most]))
        words_in_tiers.update(tiers[-1])
    return Expanded(tuple(tiers), is_cut)


def _one_letter_off(term: str, terms: Terms) -> list[str]:
    """Return index words with one letter changed or two neighbours swapped. Numbers have none: 2024 is not 2025.

    A word with one change keeps its first or its second half, so only words that share a half are compared.
    """
    if len(term) < FUZZY_MIN or not any(letter.isalpha() for letter in term):
        return []
    half = len(term) // 2
    near = {*terms.starting(term[:half]), *terms.ending(term[half:])}
    near = {other for other in near if abs(len(other) - len(term)) <= 1}
    neighbours = [
        other for other, _, _ in process.extract(term, near, scorer=Levenshtein.distance, score_cutoff=1, limit=None)
    ]
    swaps = (term[:i] + term[i + 1] + term[i] + term[i + 2 :] for i in range(len(term) - 1))
    return neighbours + [other for other in swaps if other in terms.frequency]
