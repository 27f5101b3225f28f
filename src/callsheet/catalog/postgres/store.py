"""The catalogue's verbs on PostgreSQL: each one statement or one short transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Self, TypeVar

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
from callsheet.catalog.search import postgres as words
from callsheet.catalog.search.records import Found, Query, Suggestion
from callsheet.kernel.errors import InvalidInput
from callsheet.store.postgres.connection import Target
from callsheet.store.queries import Queries

from . import schema, writing
from .schema import CatalogDatabase

T = TypeVar("T")
Q = Queries("callsheet.catalog.postgres")
AT_ONCE = 20  # videos whose words one search indexes
NOBODY = "00000000-0000-0000-0000-000000000000"


class PostgresCatalog:
    """The Catalog protocol on one PostgreSQL database (13 or newer), shared by many processes and machines."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._db = CatalogDatabase(target)
        self._terms = Terms()

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return the catalogue in the database of a URL, `postgresql://…`."""
        return cls(Target.from_url(url))

    async def open(self) -> None:
        """Connect and check the schema; raise SchemaMismatch if `migrate()` has to run first."""
        try:
            await self._db.open()
            await schema.check(self._db)
        except BaseException:
            await self._db.close()
            raise

    async def close(self) -> None:
        """Close all connections."""
        await self._db.close()

    async def migrate(self) -> list[str]:
        """Run the migrations that are missing, in one transaction; the catalogue need not be open."""
        return await schema.migrate(self.target)

    async def add_video(self, video: Video) -> bool:
        """See the protocol."""
        valid_video = validation.video_of(video)
        return await self._db.transact(lambda session: writing.add_video(session, valid_video))

    async def video(self, video_id: str, reader: Reader) -> Video | None:
        """See the protocol."""
        rows = await self._db.fetch(Q.video, validation.known_id(video_id), *_seen_by(reader))
        return video_of(rows[0]) if rows else None

    async def videos(self, page: VideoPage, reader: Reader) -> list[Video]:
        """See the protocol."""
        validation.check_page(page)
        place: tuple[int | None, str] = (None, NOBODY)
        if page.before is not None:
            last = await self.video(page.before, reader)
            if last is None:
                raise InvalidInput("there is no video of this id to go on from; begin with the first page")
            place = (last.created_at, last.video_id)
        arguments = (*place, page.status, validation.fold(page.text), page.limit)
        if reader.sees_all:
            return [video_of(row) for row in await self._db.fetch(Q.videos_seen_by_all, *arguments)]
        return [video_of(row) for row in await self._db.fetch(Q.videos, *arguments, *_seen_by(reader)[1:])]

    async def known(self, video_ids: Sequence[str]) -> set[str]:
        """See the protocol."""
        return {row[0] for row in await self._db.fetch(Q.known, validation.known_ids(video_ids))}

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
        await self._db.fetch(Q.queue, validation.known_id(video_id), size_bytes)

    async def clear_detections(self, video_id: str, writer: Writer) -> None:
        """See the protocol."""
        await self._write(writing.clear_detections, video_id, writer)

    async def add_detections(self, video_id: str, writer: Writer, segments: Sequence[NewSegment]) -> None:
        """See the protocol."""
        batch = validation.batch_of([segment._replace(is_merged=False) for segment in segments])
        await self._write(writing.add_segments, video_id, writer, batch)

    async def segments_of(self, video_id: str, reader: Reader) -> list[Segment]:
        """See the protocol."""
        rows = await self._db.fetch(Q.segments_of, validation.known_id(video_id), *_seen_by(reader))
        return [segment_of(row) for row in rows]

    async def detections_of(self, video_id: str) -> list[Segment]:
        """See the protocol."""
        return [segment_of(row) for row in await self._db.fetch(Q.detections_of, validation.known_id(video_id))]

    async def replace_segments(
        self, video_id: str, writer: Writer, segments: Sequence[NewSegment], entities: Sequence[NewEntity]
    ) -> None:
        """See the protocol."""
        batch = validation.merged_of(segments, entities)
        await self._write(writing.replace_segments, video_id, writer, batch)

    async def refresh_search(self) -> int:
        """See the protocol. Runs one short transaction per video; several processes may share the work."""
        await self._db.fetch(Q.refresh_all)
        count = 0
        while await self._db.transact(writing.index_next):
            count += 1
        return count

    async def entities_of(self, video_id: str, reader: Reader) -> list[Entity]:
        """See the protocol."""
        rows = await self._db.fetch(Q.entities_of, validation.known_id(video_id), *_seen_by(reader))
        return [Entity._make(row) for row in rows]

    async def delete_video(self, video_id: str) -> None:
        """See the protocol."""
        valid_id = validation.known_id(video_id)
        if valid_id:
            await self._db.transact(lambda session: writing.delete_video(session, valid_id))

    async def add_clip(self, clip: Clip) -> Clip:
        """See the protocol."""
        valid_clip = validation.clip_of(clip)
        return await self._db.transact(lambda session: writing.add_clip(session, valid_clip))

    async def clip(self, clip_id: str, reader: Reader) -> Clip | None:
        """See the protocol."""
        rows = await self._db.fetch(Q.clip, validation.plain(clip_id), *_seen_by(reader))
        return Clip._make(rows[0]) if rows else None

    async def clips_of(self, video_id: str, reader: Reader) -> list[Clip]:
        """See the protocol."""
        rows = await self._db.fetch(Q.clips_of, validation.known_id(video_id), *_seen_by(reader))
        return [Clip._make(row) for row in rows]

    async def note_clip(self, clip_id: str, actual: tuple[int, int], expires_at: int) -> None:
        """See the protocol."""
        await self._db.fetch(Q.note_clip, validation.plain(clip_id), *actual, expires_at)

    async def expired_clips(self, now_ms: int, limit: int) -> list[Clip]:
        """See the protocol."""
        return [Clip._make(row) for row in await self._db.fetch(Q.expired_clips, now_ms, limit)]

    async def delete_clips(self, clip_ids: Sequence[str]) -> list[str]:
        """See the protocol."""
        rows = await self._db.fetch(Q.delete_clips, [validation.plain(clip_id) for clip_id in clip_ids])
        return [str(row[0]) for row in rows]

    async def search(self, query: Query, reader: Reader) -> Found:
        """See the protocol."""
        visible_to = validation.reader_of(reader)
        await self._index_some()
        return await self._db.read(lambda session: words.search(session, query, visible_to, self._terms))

    async def suggest(self, prefix: str, limit: int, reader: Reader) -> list[Suggestion]:
        """See the protocol."""
        visible_to = validation.reader_of(reader)
        return await self._db.read(lambda session: words.suggest(session, prefix, limit, visible_to, self._terms))

    async def _index_some(self) -> None:
        """Index videos whose rows were written by SQL; at most 20 videos, because a user waits for the search."""
        ((behind,),) = await self._db.fetch(Q.is_unindexed)
        for _ in range(AT_ONCE if behind else 0):
            if not await self._db.transact(writing.index_next):
                return

    async def _write(self, verb: Callable[..., Awaitable[T]], video_id: str, writer: Writer, *more: object) -> T:
        valid_id = validation.known_id(video_id)
        if valid_id is None:
            raise writing.stale(video_id, writer)
        return await self._db.transact(lambda session: verb(session, valid_id, writer, *more))


def _seen_by(reader: Reader) -> tuple[bool, str, list[str]]:
    owner_id, team_ids, sees_all = validation.reader_of(reader)
    return sees_all, owner_id, list(team_ids)
