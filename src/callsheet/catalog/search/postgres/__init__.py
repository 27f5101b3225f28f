"""The search on a PostgreSQL catalogue: its queries, run on the caller's connection and in his transaction."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from callsheet.catalog.records import Reader
from callsheet.catalog.search import write
from callsheet.catalog.search.find import search as found
from callsheet.catalog.search.records import Found, Query, Suggestion
from callsheet.catalog.search.steps import Ask, Steps
from callsheet.catalog.search.suggest import suggest as suggested
from callsheet.catalog.search.terms import Terms
from callsheet.store.queries import Queries

T = TypeVar("T")
Q = Queries(__name__)
MANY = 50  # rows; a step over fewer takes less than a change of threads does
THOUGHTFUL = {"version", "tags"}  # after these words are guessed at, and texts are split


async def run(session: Any, steps: Steps[T]) -> T:
    """Answer what the steps ask until they are done. Where there is much to think they do so in a thread."""
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
    done: T = result
    return done


def _next(steps: Steps[T], answer: list[Any] | None) -> tuple[Ask | None, Any]:
    """The next question, or none and the result: a StopIteration cannot leave a thread."""
    try:
        return (next(steps) if answer is None else steps.send(answer)), None
    except StopIteration as end:
        return None, end.value


async def enter(session: Any, video_id: str, owner_id: str, team_id: str | None) -> None:
    """Give a new video its number, in the transaction that adds it."""
    await run(session, write.enter(video_id, owner_id, team_id))


async def index(session: Any, video_id: str) -> None:
    """Make the video's present rows what is found of it, in the transaction that wrote them."""
    await run(session, write.index(video_id))


async def forget(session: Any, video_id: str) -> None:
    """Nothing of the video is found any more; it keeps its number."""
    await run(session, write.forget(video_id))


async def remove(session: Any, video_id: str) -> None:
    """Nothing is left of the video here. May be called twice."""
    await run(session, write.remove(video_id))


async def search(session: Any, query: Query, reader: Reader, terms: Terms) -> Found:
    """Segments that fit, best first. The caller sees to it that all queries see one state."""
    return await run(session, found(query, reader, terms))


async def suggest(session: Any, prefix: str, limit: int, reader: Reader, _: Terms) -> list[Suggestion]:
    """Words of this reader's videos that begin so, most frequent first."""
    return await run(session, suggested(prefix, limit, reader))
