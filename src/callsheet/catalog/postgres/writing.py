"""What writes to the catalogue in PostgreSQL, inside a transaction."""

from __future__ import annotations

from typing import Any

from callsheet.catalog import intake
from callsheet.catalog.records import Clip, Json, NewSegment, Video, VideoFacts, Writer
from callsheet.catalog.rows import box_json, video_of
from callsheet.catalog.search import postgres as words
from callsheet.kernel.errors import InvalidInput, StaleClaim
from callsheet.store.queries import Queries

Q = Queries("callsheet.catalog.postgres")
NO_TEAMS: list[str] = []
ALL = (True, "", NO_TEAMS)


async def add_video(session: Any, video: Video) -> bool:
    """Enter a video and make it known to the search."""
    if not await session.fetch(Q.add_video, *video, intake.fold(video.title)):
        return False
    await words.enter(session, video.video_id, video.owner_id, video.team_id)
    return True


async def begin(session: Any, video_id: str, writer: Writer, stage: str) -> Video | None:
    """Move the fence forward; raises StaleClaim when it is further already."""
    rows = await session.fetch(Q.begin, video_id, *writer, stage)
    if rows:
        return video_of(rows[0])
    if not await session.fetch(Q.video, video_id, *ALL):
        return None
    raise stale(video_id, writer)


async def fenced(session: Any, video_id: str, writer: Writer) -> tuple[str, str | None]:
    """Owner and team of the video if no later attempt writes it, whose row is locked now; raises StaleClaim."""
    rows = await session.fetch(Q.fence, video_id, *writer)
    if not rows:
        raise stale(video_id, writer)
    owner_id, team_id = rows[0]
    return owner_id, team_id


async def note(session: Any, video_id: str, writer: Writer, facts: VideoFacts) -> None:
    """Write what a stage found out."""
    await fenced(session, video_id, writer)
    await session.execute(Q.note, video_id, *facts)


async def fail(session: Any, video_id: str, writer: Writer, error: Json) -> None:
    """End the pipeline."""
    await fenced(session, video_id, writer)
    await session.execute(Q.fail, video_id, error)


async def clear_detections(session: Any, video_id: str, writer: Writer) -> None:
    """Remove raw detections."""
    await fenced(session, video_id, writer)
    await session.execute(Q.clear_detections, video_id)


async def add_segments(session: Any, video_id: str, writer: Writer, batch: intake.Batch) -> None:
    """Keep segments and entities; those that are there stay."""
    whose = await fenced(session, video_id, writer)
    await session.execute(Q.add_segments, video_id, *whose, *_columns([_row(s) for s in batch.segments], 11))
    if batch.entities:
        await session.execute(Q.add_entities, video_id, *whose, *_columns(batch.entities, 5))


async def replace_segments(session: Any, video_id: str, writer: Writer, batch: intake.Batch) -> None:
    """The video's whole text in place of what there was, found by the search, and `ready`."""
    await fenced(session, video_id, writer)
    await session.execute(Q.delete_entities, video_id)
    await session.execute(Q.delete_segments, video_id)
    await add_segments(session, video_id, writer, batch)
    await session.execute(Q.ready, video_id)
    await session.execute(Q.refresh_one, video_id)
    await index(session, video_id)


async def index(session: Any, video_id: str) -> None:
    """Index the words of what is searched."""
    await words.index(session, video_id)
    await session.execute(Q.indexed, video_id)


async def index_next(session: Any) -> bool:
    """Index one video that needs it and that nobody else works on; False when there is none."""
    rows = await session.fetch(Q.next_unindexed)
    for (video_id,) in rows:
        await index(session, video_id)
    return bool(rows)


async def delete_video(session: Any, video_id: str) -> None:
    """Remove a video and all that is known of it."""
    await session.execute(Q.lock_video, video_id)
    await words.remove(session, video_id)
    for sql in (Q.delete_search, Q.delete_entities, Q.delete_segments, Q.delete_video):
        await session.execute(sql, video_id)


async def add_clip(session: Any, clip: Clip) -> Clip:
    """Enter a clip of a video that is there; the one of this id."""
    await session.execute(Q.add_clip, *clip)
    rows = await session.fetch(Q.clip, clip.clip_id, *ALL)
    if not rows:
        raise InvalidInput(f"there is no video {clip.video_id} to take a clip of")
    return Clip._make(rows[0])


def stale(video_id: str, writer: Writer) -> StaleClaim:
    """Why a write was refused."""
    return StaleClaim(f"job {writer.job_id} does not write video {video_id} any more: it is gone, or a later job does")


def _row(s: NewSegment) -> tuple[Any, ...]:
    head = (s.segment_id, s.t_start, s.t_end, s.text, s.normalized_text, s.text_hash, s.confidence)
    return (*head, box_json(s.bounding_box), s.language, s.is_merged, s.seen)


def _columns(rows: Any, width: int) -> list[list[Any]]:
    """Rows as columns, also when there are none."""
    return [[row[place] for row in rows] for place in range(width)]
