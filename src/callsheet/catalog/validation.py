"""Validation of records before they enter the catalogue, for every database. Invalid ones raise InvalidInput."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.new_jobs import IS_UUID

from .records import ENTITY_TYPES, Clip, Json, NewEntity, NewSegment, Reader, Video, VideoPage

MAX_PAGE = 1_000
MAX_ID = 200


class Batch(NamedTuple):
    """Validated segments and entities, ready to be written."""

    segments: Sequence[NewSegment]
    entities: Sequence[NewEntity]


def known_id(video_id: str) -> str | None:
    """Return the id in lower case, as rows store it; None for text that is no UUID, as no video has such an id."""
    lower = video_id.lower()
    return lower if IS_UUID(lower) else None


def known_ids(video_ids: Iterable[str]) -> list[str]:
    """Return the ids that are UUIDs, in lower case; drop the rest, as no video has such an id."""
    return [id_ for id_ in map(known_id, video_ids) if id_ is not None]


def video_of(video: Video) -> Video:
    """Return a new video as its row stores it; raise InvalidInput for a bad id or bad JSON."""
    video_id = known_id(video.video_id)
    if video_id is None:
        raise InvalidInput(f"{video.video_id[:80]!r} is no id of a video; ids are UUIDs")
    check_json(video.coverage, video.options, video.jobs, video.error)
    team_id = None if video.team_id is None else plain(video.team_id)
    return video._replace(video_id=video_id, title=plain(video.title), owner_id=plain(video.owner_id), team_id=team_id)


def reader_of(reader: Reader) -> Reader:
    """Return the reader with owner and team names cleaned like those in rows, so that the two compare equal."""
    return Reader(plain(reader.owner_id), tuple(map(plain, reader.team_ids)), reader.sees_all)


def batch_of(segments: Sequence[NewSegment], entities: Sequence[NewEntity] = ()) -> Batch:
    """Return segments and entities as rows store them; raise InvalidInput with the id of the first invalid one."""
    for segment in segments:
        if not segment.segment_id or len(segment.segment_id) > MAX_ID:
            raise InvalidInput(f"a segment's id has 1 to {MAX_ID} characters")
        if not 0 <= segment.t_start <= segment.t_end:
            raise InvalidInput(
                f"segment {segment.segment_id} is on screen from {segment.t_start} to {segment.t_end} ms"
            )
        if not 0 <= segment.confidence <= 1:
            raise InvalidInput(f"segment {segment.segment_id} has confidence {segment.confidence}; it is from 0 to 1")
    ids = {segment.segment_id for segment in segments}
    for entity in entities:
        if entity.entity_type not in ENTITY_TYPES:
            raise InvalidInput(f"{entity.entity_type!r} is no type of entity; there are {', '.join(ENTITY_TYPES)}")
        if entity.segment_id not in ids:
            raise InvalidInput(f"entity {entity.entity_id} is of segment {entity.segment_id}, which is not among these")
    return Batch([_plain_segment(s) for s in segments], [_plain_entity(e) for e in entities])


def merged_of(segments: Sequence[NewSegment], entities: Sequence[NewEntity]) -> Batch:
    """Return the batch of a video's merged segments, its whole text; raise InvalidInput also for duplicate ids."""
    batch = batch_of([segment._replace(is_merged=True) for segment in segments], entities)
    if len({s.segment_id for s in segments}) < len(segments) or len({e.entity_id for e in entities}) < len(entities):
        raise InvalidInput("two segments, or two entities, have the same id; an id names one of them")
    return batch


def clip_of(clip: Clip) -> Clip:
    """Return a new clip as its row stores it; raise InvalidInput for bad ids or times."""
    video_id = known_id(clip.video_id)
    if video_id is None:
        raise InvalidInput(f"{clip.video_id[:80]!r} is no id of a video; ids are UUIDs")
    if not 0 < len(clip.clip_id) <= MAX_ID:
        raise InvalidInput(f"a clip's id has 1 to {MAX_ID} characters")
    if not 0 <= clip.t_start < clip.t_end or clip.padding_ms < 0:
        raise InvalidInput(f"a clip from {clip.t_start} to {clip.t_end} ms with {clip.padding_ms} ms around it is none")
    team_id = None if clip.team_id is None else plain(clip.team_id)
    return clip._replace(video_id=video_id, clip_id=plain(clip.clip_id), owner_id=plain(clip.owner_id), team_id=team_id)


def check_page(page: VideoPage) -> None:
    """Raise InvalidInput unless the page has 1 to 1,000 videos."""
    if not 0 < page.limit <= MAX_PAGE:
        raise InvalidInput(f"a page has 1 to {MAX_PAGE} videos, not {page.limit}")


def fold(text: str) -> str:
    """Return text in NFKC, case-folded: comparisons then give the same result on every database."""
    return unicodedata.normalize("NFKC", plain(text)).casefold()


def plain(text: str) -> str:
    """Replace NUL and lone surrogates, which databases reject, one character each, so that positions stay the same."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def check_json(*texts: Json | None) -> None:
    """Raise InvalidInput unless each text is None or a JSON object without NUL characters."""
    for text in texts:
        if text is None:
            continue
        try:
            read = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"this is not JSON text: {error}") from error
        if not isinstance(read, dict) or "\\u0000" in text:
            raise InvalidInput("this must be a JSON object without NUL characters")


def _plain_segment(s: NewSegment) -> NewSegment:
    return s._replace(text=plain(s.text), normalized_text=plain(s.normalized_text))


def _plain_entity(e: NewEntity) -> NewEntity:
    return e._replace(value=plain(e.value), normalized_value=plain(e.normalized_value))
