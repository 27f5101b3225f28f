"""The verbs of a catalogue. Every implementation passes the same test suite, `tests/catalog`.

A pipeline's stages write behind a fence: a video stores its writer `(job_id, claim_version)`, which `begin` and each
write move forward. A write by an earlier writer, or to a deleted video, raises StaleClaim and changes nothing. Each
write is one transaction and safe to repeat, because a repeated row has the same id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from callsheet.kernel.job import Json

from .records import Clip, Entity, NewEntity, NewSegment, Reader, Segment, Video, VideoFacts, VideoPage, Writer
from .search.records import Found, Query, Suggestion


class Catalog(Protocol):
    """The store of videos, their segments and entities, with a search over the segments' text."""

    async def open(self) -> None:
        """Connect; raise StoreUnavailable, or SchemaMismatch before `migrate` was run. Migrates a SQLite file."""
        ...

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        ...

    async def migrate(self) -> list[str]:
        """Migrate the schema to this program's version and return the names of the migrations that ran."""
        ...

    async def add_video(self, video: Video) -> bool:
        """Insert a video; return False and change nothing if the id exists, so that one of many scanners wins."""
        ...

    async def video(self, video_id: str, reader: Reader) -> Video | None:
        """Return the video if it exists and the reader may see it, else None."""
        ...

    async def videos(self, page: VideoPage, reader: Reader) -> list[Video]:
        """Return a page of the videos that the reader may see, newest first."""
        ...

    async def known(self, video_ids: Sequence[str]) -> set[str]:
        """Return the ids among `video_ids` that the catalogue already has."""
        ...

    async def begin(self, video_id: str, writer: Writer, stage: str) -> Video | None:
        """Make this attempt the video's writer and the video `processing`; return None if the video does not exist.

        Stores the job's id in the column `jobs` under the stage. A `ready` video stays `ready` meanwhile.
        Raises StaleClaim if the video has a later writer.
        """
        ...

    async def note(self, video_id: str, writer: Writer, facts: VideoFacts) -> None:
        """Store the facts that a stage measured; fields that are None keep their column's value."""
        ...

    async def fail(self, video_id: str, writer: Writer, error: Json) -> None:
        """Store the pipeline's error and mark the video `failed`, unless an earlier run made it `ready`."""
        ...

    async def queue(self, video_id: str, size_bytes: int | None = None) -> None:
        """Change an `uploading` or `failed` video to `queued`, after its upload or for a new run of the pipeline."""
        ...

    async def clear_detections(self, video_id: str, writer: Writer) -> None:
        """Delete the video's raw detections before its frames are read again."""
        ...

    async def add_detections(self, video_id: str, writer: Writer, segments: Sequence[NewSegment]) -> None:
        """Insert a batch of raw detections; rows that already exist stay unchanged."""
        ...

    async def detections_of(self, video_id: str) -> list[Segment]:
        """Return the raw detections by time, for the merging stage; `replace_segments` deletes them."""
        ...

    async def segments_of(self, video_id: str, reader: Reader) -> list[Segment]:
        """Return the merged segments by time, or the raw detections as long as no segment is merged."""
        ...

    async def replace_segments(
        self, video_id: str, writer: Writer, segments: Sequence[NewSegment], entities: Sequence[NewEntity]
    ) -> None:
        """Replace the video's segments, detections and entities, index them and mark it `ready`, in one transaction."""
        ...

    async def refresh_search(self) -> int:
        """Index the videos that somebody marked `search_stale` and return their number.

        `replace_segments` indexes its own video, so only writers by SQL need this.
        """
        ...

    async def entities_of(self, video_id: str, reader: Reader) -> list[Entity]:
        """Return the video's entities, ordered by time."""
        ...

    async def delete_video(self, video_id: str) -> None:
        """Delete a video with its segments, entities, clips and index entries. Safe to call twice."""
        ...

    async def add_clip(self, clip: Clip) -> Clip:
        """Insert a clip and return it, or the existing clip of this id. Raises InvalidInput without the video."""
        ...

    async def clip(self, clip_id: str, reader: Reader) -> Clip | None:
        """Return the clip if it exists and the reader may see it, else None."""
        ...

    async def clips_of(self, video_id: str, reader: Reader) -> list[Clip]:
        """Return the video's clips that the reader may see, newest first."""
        ...

    async def note_clip(self, clip_id: str, actual: tuple[int, int], expires_at: int) -> None:
        """Store the actual start and end of a finished clip, and when it expires."""
        ...

    async def expired_clips(self, now_ms: int, limit: int) -> list[Clip]:
        """Return at most `limit` clips that expired by `now_ms`, oldest expiry first."""
        ...

    async def delete_clips(self, clip_ids: Sequence[str]) -> list[str]:
        """Delete clips and return the ids of the deleted rows; of two concurrent callers only one gets each id."""
        ...

    async def search(self, query: Query, reader: Reader) -> Found:
        """Return a page of matching segments, best first. Raises InvalidInput for invalid filters, not for odd text."""
        ...

    async def suggest(self, prefix: str, limit: int, reader: Reader) -> list[Suggestion]:
        """Return words with this prefix from videos that the reader may see, most frequent first."""
        ...
