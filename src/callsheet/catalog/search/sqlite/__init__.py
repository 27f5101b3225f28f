"""The search on SQLite: runs its queries on the caller's connection, inside the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, TypeVar

from callsheet.catalog.records import Reader
from callsheet.catalog.search import postings
from callsheet.catalog.search.db_requests import Steps
from callsheet.catalog.search.find import search as search_steps
from callsheet.catalog.search.find import suggest as suggest_steps
from callsheet.catalog.search.records import Found, Query, Suggestion
from callsheet.catalog.search.terms import Terms
from callsheet.store.queries import Queries

T = TypeVar("T")
Q = Queries(__name__)


def run(db: sqlite3.Connection, steps: Steps[T]) -> T:
    """Run the queries that the steps yield and return the steps' result."""
    try:
        ask = next(steps)
        while True:
            sql = getattr(Q, ask.name)
            if ask.rows is not None:
                db.executemany(sql, ask.rows)
                ask = steps.send([])
            else:
                ask = steps.send(db.execute(sql, [_parameter(value) for value in ask.arguments]).fetchall())
    except StopIteration as end:
        result: T = end.value
        return result


def _parameter(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def enter(db: sqlite3.Connection, video_id: str, owner_id: str, team_id: str | None) -> None:
    """Assign a new video its number, in the transaction that inserts the video."""
    run(db, postings.enter(video_id, owner_id, team_id))


def index(db: sqlite3.Connection, video_id: str) -> None:
    """Index the video's current rows, in the transaction that wrote them."""
    run(db, postings.index(video_id))


def forget(db: sqlite3.Connection, video_id: str) -> None:
    """Delete the video's index entries, except for its number."""
    run(db, postings.forget(video_id))


def remove(db: sqlite3.Connection, video_id: str) -> None:
    """Delete the video's index entries and its number. Safe to call twice."""
    run(db, postings.remove(video_id))


def search(db: sqlite3.Connection, query: Query, reader: Reader, terms: Terms) -> Found:
    """Return a page of matching segments, best first. The caller's transaction must give all queries one snapshot."""
    return run(db, search_steps(query, reader, terms))


def suggest(db: sqlite3.Connection, prefix: str, limit: int, reader: Reader, _: Terms) -> list[Suggestion]:
    """Return completions of `prefix` from the reader's videos, most frequent first."""
    return run(db, suggest_steps(prefix, limit, reader))
