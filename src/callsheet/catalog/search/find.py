"""The search program of both databases: collect ranks until a page is full, then load the texts of its hits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from callsheet.catalog.records import Reader, box_of
from callsheet.kernel.errors import InvalidInput

from . import match
from .db_requests import Ask, Steps, visible_to
from .highlights import Wanted, marks
from .query import MAX_CHARACTERS, parse
from .records import Found, Hit, Query, Suggestion
from .retrieval import Rounds, tier_of
from .terms import LAST, NAMES, Terms
from .words import normal, tokens

MAX_RANK = 1 << 60


def _cursor(query: Query, rank: int) -> str:
    """Return the cursor of the page after the hit with this rank."""
    return f"{rank:x}.{_digest(query)}"


def _rank_in_cursor(query: Query) -> int:
    """Return the rank in the query's cursor; raise InvalidInput if the cursor is damaged or of another query."""
    rank, _, digest = (query.cursor or "").partition(".")
    if digest != _digest(query):
        raise InvalidInput("the cursor is not of this query; use the one that came with the page before, or none")
    try:
        number = int(rank, 16)
    except ValueError:
        number = -1
    if not 0 <= number < MAX_RANK:
        raise InvalidInput("the cursor is damaged; use the one that came with the page before, or none")
    return number


def _digest(query: Query) -> str:
    """Return a query's digest, without its limit and cursor: the page size may change from page to page."""
    same = query._replace(limit=0, cursor=None)
    return hashlib.blake2b(repr(tuple(same)).encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()


TOTAL_LIMIT = 1_000
EMPTY = Found((), None, 0, True, {}, {})


def search(query: Query, reader: Reader, terms: Terms) -> Steps[Found]:
    """Return a page of matching segments, best first; raise InvalidInput for an invalid query or cursor."""
    parsed_query = parse(query)
    after = _rank_in_cursor(query) if query.cursor else -1
    if parsed_query is None:
        return EMPTY
    yield from terms.refresh()
    rounds = Rounds(parsed_query, reader, terms)
    parts, total, beyond = [np.empty(0, np.int64)], 0, 0
    for part in rounds.ranks(parsed_query.video_ids):
        if total > TOTAL_LIMIT and beyond > query.limit:
            break
        parts.append((yield from part))
        total += len(parts[-1])
        beyond += int(np.count_nonzero(parts[-1] > after))
    ranks = np.concatenate(parts)
    page = ranks[ranks > after][: query.limit + 1]
    page_ranks = [match.unrank(int(rank)) for rank in page[: query.limit]]
    rows = yield from _rows(page_ranks, reader)
    videos = match.segment_of(ranks[:TOTAL_LIMIT]) >> match.SEGMENT_BITS
    return Found(
        hits=tuple(_hits(page_ranks, rows, rounds, NAMES[query.mode])),
        cursor=_cursor(query, int(page[-2])) if len(page) > query.limit else None,
        total=min(total, TOTAL_LIMIT),
        total_is_exact=total <= TOTAL_LIMIT and not rounds.is_cut,
        per_video={row[1]: int(np.count_nonzero(videos == match.NEWEST - place[0])) for place, row in rows.items()},
        expanded=rounds.expansions(),
    )


Place = tuple[int, int]


def _rows(ranks: Sequence[match.Ranked], reader: Reader) -> Steps[dict[Place, tuple[Any, ...]]]:
    """Return the ranks' rows by video and segment, in rank order. The query checks access of the reader again."""
    if not ranks:
        return {}
    row_ids = dict((yield Ask("row_ids", (sorted({rank.video for rank in ranks}),))))
    ids = {(r.video, r.ordinal): match.row_id(row_ids[r.video], r.ordinal) for r in ranks}
    rows = {row[0]: tuple(row[1:]) for row in (yield visible_to(reader, "hits", sorted(ids.values())))}
    return {place: rows[row_id] for place, row_id in ids.items() if row_id in rows}


def _hits(
    ranks: Sequence[match.Ranked], rows: dict[Place, tuple[Any, ...]], rounds: Rounds, names: Sequence[str]
) -> list[Hit]:
    """Return the hits of a page with texts and highlights."""
    clauses = [Wanted(one.clause, tuple(tier_of(tiers, len(tiers)) for tiers in one.tiers)) for one in rounds.required]
    hits = []
    for rank in ranks:
        row = rows.get((rank.video, rank.ordinal))
        if row is not None:
            segment_id, video_id, title, t_start, t_end, text, box, confidence, language, duration_ms, thumb = row
            hits.append(
                Hit(
                    segment_id,
                    video_id,
                    title,
                    t_start,
                    t_end,
                    text,
                    marks=marks(text, clauses, rank.worst, names),
                    box=box_of(box),
                    confidence=confidence,
                    language=language,
                    score=1 - rank.worst / len(NAMES["fuzzy"]),
                    duration_ms=duration_ms,
                    s3_thumb_path=thumb,
                )
            )
    return hits


MAX_SUGGESTIONS = 50


def suggest(prefix: str, limit: int, reader: Reader) -> Steps[list[Suggestion]]:
    """Return completions of the last word of `prefix` from videos that the reader may see, most frequent first."""
    if not 1 <= limit <= MAX_SUGGESTIONS:
        raise InvalidInput(f"limit is {limit}; it must be between 1 and {MAX_SUGGESTIONS}")
    start = _last_word(prefix[-MAX_CHARACTERS:])
    if not start:
        return []
    rows = yield visible_to(reader, "suggestions", start, start + LAST, limit)
    return [Suggestion(word, segments) for word, segments in rows]


def _last_word(text: str) -> str:
    """Return the last word of the text, or a bare @ or #; "" if the text ends otherwise."""
    text = normal(text)
    last_tokens = [token for token in tokens(text) if token.end == len(text)]
    if last_tokens:
        return max(last_tokens, key=lambda token: token.end - token.start).term
    return text[-1:] if text[-1:] in {"@", "#"} else ""
