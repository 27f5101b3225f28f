"""The catalogue's writes on SQLite, inside the caller's transaction."""

from __future__ import annotations

from callsheet.catalog import validation
from callsheet.catalog.records import Clip, Json, Video, VideoFacts, Writer, segment_row, video_of
from callsheet.catalog.search import sqlite as words
from callsheet.kernel.errors import InvalidInput, StaleClaim
from callsheet.store.queries import Queries
from callsheet.store.sqlite.connection import Db

Q = Queries("callsheet.catalog.sqlite")
ALL = (True, "", "[]")


def add_video(db: Db, video: Video, now: int) -> bool:
    """Insert a video and give it a number in the search index; return False if the id exists."""
    times = (video.created_at or now, video.updated_at or video.created_at or now)
    row = (*video[:-2], *times, validation.fold(video.title))
    if not db.execute(Q.add_video, row).fetchall():
        return False
    words.enter(db, video.video_id, video.owner_id, video.team_id)
    return True


def begin(db: Db, video_id: str, writer: Writer, stage: str, now: int) -> Video | None:
    """Make `writer` the video's writer; return None without the video, raise StaleClaim if it has a later writer."""
    rows = db.execute(Q.begin, (video_id, *writer, now, stage)).fetchall()
    if rows:
        return video_of(rows[0])
    if db.execute(Q.video, (video_id, *ALL)).fetchone() is None:
        return None
    raise stale(video_id, writer)


def check_fence(db: Db, video_id: str, writer: Writer, now: int) -> tuple[str, str | None]:
    """Return the video's owner and team; raise StaleClaim if a later attempt writes the video."""
    rows: list[tuple[str, str | None]] = db.execute(Q.fence, (video_id, *writer, now)).fetchall()
    if not rows:
        raise stale(video_id, writer)
    return rows[0]


def note(db: Db, video_id: str, writer: Writer, facts: VideoFacts, now: int) -> None:
    """Store the facts that a stage measured."""
    check_fence(db, video_id, writer, now)
    db.execute(Q.note, (video_id, *facts)).fetchall()


def fail(db: Db, video_id: str, writer: Writer, error: Json, now: int) -> None:
    """Store the pipeline's error; the video becomes `failed` unless it is `ready`."""
    check_fence(db, video_id, writer, now)
    db.execute(Q.fail, (video_id, error)).fetchall()


def clear_detections(db: Db, video_id: str, writer: Writer, now: int) -> None:
    """Delete the video's raw detections."""
    check_fence(db, video_id, writer, now)
    db.execute(Q.clear_detections, (video_id,)).fetchall()


def add_segments(db: Db, video_id: str, writer: Writer, batch: validation.Batch, now: int) -> None:
    """Insert segments and entities; existing rows stay unchanged."""
    whose = check_fence(db, video_id, writer, now)
    db.executemany(Q.add_segment, [segment_row(s, video_id, *whose) for s in batch.segments])
    db.executemany(Q.add_entity, [(*e[:2], video_id, *e[2:], *whose) for e in batch.entities])


def replace_segments(db: Db, video_id: str, writer: Writer, batch: validation.Batch, now: int) -> None:
    """Replace the video's segments and entities, index the new text and mark the video `ready`."""
    check_fence(db, video_id, writer, now)
    db.execute(Q.delete_entities, (video_id,)).fetchall()
    db.execute(Q.delete_segments, (video_id,)).fetchall()
    add_segments(db, video_id, writer, batch, now)
    db.execute(Q.ready, (video_id,)).fetchall()
    refresh(db, video_id)


def refresh(db: Db, video_id: str) -> None:
    """Rebuild the video's rows in `search_materialized` and its index entries from its segments."""
    db.execute(Q.delete_search, (video_id,)).fetchall()
    db.execute(Q.fill_search, (video_id,)).fetchall()
    words.index(db, video_id)
    db.execute(Q.not_stale, (video_id,)).fetchall()


def delete_video(db: Db, video_id: str) -> None:
    """Delete a video with its segments, entities, clips and index entries."""
    words.remove(db, video_id)
    for sql in (Q.delete_search, Q.delete_entities, Q.delete_segments, Q.delete_clips_of, Q.delete_video):
        db.execute(sql, (video_id,)).fetchall()


def add_clip(db: Db, clip: Clip, now: int) -> Clip:
    """Insert a clip and return the row of its id; raise InvalidInput if the video does not exist."""
    db.execute(Q.add_clip, clip._replace(created_at=clip.created_at or now)).fetchall()
    row = db.execute(Q.clip, (clip.clip_id, *ALL)).fetchone()
    if row is None:
        raise InvalidInput(f"there is no video {clip.video_id} to take a clip of")
    return Clip._make(row)


def stale(video_id: str, writer: Writer) -> StaleClaim:
    """Return the error for a write by an attempt that is no longer the video's writer."""
    return StaleClaim(f"job {writer.job_id} does not write video {video_id} any more: it is gone, or a later job does")
