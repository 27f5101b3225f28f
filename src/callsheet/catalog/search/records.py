"""Records of the search: queries, hits, result pages and suggestions."""

from __future__ import annotations

from typing import NamedTuple

from callsheet.catalog.records import Box


class Query(NamedTuple):
    """A search for words, "quoted phrases" and -excluded words, all required. `text` may be empty if a filter is set.

    `mode`: `fuzzy` forgives one wrong letter and OCR confusions, `exact` nothing, `substring` matches parts of words.
    """

    text: str = ""
    mode: str = "fuzzy"
    video_ids: tuple[str, ...] = ()
    from_ms: int | None = None  # within the video
    to_ms: int | None = None
    entity_type: str | None = None
    entity_value: str | None = None
    language: str | None = None
    min_confidence: float = 0.0
    limit: int = 20
    cursor: str | None = None


class Mark(NamedTuple):
    """A highlight in a hit's text: the characters from `start` up to, excluding, `end` matched the query."""

    start: int
    end: int
    matched_as: str  # exact, folded, fuzzy, prefix, substring


class Hit(NamedTuple):
    """One segment that matches the query."""

    segment_id: str
    video_id: str
    title: str
    t_start: int
    t_end: int
    text: str
    marks: tuple[Mark, ...]
    box: Box
    confidence: float
    language: str | None
    score: float
    duration_ms: int | None
    s3_thumb_path: str | None


class Found(NamedTuple):
    """A page of hits. `total` counts hits up to `total_limit`; `per_video` counts them per video of this page."""

    hits: tuple[Hit, ...]
    cursor: str | None
    total: int
    total_is_exact: bool
    per_video: dict[str, int]
    expanded: dict[str, tuple[str, ...]]  # query word to matching index words, for "did you mean"


class Suggestion(NamedTuple):
    """A suggested word and the number of segments that contain the word."""

    word: str
    segments: int
