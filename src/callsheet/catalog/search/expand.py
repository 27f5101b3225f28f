"""Expansion of a query word into index words: the word itself, OCR variants, one wrong letter, longer words."""

from __future__ import annotations

from itertools import accumulate, takewhile
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from .query import Part
from .terms import Terms

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
    found = [_Kind("exact", [term])]
    if fit in {"contains", "starts", "ends"}:
        look = {"contains": terms.containing, "starts": terms.starting, "ends": terms.ending}[fit]
        found.append(_Kind("substring", look(term)))
    elif fit != "equal":
        found.append(_Kind("folded", terms.alike(term)))
        if fit != "quoted":
            found.append(_Kind("fuzzy", _one_letter_off(term, terms)))
        if fit == "word" and len(term) >= (PREFIX_MIN_DIGITS if term.isdigit() else PREFIX_MIN):
            found.append(_Kind("prefix", terms.starting(term)))
    return _bounded(found, terms)


class _Kind(NamedTuple):
    name: str
    words: list[str]


def _bounded(found: list[_Kind], terms: Terms) -> Expanded:
    """Put each word into its best tier and cut each tier to the limits of words and postings.

    OCR variants and wrong letters keep the rarest words: a misread form is rare, and a frequent look-alike is usually a
    different word. Prefix and substring matches keep the most frequent words, which users most likely mean.
    """
    frequency = terms.frequency
    tiers: list[tuple[str, ...]] = [tuple(found[0].words)]
    taken, is_cut = set(tiers[0]), False
    for name, words in found[1:]:
        sign = 1 if name in {"folded", "fuzzy"} else -1
        fresh = {term for term in words if term not in taken and frequency[term] > 0}
        ranked = sorted(fresh, key=lambda term: (sign * frequency[term], term))
        rows = accumulate(terms.rows(term) for term in ranked)
        most = min(MOST[name], max(1, sum(1 for _ in takewhile(lambda sum_: sum_ <= MOST_ROWS, rows))))
        is_cut = is_cut or most < len(ranked)
        tiers.append(tuple(ranked[:most]))
        taken.update(tiers[-1])
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
    found = [
        other for other, _, _ in process.extract(term, near, scorer=Levenshtein.distance, score_cutoff=1, limit=None)
    ]
    swapped = (term[:i] + term[i + 1] + term[i] + term[i + 2 :] for i in range(len(term) - 1))
    return found + [other for other in swapped if other in terms.frequency]
