"""Records of detections, ranges and entities. Times are milliseconds from the start of the video."""

from __future__ import annotations

from typing import Literal, NamedTuple

Box = tuple[int, int, int, int]  # x, y, width, height in pixels
EntityType = Literal["mention", "hashtag", "url", "emoji", "number"]


class Seen(NamedTuple):
    """One text region of one frame, visible in [t_start, t_end)."""

    segment_id: str
    t_start: int
    t_end: int
    text: str
    confidence: float
    box: Box
    language: str | None
    seen: int = 1  # the number of detections behind this one


class Range(NamedTuple):
    """One text, visible in [t_start, t_end), from `seen` detections."""

    t_start: int
    t_end: int
    text: str
    normalized_text: str
    text_hash: str
    confidence: float
    box: Box
    language: str | None
    seen: int

    def as_seen(self, segment_id: str = "") -> Seen:
        """Convert the range to one detection, for another merge."""
        return Seen(
            segment_id, self.t_start, self.t_end, self.text, self.confidence, self.box, self.language, self.seen
        )


class Entity(NamedTuple):
    """An entity in a text, searchable by its type."""

    entity_type: EntityType
    value: str
    normalized_value: str
