"""The verbs of a catalogue. One suite of tests holds for each: `tests/catalog`.

A pipeline's stages write behind a fence: a video remembers its writer `(job_id, claim_version)`, `begin` and each write
move it forward, and a write of an earlier one, or of a video that is gone, raises StaleClaim and changes nothing. Every
write is one transaction and can be repeated: the same rows have the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from callsheet.kernel.job import Json

from .records import Clip, Entity, NewEntity, NewSegment, Reader, Segment, Video, VideoFacts, VideoPage, Writer
from .search.records import Found, Query, Suggestion


class Catalog(Protocol):
    """Videos, their segments and entities, and the search over them."""

    async def open(self) -> None:
        """Connect; raises StoreUnavailable, and SchemaMismatch when `migrate` was not run. SQLite files migrate now."""
        ...

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        ...

    async def migrate(self) -> list[str]:
        """Bring the schema to this program's version; the names of what ran."""
        ...

    async def add_video(self, video: Video) -> bool:
        """Enter a video; False, and nothing is changed, when there is one with this id: of many scanners one wins."""
        ...

    async def video(self, video_id: str, reader: Reader) -> Video | None:
        """One video, if this reader may see it."""
        ...

    async def videos(self, page: VideoPage, reader: Reader) -> list[Video]:
        """A page of what this reader may see, newest first."""
        ...

    async def known(self, video_ids: Sequence[str]) -> set[str]:
        """Which of these are in the catalogue already."""
        ...

    async def begin(self, video_id: str, writer: Writer, stage: str) -> Video | None:
        """Make this attempt the video's writer and the video `processing`; None when there is no such video.

        Its job is entered in `jobs` under the stage. A `ready` video stays `ready` until its text is replaced.
        Raises StaleClaim for an earlier writer.
        """
        ...

    async def note(self, video_id: str, writer: Writer, facts: VideoFacts) -> None:
        """Write what a stage found out."""
        ...

    async def fail(self, video_id: str, writer: Writer, error: Json) -> None:
        """The pipeline ended: the video is `failed`, unless it is `ready` from an earlier run."""
        ...

    async def queue(self, video_id: str, size_bytes: int | None = None) -> None:
        """The upload is complete, or somebody starts it again: `uploading` or `failed` becomes `queued`."""
        ...

    async def clear_detections(self, video_id: str, writer: Writer) -> None:
        """Remove raw detections, so that a new reading of the frames starts afresh."""
        ...

    async def add_detections(self, video_id: str, writer: Writer, segments: Sequence[NewSegment]) -> None:
        """Keep a batch of raw detections; rows that are there already stay as they are."""
        ...

    async def detections_of(self, video_id: str) -> list[Segment]:
        """Raw detections by time, for the stage that merges them; there are none once that is done."""
        ...

    async def segments_of(self, video_id: str, reader: Reader) -> list[Segment]:
        """All segments by time: merged ones, or raw detections while there are no others."""
        ...

    async def replace_segments(
        self, video_id: str, writer: Writer, segments: Sequence[NewSegment], entities: Sequence[NewEntity]
    ) -> None:
        """In one transaction: these are the video's segments and entities, they can be searched, it is `ready`.

        Raw detections are replaced, too.
        """
        ...

    async def refresh_search(self) -> int:
        """Bring the search up to date with videos that somebody marked `search_stale`; how many.

        `replace_segments` has done it for its own.
        """
        ...

    async def entities_of(self, video_id: str, reader: Reader) -> list[Entity]:
        """All entities of a video by time."""
        ...

    async def delete_video(self, video_id: str) -> None:
        """Remove a video and all that is known of it. May be called twice."""
        ...

    async def add_clip(self, clip: Clip) -> Clip:
        """Enter a clip; the one that has this id already, if there is one. Raises InvalidInput without its video."""
        ...

    async def clip(self, clip_id: str, reader: Reader) -> Clip | None:
        """One clip, if this reader may see it."""
        ...

    async def clips_of(self, video_id: str, reader: Reader) -> list[Clip]:
        """The clips of a video, newest first."""
        ...

    async def note_clip(self, clip_id: str, actual: tuple[int, int], expires_at: int) -> None:
        """It was cut, from and to these times."""
        ...

    async def expired_clips(self, now_ms: int, limit: int) -> list[Clip]:
        """Clips that are to be removed."""
        ...

    async def delete_clips(self, clip_ids: Sequence[str]) -> list[str]:
        """Forget clips; the ids of those that were there: of two who do so at the same time one gets each."""
        ...

    async def search(self, query: Query, reader: Reader) -> Found:
        """Segments that fit, best first. Raises InvalidInput for what cannot be asked; never for odd text."""
        ...

    async def suggest(self, prefix: str, limit: int, reader: Reader) -> list[Suggestion]:
        """Words in this reader's videos that begin so, most frequent first."""
        ...
