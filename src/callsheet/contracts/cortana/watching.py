"""Routes for players and readers of a video: HLS stream, poster, frames, texts, entities and exports."""

from __future__ import annotations

import bisect
import json
import re
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from callsheet.api.objects import object_response
from callsheet.catalog.records import Segment
from callsheet.http import problems
from callsheet.http.json_bodies import JsonAnswer
from callsheet.http.object_access import objects_of
from callsheet.http.problems import Problem
from callsheet.http.state import state_of
from callsheet.media.reading.exports import MEDIA_TYPES, WRITERS
from callsheet.media.reading.records import Range
from callsheet.objects import ObjectNotFound

from . import paths
from .access import ALWAYS, MayRead, VideoId, catalog_of, reader_of, video_of
from .models import EntityList, Export, SegmentList, segment_body

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
