"""Makes videos and their texts for tests."""

from __future__ import annotations

import hashlib
import itertools
import uuid
from typing import Any

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import Box, Clip, NewEntity, NewSegment, Reader, Video, VideoStatus, Writer

ANN = Reader("ann")
BOB = Reader("bob")
CREW = Reader("cleo", ("crew", "cast"))
NOBODY = Reader()
_numbers = itertools.count(1)


def job_id(number: int) -> str:
    """Job ids that rise with the number."""
    return str(uuid.UUID(int=(number << 64) + 7))


def writer(number: int = 1, claim_version: int = 1, created_at: int = 0) -> Writer:
    return Writer(job_id(number), claim_version, created_at)


def video(**fields: Any) -> Video:
    """Return a new video, owned by Ann by default; ids are in random order."""
    video_id = fields.pop("video_id", None) or str(uuid.uuid4())
    path = f"videos/original/{video_id}/master.mp4"
    defaults = {"owner_id": "ann", "team_id": None, "title": "Holiday", "status": VideoStatus.QUEUED, **fields}
    return Video(video_id, s3_original_path=path, **defaults)


def segment(text: str, at: int = 0, **fields: Any) -> NewSegment:
    """Return a segment of text that is visible for one second."""
    normal = " ".join(text.casefold().split())
    defaults: dict[str, Any] = {
        "segment_id": f"s{next(_numbers)}",
        "t_start": at,
        "t_end": at + 1_000,
        "confidence": 0.9,
        "bounding_box": Box(10, 20, 300, 40),
        "language": "en",
        **fields,
    }
    return NewSegment(
        text=text,
        normalized_text=normal,
        text_hash=hashlib.sha256(normal.encode("utf-8", "replace")).hexdigest(),
        **defaults,
    )


def entity(of: NewSegment, value: str, entity_type: str = "hashtag") -> NewEntity:
    return NewEntity(f"e{next(_numbers)}", of.segment_id, entity_type, value, value.lower())


def clip(of: Video, **fields: Any) -> Clip:
    clip_id = fields.pop("clip_id", None) or f"clip-{next(_numbers)}"
    defaults = {
        "owner_id": of.owner_id,
        "team_id": of.team_id,
        "job_id": job_id(99),
        "t_start": 1_500,
        "t_end": 3_000,
        "padding_ms": 2_000,
        "s3_path": f"videos/clips/{of.video_id}/{clip_id}.mp4",
        **fields,
    }
    return Clip(clip_id, of.video_id, **defaults)


async def added(catalog: Catalog, **fields: Any) -> Video:
    """Add a video to the catalogue."""
    new = video(**fields)
    assert await catalog.add_video(new)
    return new


async def ready(catalog: Catalog, *texts: str, **fields: Any) -> Video:
    """Add a searchable video with these texts in sequence."""
    new = await added(catalog, **fields)
    at = writer()
    await catalog.begin(new.video_id, at, "segment_index")
    segments = [segment(text, place * 1_000) for place, text in enumerate(texts)]
    tags = [entity(of, word) for of in segments for word in of.text.split() if word.startswith("#")]
    await catalog.replace_segments(new.video_id, at, segments, tags)
    return new
