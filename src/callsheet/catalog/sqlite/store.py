"""The catalogue's verbs on a SQLite file. Several processes may share it, and the engine's store is normally in it."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from callsheet.catalog import validation
from callsheet.catalog.records import (
    Clip,
    Entity,
    Json,
    NewEntity,
    NewSegment,
    Reader,
    Segment,
    Video,
    VideoFacts,
    VideoPage,
    Writer,
    segment_of,
    video_of,
)
from callsheet.catalog.search import Terms
from callsheet.catalog.search import sqlite as words
from callsheet.catalog.search.records import Found, Query, Suggestion
from callsheet.kernel.errors import InvalidInput
from callsheet.store.queries import Queries
from callsheet.store.sqlite import SqliteStore
from callsheet.store.sqlite.connection import Db, Target, Thread

from . import writing
from .schema import migrate

T = TypeVar("T")
Q = Queries("callsheet.catalog.sqlite")
FIRST = (1 << 62, "")  # sorts after every video


class SqliteCatalog:
    """The Catalog protocol on a SQLite file, with a connection for writes and one for reads (one in memory)."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._writer = Thread(target, writes=True)
        self._reader = self._writer if target.in_memory else Thread(target, writes=False)
        self._terms = Terms()

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return the catalogue in the file of a URL, `sqlite:///relative.db` or `sqlite:////absolute.db`."""
        return cls(SqliteStore.from_url(url).target)

    async def open(self) -> None:
        """Open the file and migrate it, like the engine's store; raise SchemaMismatch if the schema is newer."""
        await self.migrate()
        await self._reader.start()

    async def close(self) -> None:
        """Close both connections and stop their threads."""
        await self._reader.stop()
        await self._writer.stop()

    async def migrate(self) -> list[str]:
        """Run the missing migrations in one transaction and return their names."""
        await self._writer.start()
        return await self._writer.run(lambda db: migrate(db, _clock()))

    async def add_video(self, video: Video) -> bool:
        """See the protocol."""
        valid_video = validation.video_of(video)
        return await self._writer.run(lambda db: writing.add_video(db, valid_video, _clock()))

    async def video(self, video_id: str, reader: Reader) -> Video | None:
        """See the protocol."""
        rows = await self._rows(Q.video, validation.known_id(video_id), *_seen_by(reader))
        return video_of(rows[0]) if rows else None

    async def videos(self, page: VideoPage, reader: Reader) -> list[Video]:
        """See the protocol."""
        validation.check_page(page)
        place = FIRST
        if page.before is not None:
            last = await self.video(page.before, reader)
            if last is None:
                raise InvalidInput("there is no video of this id to go on from; begin with the first page")
            place = (last.created_at, last.video_id)
        arguments = (*place, page.status, validation.fold(page.text), page.limit)
        _, owner_id, teams = _seen_by(reader)
        if reader.sees_all:
            return [video_of(row) for row in await self._rows(Q.videos_seen_by_all, *arguments)]
        return [video_of(row) for row in await self._rows(Q.videos, *arguments, owner_id, teams)]

    async def known(self, video_ids: Sequence[str]) -> set[str]:
        """See the protocol."""
        return {row[0] for row in await self._rows(Q.known, json.dumps(validation.known_ids(video_ids)))}

    async def begin(self, video_id: str, writer: Writer, stage: str) -> Video | None:
        """See the protocol."""
        valid_id = validation.known_id(video_id)
        return await self._write(writing.begin, valid_id, writer, stage) if valid_id else None

    async def note(self, video_id: str, writer: Writer, facts: VideoFacts) -> None:
        """See the protocol."""
        validation.check_json(facts.coverage)
        await self._write(writing.note, video_id, writer, facts)

    async def fail(self, video_id: str, writer: Writer, error: Json) -> None:
        """See the protocol."""
        validation.check_json(error)
        await self._write(writing.fail, video_id, writer, error)

    async def queue(self, video_id: str, size_bytes: int | None = None) -> None:
        """See the protocol."""
        parameters = (validation.known_id(video_id), size_bytes, _clock())
        await self._writer.run(lambda db: db.execute(Q.queue, parameters).fetchall())

    async def clear_detections(self, video_id: str, writer: Writer) -> None:
        """See the protocol."""
        await self._write(writing.clear_detections, video_id, writer)

    async def add_detections(self, video_id: str, writer: Writer, segments: Sequence[NewSegment]) -> None:
        """See the protocol."""
        batch = validation.batch_of([segment._replace(is_merged=False) for segment in segments])
        await self._write(writing.add_segments, video_id, writer, batch)

    async def segments_of(self, video_id: str, reader: Reader) -> list[Segment]:
        """See the protocol."""
        rows = await self._rows(Q.segments_of, validation.known_id(video_id), *_seen_by(reader))
        return [segment_of(row) for row in rows]

    async def detections_of(self, video_id: str) -> list[Segment]:
        """See the protocol."""
        return [segment_of(row) for row in await self._rows(Q.detections_of, validation.known_id(video_id))]

    async def replace_segments(
        self, video_id: str, writer: Writer, segments: Sequence[NewSegment], entities: Sequence[NewEntity]
    ) -> None:
        """See the protocol."""
        batch = validation.merged_of(segments, entities)
        await self._write(writing.replace_segments, video_id, writer, batch)

    async def refresh_search(self) -> int:
        """See the protocol. Runs one short transaction per video."""
        stale = await self._rows(Q.stale_videos)
        for (video_id,) in stale:
            await self._writer.run(functools.partial(writing.refresh, video_id=video_id))
        return len(stale)

    async def entities_of(self, video_id: str, reader: Reader) -> list[Entity]:
        """See the protocol."""
        rows = await self._rows(Q.entities_of, validation.known_id(video_id), *_seen_by(reader))
        return [Entity._make(row) for row in rows]

    async def delete_video(self, video_id: str) -> None:
        """See the protocol."""
        valid_id = validation.known_id(video_id)
        if valid_id:
            await self._writer.run(lambda db: writing.delete_video(db, valid_id))

    async def add_clip(self, clip: Clip) -> Clip:
        """See the protocol."""
        valid_clip = validation.clip_of(clip)
        return await self._writer.run(lambda db: writing.add_clip(db, valid_clip, _clock()))

    async def clip(self, clip_id: str, reader: Reader) -> Clip | None:
        """See the protocol."""
        rows = await self._rows(Q.clip, validation.plain(clip_id), *_seen_by(reader))
        return Clip._make(rows[0]) if rows else None

    async def clips_of(self, video_id: str, reader: Reader) -> list[Clip]:
        """See the protocol."""
        rows = await self._rows(Q.clips_of, validation.known_id(video_id), *_seen_by(reader))
        return [Clip._make(row) for row in rows]

    async def note_clip(self, clip_id: str, actual: tuple[int, int], expires_at: int) -> None:
        """See the protocol."""
        parameters = (validation.plain(clip_id), *actual, expires_at)
        await self._writer.run(lambda db: db.execute(Q.note_clip, parameters).fetchall())

    async def expired_clips(self, now_ms: int, limit: int) -> list[Clip]:
        """See the protocol."""
        return [Clip._make(row) for row in await self._rows(Q.expired_clips, now_ms, limit)]

    async def delete_clips(self, clip_ids: Sequence[str]) -> list[str]:
        """See the protocol."""
        parameters = (json.dumps([validation.plain(clip_id) for clip_id in clip_ids]),)
        rows = await self._writer.run(lambda db: db.execute(Q.delete_clips, parameters).fetchall())
        return [str(row[0]) for row in rows]

    async def search(self, query: Query, reader: Reader) -> Found:
        """See the protocol."""
        visible_to = validation.reader_of(reader)
        return await self._reader.run(_as_one_state(lambda db: words.search(db, query, visible_to, self._terms)))

    async def suggest(self, prefix: str, limit: int, reader: Reader) -> list[Suggestion]:
        """See the protocol."""
        visible_to = validation.reader_of(reader)
        return await self._reader.run(
            _as_one_state(lambda db: words.suggest(db, prefix, limit, visible_to, self._terms))
        )

    async def _rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return await self._reader.run(lambda db: db.execute(sql, parameters).fetchall())

    async def _write(self, verb: Callable[..., T], video_id: str, writer: Writer, *more: object) -> T:
        valid_id = validation.known_id(video_id)
        if valid_id is None:
            raise writing.stale(video_id, writer)
        return await self._writer.run(lambda db: verb(db, valid_id, writer, *more, _clock()))


def _seen_by(reader: Reader) -> tuple[bool, str, Json]:
    owner_id, team_ids, sees_all = validation.reader_of(reader)
    return sees_all, owner_id, json.dumps(team_ids)


def _as_one_state(work: Callable[[Db], T]) -> Callable[[Db], T]:
    """Wrap `work` in a transaction, unless one is open already, so that all reads see one state of the file."""

    def as_one(db: Db) -> T:
        if db.in_transaction:
            return work(db)
        db.execute("BEGIN")
        try:
            return work(db)
        finally:
            db.execute("COMMIT")

    return as_one


def _clock() -> int:
    return time.time_ns() // 1_000_000
