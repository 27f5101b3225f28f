"""`/search`: find on-screen text, and when it was on screen."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request

from callsheet.catalog.search import records
from callsheet.http import problems
from callsheet.http.json_bodies import JsonAnswer
from callsheet.http.state import state_of

from .access import ALWAYS, MayRead, catalog_of, reader_of
from .models import FoundBody, SuggestionList, found_body

router = APIRouter(prefix="/search", tags=["search"])
EntityType = Literal["mention", "hashtag", "url", "emoji", "number"]
Time = Annotated[int | None, Query(ge=0, description="Milliseconds within the video.")]


@router.get(
    "",
    summary="Search all videos",
    response_model=FoundBody,
    responses=problems.responses(*ALWAYS, "validation_failed", "invalid_input"),
)
async def search(  # noqa: PLR0913 - what can be asked
    request: Request,
    who: MayRead,
    *,
    q: Annotated[str, Query(description='Words, "phrases", -without.')] = "",
    mode: Annotated[Literal["fuzzy", "exact", "substring"], Query()] = "fuzzy",
    video_id: Annotated[list[str] | None, Query(max_length=100)] = None,
    from_ms: Time = None,
    to_ms: Time = None,
    entity: Annotated[EntityType | None, Query()] = None,
    value: Annotated[str | None, Query(max_length=500, description="The entity's value.")] = None,
    language: Annotated[str | None, Query(max_length=20)] = None,
    min_confidence: Annotated[float, Query(ge=0, le=1)] = 0.0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> JsonAnswer:
    """Search on-screen text, best hits first. Words with a wrong letter match too, and rank behind exact matches."""
    query = records.Query(
        q,
        mode,
        tuple(video_id or ()),
        from_ms,
        to_ms,
        entity,
        value,
        language,
        min_confidence,
        limit,
        cursor,
    )
    return JsonAnswer(found_body(await catalog_of(state_of(request)).search(query, reader_of(who))))


@router.get(
    "/suggestions",
    summary="Words that begin so",
    response_model=SuggestionList,
    responses=problems.responses(*ALWAYS, "validation_failed"),
)
async def suggestions(
    request: Request,
    who: MayRead,
    q: Annotated[str, Query(min_length=1, max_length=100)],
    limit: Annotated[int, Query(ge=1, le=50)] = 8,
) -> JsonAnswer:
    """List words with this prefix, most frequent first."""
    words = await catalog_of(state_of(request)).suggest(q, limit, reader_of(who))
    return JsonAnswer({"suggestions": [suggestion._asdict() for suggestion in words]})
