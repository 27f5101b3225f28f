"""Keeping the index: what is written when a video comes, gets its text, changes it, and goes.

All of it happens inside the caller's transaction. `search_state.version` is raised last: on PostgreSQL its row lock
puts the transactions in the order of their versions, so that a reader who has seen a version has seen all before it.
"""

from __future__ import annotations

import json

from .postings import Indexed, Line, Tag, indexed
from .steps import Ask, Steps

NOTHING = Indexed({}, {}, b"", b"")


def enter(video_id: str, owner_id: str, team_id: str | None) -> Steps[None]:
    """Give a new video its number; later videos have greater ones."""
    yield Ask("enter", (video_id, owner_id, team_id))


def index(video_id: str) -> Steps[None]:
    """Read the video's rows of `search_materialized` and `entities`, and make them what is found of it."""
    lines = [Line(*row) for row in (yield Ask("lines", (video_id,)))]
    tags = [Tag(*row) for row in (yield Ask("tags", (video_id,)))]
    if not (yield Ask("numbered", (video_id,))):
        yield Ask("enter_late", (video_id,))
    yield from _replace(video_id, indexed(lines, tags))


def forget(video_id: str) -> Steps[None]:
    """Nothing of the video is found any more; it keeps its number."""
    yield from _replace(video_id, NOTHING)


def remove(video_id: str) -> Steps[None]:
    """Nothing is left of the video. May be called twice."""
    yield from _replace(video_id, NOTHING)
    yield Ask("remove", (video_id,))


def _replace(video_id: str, new: Indexed) -> Steps[None]:
    rows = yield Ask("numbered", (video_id,))
    if not rows:
        return
    ((number, owner_id, team_id, words),) = rows
    old: dict[str, int] = json.loads(words)
    if not old and not new.places and not new.facts:
        return
    if old:
        yield Ask("drop_postings", (number, sorted(old)))
    if new.places:
        yield Ask("add_postings", rows=[(term, number, new.places[term]) for term in sorted(new.places)])
    ((version,),) = yield Ask("next_version")
    yield from _count(old, new.counts, owner_id, team_id or "")
    line = json.dumps(new.counts, ensure_ascii=False)
    segments = len(new.row_ids) // 8
    yield Ask("note_video", (number, version, segments, new.facts, new.row_ids, line))


def _count(old: dict[str, int], new: dict[str, int], owner_id: str, team_id: str) -> Steps[None]:
    """Add to and take from the frequencies; a word that nobody has goes."""
    changes = {term: new.get(term, 0) - old.get(term, 0) for term in sorted({*old, *new})}
    changes = {term: change for term, change in changes.items() if change}
    if changes:
        yield Ask("count_terms", rows=[(term, owner_id, team_id, change) for term, change in changes.items()])
    lost = [term for term, change in changes.items() if change < 0 and term not in new]
    if lost:
        yield Ask("drop_terms", (owner_id, team_id, lost))
