"""Parser of user queries into required and excluded clauses. No text is a syntax error; long text is rejected."""

from __future__ import annotations

import math
from typing import NamedTuple

import regex

from callsheet.kernel.errors import InvalidInput

from .records import Query
from .words import Token, normal, tokens

MAX_CHARACTERS = 1_000
MAX_WORDS = 32
MAX_LIMIT = 200
MAX_VIDEOS = 1_000
SUBSTRING_MIN = 3
MODES = ("fuzzy", "exact", "substring")

_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»″＂", '"'))
_CHUNK = regex.compile(r'(?<!\S)-?"[^"]*"|"[^"]*"|[^\s"]+')
_UNSENDABLE = regex.compile(r"[\x00\p{Cs}]")  # databases reject these, so no row contains them


class Part(NamedTuple):
    """A query word, its distance in words from the clause's first word, and how index words must fit: see `expand`."""

    term: str
    offset: int
    fit: str  # word, phrase, quoted, equal, starts, ends, contains


class Clause(NamedTuple):
    """Query words that must be adjacent in a segment; usually a single word."""

    parts: tuple[Part, ...]
    is_excluded: bool


class Asked(NamedTuple):
    """A validated, parsed query."""

    clauses: tuple[Clause, ...]
    flags: tuple[str, ...]  # terms of the index that stand for a filter
    video_ids: tuple[str, ...] | None
    query: Query

    @property
    def filters_by_facts(self) -> bool:
        """True if the query filters by time or confidence."""
        return _has_facts(self.query)


def parse(query: Query) -> Asked | None:
    """Parse a query; return None if its text has no word, so that nothing can match. Raises InvalidInput."""
    _check(query)
    clauses = tuple(_clauses(query.text, query.mode))
    if sum(len(clause.parts) for clause in clauses) > MAX_WORDS:
        raise InvalidInput(f"at most {MAX_WORDS} words can be looked for at once; leave some out")
    if query.text.strip() and not clauses:
        return None
    flags = tuple(_flags(query))
    video_ids = (
        tuple(v for v in dict.fromkeys(query.video_ids) if not _UNSENDABLE.search(v)) if query.video_ids else None
    )
    if not clauses and not flags and video_ids is None and not _has_facts(query):
        raise InvalidInput("nothing to look for: give words, or a filter (video, time, entity, language, confidence)")
    return Asked(clauses, flags, video_ids, query)


def entity_flag(entity_type: str | None, value: str | None) -> str:
    """Return the index term of segments with an entity of this type, value or both. No word begins with `=`."""
    bare = " ".join(normal(value or "").split()).lstrip("@#")
    return f"=entity:{_sendable(entity_type or '').casefold()}={_sendable(bare)}"[:200]


def language_flag(language: str) -> str:
    """Return the index term of segments in a language."""
    return f"=language:{_sendable(language).casefold()}"[:200]


def _sendable(text: str) -> str:
    return _UNSENDABLE.sub("\ufffd", text)


def _flags(query: Query) -> list[str]:
    flags = []
    if query.entity_type or query.entity_value:
        flags.append(entity_flag(query.entity_type, query.entity_value))
    if query.language:
        flags.append(language_flag(query.language))
    return flags


def _has_facts(query: Query) -> bool:
    return query.from_ms is not None or query.to_ms is not None or query.min_confidence > 0


def _check(query: Query) -> None:
    if query.mode not in MODES:
        raise InvalidInput(f"mode {query.mode!r} is unknown; it is one of {', '.join(MODES)}")
    if len(query.text) > MAX_CHARACTERS:
        raise InvalidInput(f"the text has {len(query.text)} characters; at most {MAX_CHARACTERS} can be looked for")
    if not 1 <= query.limit <= MAX_LIMIT:
        raise InvalidInput(f"limit is {query.limit}; it must be between 1 and {MAX_LIMIT}")
    if len(query.video_ids) > MAX_VIDEOS:
        raise InvalidInput(f"{len(query.video_ids)} videos are named; at most {MAX_VIDEOS} can be")
    if query.from_ms is not None and query.to_ms is not None and query.to_ms <= query.from_ms:
        raise InvalidInput(f"to_ms is {query.to_ms}; it must be after from_ms, which is {query.from_ms}")
    if math.isnan(query.min_confidence) or not 0 <= query.min_confidence <= 1:
        raise InvalidInput(f"min_confidence is {query.min_confidence}; it must be between 0 and 1")


def _clauses(text: str, mode: str) -> list[Clause]:
    clauses = []
    for chunk in _CHUNK.findall(text.translate(_QUOTES)):
        is_excluded = chunk.startswith("-") and len(chunk) > 1
        is_quoted = chunk.endswith('"')
        text_of_chunk = chunk[is_excluded:].strip('"') if is_quoted else chunk[is_excluded:]
        words = [token for token in tokens(normal(text_of_chunk)) if not token.is_extra]
        if not words:
            continue
        fits = _fits(words, mode, is_strict=is_excluded or (is_quoted and len(words) == 1))
        parts = [Part(word.term, word.place - words[0].place, fit) for word, fit in zip(words, fits, strict=True)]
        clause = Clause(tuple(parts), is_excluded)
        if clause not in clauses:
            clauses.append(clause)
    return clauses


def _fits(words: list[Token], mode: str, *, is_strict: bool) -> list[str]:
    """Return each word's `fit`. A single quoted word is strict; adjacent words confirm one another."""
    if mode == "fuzzy":
        if is_strict:
            return ["quoted"] * len(words)
        return ["phrase"] * len(words) if len(words) > 1 else ["word"]
    length = sum(len(word.term) if word.term.isascii() else SUBSTRING_MIN for word in words)
    if mode == "exact" or length < SUBSTRING_MIN:
        return ["equal"] * len(words)
    if len(words) == 1:
        return ["contains"]
    return ["ends", *["equal"] * (len(words) - 2), "starts"]
