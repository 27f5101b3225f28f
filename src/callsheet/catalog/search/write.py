"""Writes to the search index when a video is added, gets new text or is deleted, inside the caller's transaction.

`search_state.version` is raised late in the transaction: on PostgreSQL its row lock makes transactions commit in the
order of their versions, so that a reader of one version has read all earlier versions.
"""

from __future__ import annotations

import json

from .postings import Indexed, Line, Tag, indexed
from .steps import Ask, Steps

NOTHING = Indexed({}, {}, b"", b"")


def enter(video_id: str, owner_id: str, team_id: str | None) -> Steps[None]:
    """Assign a new video its number; later videos have greater numbers."""
    yield Ask("enter", (video_id, owner_id, team_id))


def index(video_id: str) -> Steps[None]:
    """Replace the video's index entries, computed from its rows in `search_materialized` and `entities`."""
    lines = [Line(*row) for row in (yield Ask("lines", (video_id,)))]
    tags = [Tag(*row) for row in (yield Ask("tags", (video_id,)))]
    if not (yield Ask("numbered", (video_id,))):
        yield Ask("enter_late", (video_id,))
    yield from _replace(video_id, indexed(lines, tags))


def forget(video_id: str) -> Steps[None]:
    """Delete the video's index entries, except for its number."""
    yield from _replace(video_id, NOTHING)


def remove(video_id: str) -> Steps[None]:
    """Delete the video's index entries and its number. Safe to call twice."""
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
    """Update word frequencies by the difference of two texts; delete words whose count drops to 0."""
    changes = {term: new.get(term, 0) - old.get(term, 0) for term in sorted({*old, *new})}
    changes = {term: change for term, change in changes.items() if change}
    if changes:
        yield Ask("count_terms", rows=[(term, owner_id, team_id, change) for term, change in changes.items()])
    lost = [term for term, change in changes.items() if change < 0 and term not in new]
    if lost:
        yield Ask("drop_terms", (owner_id, team_id, lost))
