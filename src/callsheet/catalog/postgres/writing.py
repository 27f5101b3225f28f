"""The catalogue's writes on PostgreSQL, inside the caller's transaction."""

from __future__ import annotations

from typing import Any

from callsheet.catalog import validation
from callsheet.catalog.records import Clip, Json, NewSegment, Video, VideoFacts, Writer, box_json, video_of
from callsheet.catalog.search import postgres as words
from callsheet.kernel.errors import InvalidInput, StaleClaim
from callsheet.store.queries import Queries

Q = Queries("callsheet.catalog.postgres")
NO_TEAMS: list[str] = []
ALL = (True, "", NO_TEAMS)


async def add_video(session: Any, video: Video) -> bool:
    """Insert a video and give it a number in the search index; return False if the id exists."""
    if not await session.fetch(Q.add_video, *video, validation.fold(video.title)):
        return False
    await words.enter(session, video.video_id, video.owner_id, video.team_id)
    return True


async def begin(session: Any, video_id: str, writer: Writer, stage: str) -> Video | None:
    """Make `writer` the video's writer; return None without the video, raise StaleClaim if it has a later writer."""
    rows = await session.fetch(Q.begin, video_id, *writer, stage)
    if rows:
        return video_of(rows[0])
    if not await session.fetch(Q.video, video_id, *ALL):
        return None
    raise stale(video_id, writer)


async def check_fence(session: Any, video_id: str, writer: Writer) -> tuple[str, str | None]:
    """Lock the video's row and return its owner and team; raise StaleClaim if a later attempt writes the video."""
    rows = await session.fetch(Q.fence, video_id, *writer)
    if not rows:
        raise stale(video_id, writer)
    owner_id, team_id = rows[0]
    return owner_id, team_id


async def note(session: Any, video_id: str, writer: Writer, facts: VideoFacts) -> None:
    """Store the facts that a stage measured."""
    await check_fence(session, video_id, writer)
    await session.execute(Q.note, video_id, *facts)


async def fail(session: Any, video_id: str, writer: Writer, error: Json) -> None:
    """Store the pipeline's error; the video becomes `failed` unless it is `ready`."""
    await check_fence(session, video_id, writer)
    await session.execute(Q.fail, video_id, error)


async def clear_detections(session: Any, video_id: str, writer: Writer) -> None:
    """Delete the video's raw detections."""
    await check_fence(session, video_id, writer)
    await session.execute(Q.clear_detections, video_id)


async def add_segments(session: Any, video_id: str, writer: Writer, batch: validation.Batch) -> None:
    """Insert segments and entities; existing rows stay unchanged."""
    whose = await check_fence(session, video_id, writer)
    await session.execute(Q.add_segments, video_id, *whose, *_columns([_row(s) for s in batch.segments], 11))
    if batch.entities:
        await session.execute(Q.add_entities, video_id, *whose, *_columns(batch.entities, 5))


async def replace_segments(session: Any, video_id: str, writer: Writer, batch: validation.Batch) -> None:
    """Replace the video's segments and entities, index the new text and mark the video `ready`."""
    await check_fence(session, video_id, writer)
    await session.execute(Q.delete_entities, video_id)
    await session.execute(Q.delete_segments, video_id)
    await add_segments(session, video_id, writer, batch)
    await session.execute(Q.ready, video_id)
    await session.execute(Q.refresh_one, video_id)
    await index(session, video_id)


async def index(session: Any, video_id: str) -> None:
    """Index the words of the video's rows in `search_materialized`."""
    await words.index(session, video_id)
    await session.execute(Q.indexed, video_id)


async def index_next(session: Any) -> bool:
    """Index one unindexed video that no other process has locked; return False if there is none."""
    rows = await session.fetch(Q.next_unindexed)
    for (video_id,) in rows:
        await index(session, video_id)
    return bool(rows)


async def delete_video(session: Any, video_id: str) -> None:
    """Delete a video with its segments, entities, clips and index entries."""
    await session.execute(Q.lock_video, video_id)
    await words.remove(session, video_id)
    for sql in (Q.delete_search, Q.delete_entities, Q.delete_segments, Q.delete_video):
        await session.execute(sql, video_id)


async def add_clip(session: Any, clip: Clip) -> Clip:
    """Insert a clip and return the row of its id; raise InvalidInput if the video does not exist."""
    await session.execute(Q.add_clip, *clip)
    rows = await session.fetch(Q.clip, clip.clip_id, *ALL)
    if not rows:
        raise InvalidInput(f"there is no video {clip.video_id} to take a clip of")
    return Clip._make(rows[0])


def stale(video_id: str, writer: Writer) -> StaleClaim:
    """Return the error for a write by an attempt that is no longer the video's writer."""
    return StaleClaim(f"job {writer.job_id} does not write video {video_id} any more: it is gone, or a later job does")


def _row(s: NewSegment) -> tuple[Any, ...]:
    head = (s.segment_id, s.t_start, s.t_end, s.text, s.normalized_text, s.text_hash, s.confidence)
    return (*head, box_json(s.bounding_box), s.language, s.is_merged, s.seen)


def _columns(rows: Any, width: int) -> list[list[Any]]:
    """Return rows as `width` columns, which are empty without rows."""
    return [[row[place] for row in rows] for place in range(width)]
