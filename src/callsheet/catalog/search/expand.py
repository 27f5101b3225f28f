"""What a word of a query is taken for: itself, what OCR makes of it, one wrong letter, a longer word. In that order."""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from .query import Part
from .terms import Terms

NAMES = {"fuzzy": ("exact", "folded", "fuzzy", "prefix"), "exact": ("exact",), "substring": ("exact", "substring")}
FUZZY_MIN = 4  # letters
PREFIX_MIN = 3
PREFIX_MIN_DIGITS = 2
MOST = {"folded": 64, "fuzzy": 128, "prefix": 64, "substring": 256}  # words that one is taken for
MOST_ROWS = 4_000  # postings of a tier that are read for one word, so that the work is bounded

Tiers = tuple[tuple[str, ...], ...]


def expand(part: Part, terms: Terms) -> Tiers:
    """Words by tier, best first; the first tier is the word itself. No word is in two tiers."""
    term, fit = part.term, part.fit
    if fit == "equal":
        return ((term,),)
    if fit in {"contains", "starts", "ends"}:
        found = {"contains": terms.containing, "starts": terms.starting, "ends": terms.ending}[fit](term)
        return (term,), _bounded(found, {term}, "substring", terms)
    taken = {term}
    tiers = [(term,), _bounded(terms.alike(term), taken, "folded", terms)]
    if fit != "quoted":
        tiers.append(_bounded(_one_letter_off(term, terms), taken, "fuzzy", terms))
    if fit == "word" and len(term) >= (PREFIX_MIN_DIGITS if term.isdigit() else PREFIX_MIN):
        tiers.append(_bounded(terms.starting(term), taken, "prefix", terms))
    return tuple(tiers)


def _bounded(found: Iterable[str], taken: set[str], kind: str, terms: Terms) -> tuple[str, ...]:
    """Those that are not taken yet, as many as are worth the work; they are taken now.

    Misread forms are rare words, and a frequent word that looks alike is most often another one, so rare ones go first.
    Of words that begin alike, or have a part in common, the frequent ones are what is looked for.
    """
    frequency = terms.frequency
    sign = 1 if kind in {"folded", "fuzzy"} else -1
    fresh = {term for term in found if term not in taken and frequency[term] > 0}
    ranked: list[str] = []
    rows = 0
    for term in sorted(fresh, key=lambda term: (sign * frequency[term], term))[: MOST[kind]]:
        rows += terms.rows(term)
        if rows > MOST_ROWS and ranked:
            break
        ranked.append(term)
    taken.update(ranked)
    return tuple(ranked)


def _one_letter_off(term: str, terms: Terms) -> list[str]:
    """Words one letter away, or two neighbours swapped. Numbers are not guessed at: 2024 is not 2025.

    A word with one change has its first or its second half unharmed, so only those that share one are compared.
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
