"""What goes into a reading and what comes out of it. Times are milliseconds from the start of the video."""

from __future__ import annotations

from typing import Literal, NamedTuple

Box = tuple[int, int, int, int]  # x, y, width, height in pixels
EntityType = Literal["mention", "hashtag", "url", "emoji", "number"]


class Seen(NamedTuple):
    """One text region of one frame, as it was read. It was on screen in [t_start, t_end)."""

    segment_id: str
    t_start: int
    t_end: int
    text: str
    confidence: float
    box: Box
    language: str | None
    seen: int = 1  # how many detections this one stands for


class Range(NamedTuple):
    """One text, on screen in [t_start, t_end); `seen` detections say so."""

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
        """As one detection, so that it can be merged again."""
        return Seen(
            segment_id, self.t_start, self.t_end, self.text, self.confidence, self.box, self.language, self.seen
        )


class Entity(NamedTuple):
    """Something in a text that can be looked for by its kind."""

    entity_type: EntityType
    value: str
    normalized_value: str
