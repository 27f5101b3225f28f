"""The stage `segment_index` merges detections of all frames into timed texts, extracts entities, and indexes both."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from callsheet.catalog.records import SERVICE, Box, NewEntity, NewSegment, Segment
from callsheet.media.reading.entities import entities
from callsheet.media.reading.merge import merge
from callsheet.media.reading.records import Range, Seen

from .parts import StageContext

PERIOD_MS = 100
NewRows = tuple[list[NewSegment], list[NewEntity]]


async def segment_index(stage: StageContext) -> dict[str, Any]:
    """Merge, extract and publish. A second run changes nothing: merged segments stay the same."""
    coverage: dict[str, Any] = json.loads(stage.video.coverage)
    rows = await stage.parts.catalog.detections_of(stage.video_id)
    if not rows and coverage.get("detections") != 0:  # merged already, unless a new OCR run detected no text at all
        rows = await stage.parts.catalog.segments_of(stage.video_id, SERVICE)
    period_ms = int(coverage.get("period_ms") or PERIOD_MS)
    segments, entities = await asyncio.to_thread(_rows_of, stage, rows, period_ms)
    await stage.ctx.progress(60.0)  # committed: the claim is still ours
    await stage.parts.catalog.replace_segments(stage.video_id, stage.writer, segments, entities)
    return {"segments": len(segments), "entities": len(entities), "detections": len(rows)}


def _rows_of(stage: StageContext, rows: list[Segment], period_ms: int) -> NewRows:
    last = max((row.t_end for row in rows), default=0)
    ranges = merge([_seen(row) for row in rows], period_ms=period_ms, duration_ms=stage.video.duration_ms or last)
    segments: list[NewSegment] = []
    new_entities: list[NewEntity] = []
    space = uuid.UUID(stage.video_id)
    for place, text in enumerate(sorted(ranges, key=lambda text: (text.t_start, text.box, text.text_hash))):
        segment = _segment(space, place, text)
        segments.append(segment)
        new_entities += [
            NewEntity(
                str(uuid.uuid5(uuid.UUID(segment.segment_id), f"{at}:{entity.entity_type}:{entity.value}")),
                segment.segment_id,
                entity.entity_type,
                entity.value,
                entity.normalized_value,
            )
            for at, entity in enumerate(entities(text.text))
        ]
    return segments, new_entities


def _seen(row: Segment) -> Seen:
    box = (row.bounding_box.x, row.bounding_box.y, row.bounding_box.width, row.bounding_box.height)
    return Seen(row.segment_id, row.t_start, row.t_end, row.text, row.confidence, box, row.language)


def _segment(space: uuid.UUID, place: int, text: Range) -> NewSegment:
    """Return a merged segment. Its id is derived from the content: a second run makes the same row."""
    segment_id = str(uuid.uuid5(space, f"merged:{place}:{text.t_start}:{text.t_end}:{text.text_hash}"))
    return NewSegment(
        segment_id,
        text.t_start,
        text.t_end,
        text.text,
        text.normalized_text,
        text.text_hash,
        text.confidence,
        Box(*text.box),
        text.language,
        is_merged=True,
        seen=text.seen,
    )
