"""The search program of both databases: collect ranks until a page is full, then load the texts of its hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from callsheet.catalog.records import Reader
from callsheet.catalog.rows import box_of

from . import cursors, match
from .expand import NAMES
from .marks import Wanted, marks
from .query import parse
from .records import Found, Hit, Query
from .rounds import Rounds, tier_of
from .sight import seen_by
from .steps import Ask, Steps
from .terms import Terms

TOTAL_LIMIT = 1_000
EMPTY = Found((), None, 0, True, {}, {})


def search(query: Query, reader: Reader, terms: Terms) -> Steps[Found]:
    """Return a page of matching segments, best first; raise InvalidInput for an invalid query or cursor."""
    asked = parse(query)
    after = cursors.read(query) if query.cursor else -1
    if asked is None:
        return EMPTY
    yield from terms.refresh()
    rounds = Rounds(asked, reader, terms)
    found, counted, beyond = [np.empty(0, np.int64)], 0, 0
    for part in rounds.ranks(asked.video_ids):
        if counted > TOTAL_LIMIT and beyond > query.limit:
            break
        found.append((yield from part))
        counted += len(found[-1])
        beyond += int(np.count_nonzero(found[-1] > after))
    ranks = np.concatenate(found)
    page = ranks[ranks > after][: query.limit + 1]
    shown = [match.unranked(int(rank)) for rank in page[: query.limit]]
    rows = yield from _rows(shown, reader)
    videos = match.segment_of(ranks[:TOTAL_LIMIT]) >> match.SEGMENT_BITS
    return Found(
        hits=tuple(_hits(shown, rows, rounds, NAMES[query.mode])),
        cursor=cursors.write(query, int(page[-2])) if len(page) > query.limit else None,
        total=min(counted, TOTAL_LIMIT),
        total_is_exact=counted <= TOTAL_LIMIT and not rounds.is_cut,
        per_video={row[1]: int(np.count_nonzero(videos == match.NEWEST - place[0])) for place, row in rows.items()},
        expanded=rounds.expanded(),
    )


Place = tuple[int, int]


def _rows(shown: Sequence[match.Ranked], reader: Reader) -> Steps[dict[Place, tuple[Any, ...]]]:
    """Return the ranks' rows by video and segment, in rank order. The query checks access of the reader again."""
    if not shown:
        return {}
    packed = dict((yield Ask("row_ids", (sorted({rank.video for rank in shown}),))))
    ids = {(r.video, r.ordinal): match.row_id(packed[r.video], r.ordinal) for r in shown}
    rows = {row[0]: tuple(row[1:]) for row in (yield seen_by(reader, "hits", sorted(ids.values())))}
    return {place: rows[row_id] for place, row_id in ids.items() if row_id in rows}


def _hits(
    shown: Sequence[match.Ranked], rows: dict[Place, tuple[Any, ...]], rounds: Rounds, names: Sequence[str]
) -> list[Hit]:
    """Return the hits of a page with texts and highlights."""
    wanted = [Wanted(one.clause, tuple(tier_of(tiers, len(tiers)) for tiers in one.tiers)) for one in rounds.wanted]
    hits = []
    for rank in shown:
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
                    marks=marks(text, wanted, rank.worst, names),
                    box=box_of(box),
                    confidence=confidence,
                    language=language,
                    score=1 - rank.worst / len(NAMES["fuzzy"]),
                    duration_ms=duration_ms,
                    s3_thumb_path=thumb,
                )
            )
    return hits
