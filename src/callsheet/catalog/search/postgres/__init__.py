"""The search on PostgreSQL: runs its queries on the caller's connection, inside the caller's transaction."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from callsheet.catalog.records import Reader
from callsheet.catalog.search import postings
from callsheet.catalog.search.db_requests import Ask, Steps
from callsheet.catalog.search.find import search as search_steps
from callsheet.catalog.search.find import suggest as suggest_steps
from callsheet.catalog.search.records import Found, Query, Suggestion
from callsheet.catalog.search.terms import Terms
from callsheet.store.queries import Queries

T = TypeVar("T")
Q = Queries(__name__)
MANY = 50  # rows; a step over fewer rows takes less time than a thread switch
THOUGHTFUL = {"version", "tags"}  # the steps after these queries expand words or tokenise texts


async def run(session: Any, steps: Steps[T]) -> T:
    """Run the queries that the steps yield and return the steps' result. Long computations run in a thread."""
    ask, result = _next(steps, None)
    while ask is not None:
        sql = getattr(Q, ask.name)
        if ask.rows is not None:
            await session.execute(sql, *(list(column) for column in zip(*ask.rows, strict=True)))
            answer = []
        else:
            answer = await session.fetch(sql, *ask.arguments)
        if len(answer) > MANY or ask.name in THOUGHTFUL:
            ask, result = await asyncio.to_thread(_next, steps, answer)
        else:
            ask, result = _next(steps, answer)
    value: T = result
    return value


def _next(steps: Steps[T], answer: list[Any] | None) -> tuple[Ask | None, Any]:
    """Return the next query, or None and the result, because a StopIteration cannot leave a thread."""
    try:
        return (next(steps) if answer is None else steps.send(answer)), None
    except StopIteration as end:
        return None, end.value


async def enter(session: Any, video_id: str, owner_id: str, team_id: str | None) -> None:
    """Assign a new video its number, in the transaction that inserts the video."""
    await run(session, postings.enter(video_id, owner_id, team_id))


async def index(session: Any, video_id: str) -> None:
    """Index the video's current rows, in the transaction that wrote them."""
    await run(session, postings.index(video_id))


async def forget(session: Any, video_id: str) -> None:
    """Delete the video's index entries, except for its number."""
    await run(session, postings.forget(video_id))


async def remove(session: Any, video_id: str) -> None:
    """Delete the video's index entries and its number. Safe to call twice."""
    await run(session, postings.remove(video_id))


async def search(session: Any, query: Query, reader: Reader, terms: Terms) -> Found:
    """Return a page of matching segments, best first. The caller's transaction must give all queries one snapshot."""
    return await run(session, search_steps(query, reader, terms))


async def suggest(session: Any, prefix: str, limit: int, reader: Reader, _: Terms) -> list[Suggestion]:
    """Return completions of `prefix` from the reader's videos, most frequent first."""
    return await run(session, suggest_steps(prefix, limit, reader))
