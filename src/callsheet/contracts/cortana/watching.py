"""Routes for players, readers and searchers of videos: HLS stream, poster, frames, texts, entities, exports, search."""

from __future__ import annotations

import bisect
import json
import re
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from callsheet.api.objects import object_response
from callsheet.catalog.records import Segment
from callsheet.catalog.search import records
from callsheet.http import problems
from callsheet.http.json_bodies import JsonAnswer
from callsheet.http.object_access import objects_of
from callsheet.http.problems import Problem
from callsheet.http.state import state_of
from callsheet.media.reading.exports import MEDIA_TYPES, WRITERS
from callsheet.media.reading.records import Range
from callsheet.objects import ObjectNotFound

from . import paths
from .models import EntityList, Export, FoundBody, SegmentList, SuggestionList, found_body, segment_body
from .visibility import ALWAYS, MayRead, VideoId, catalog_of, reader_of, video_of

PLAIN = re.compile(r"[A-Za-z0-9_-]{1,80}\.(m3u8|ts)").fullmatch
FILES = ("video_not_found", "object_not_found", "objects_unavailable", "range_not_satisfiable")
router = APIRouter(prefix="/videos/{video_id}", tags=["videos"])
FileName = Annotated[str, Path(examples=["index.m3u8"])]
At = Annotated[int, Path(ge=0, description="Milliseconds.")]


@router.get(
    "/hls/{name}", summary="Play a video", response_class=Response, responses=problems.responses(*ALWAYS, *FILES)
)
async def hls(request: Request, video_id: VideoId, name: FileName, who: MayRead) -> Response:
    """Send the playlist `index.m3u8` or one of the files that it names."""
    state = state_of(request)
    video = await video_of(state, video_id, who)
    if not PLAIN(name):
        raise Problem("object_not_found", "a playlist has no such file")
    return await object_response(request, objects_of(state), f"{paths.proxies(video.video_id)}/{name}")


@router.get(
    "/poster.jpg", summary="A video's poster", response_class=Response, responses=problems.responses(*ALWAYS, *FILES)
)
async def poster(request: Request, video_id: VideoId, who: MayRead) -> Response:
    """Send the video's poster image."""
    state = state_of(request)
    video = await video_of(state, video_id, who)
    return await object_response(request, objects_of(state), paths.poster(video.video_id))


@router.get(
    "/frames/at/{at}.jpg",
    summary="The frame at a time",
    response_class=Response,
    responses=problems.responses(*ALWAYS, *FILES),
)
async def frame_at(request: Request, video_id: VideoId, at: At, who: MayRead) -> Response:
    """Send the key frame on screen at a given time."""
    state = state_of(request)
    video = await video_of(state, video_id, who)
    objects = objects_of(state)
    try:
        manifest = json.loads(await objects.get(paths.manifest(video.video_id), max_bytes=64 * 1024 * 1024))
    except ObjectNotFound:
        raise Problem("object_not_found", "no frames were taken of this video yet") from None
    frames = sorted((frame["since_ms"], frame["timestamp_ms"]) for frame in manifest["frames"])
    place = max(0, bisect.bisect_right(frames, (at, 1 << 62)) - 1)
    return await object_response(request, objects, paths.frame(video.video_id, frames[place][1]))


@router.get(
    "/segments",
    summary="The texts of a video",
    response_model=SegmentList,
    responses=problems.responses(*ALWAYS, "video_not_found"),
)
async def segments(request: Request, video_id: VideoId, who: MayRead) -> JsonAnswer:
    """List the video's texts by time."""
    state = state_of(request)
    await video_of(state, video_id, who)
    rows = await catalog_of(state).segments_of(video_id, reader_of(who))
    return JsonAnswer({"video_id": video_id, "segments": [segment_body(segment) for segment in rows]})


@router.get(
    "/entities",
    summary="The entities of a video",
    response_model=EntityList,
    responses=problems.responses(*ALWAYS, "video_not_found"),
)
async def entities(request: Request, video_id: VideoId, who: MayRead) -> JsonAnswer:
    """List mentions, hashtags, URLs, emoji and numbers by time."""
    state = state_of(request)
    await video_of(state, video_id, who)
    rows = await catalog_of(state).entities_of(video_id, reader_of(who))
    return JsonAnswer({"video_id": video_id, "entities": [entity._asdict() for entity in rows]})


@router.get(
    "/text",
    summary="Export a video's text",
    response_class=Response,
    responses={
        200: {"content": {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in MEDIA_TYPES.values()}},
        **problems.responses(*ALWAYS, "video_not_found", "validation_failed"),
    },
)
async def text(
    request: Request, video_id: VideoId, who: MayRead, format: Annotated[Export, Query()] = "vtt"
) -> Response:
    """Export the texts as WebVTT, SRT, CSV or JSON."""
    state = state_of(request)
    await video_of(state, video_id, who)
    rows = await catalog_of(state).segments_of(video_id, reader_of(who))
    name = {"content-disposition": f'attachment; filename="{video_id}.{format}"'}
    return StreamingResponse(WRITERS[format](map(as_range, rows)), headers=name, media_type=MEDIA_TYPES[format])


def as_range(segment: Segment) -> Range:
    """Return a segment in the form that exporters take."""
    box = segment.bounding_box
    return Range(
        segment.t_start,
        segment.t_end,
        segment.text,
        segment.normalized_text,
        segment.text_hash,
        segment.confidence,
        (box.x, box.y, box.width, box.height),
        segment.language,
        segment.seen,
    )


search_router = APIRouter(prefix="/search", tags=["search"])
EntityType = Literal["mention", "hashtag", "url", "emoji", "number"]
Time = Annotated[int | None, Query(ge=0, description="Milliseconds within the video.")]


@search_router.get(
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


@search_router.get(
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
