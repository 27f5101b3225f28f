"""Where passages and their vectors are kept: one small interface, on SQLite and on PostgreSQL.

Everything belongs to a requester; no call can name the passages of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .chunks import Chunk
from .errors import OtherModel


class Collection(NamedTuple):
    """A requester's documents under one name."""

    requester_id: str
    name: str


class Document(NamedTuple):
    """A document that is to be kept: its passages, and a vector of length one for each."""

    document_id: str
    title: str
    chunks: Sequence[Chunk]
    vectors: Sequence[Sequence[float]]


class Passage(NamedTuple):
    """A passage that was found; `score` is its cosine with the question."""

    document_id: str
    title: str
    start: int
    end: int
    text: str
    score: float


class Vectors(Protocol):
    """The verbs of both stores."""

    async def replace(self, collection: Collection, model: str, documents: Sequence[Document]) -> None:
        """Keep documents in place of those of the same ids, all or none; raises OtherModel."""
        ...

    async def nearest(self, collection: Collection, model: str, vector: Sequence[float], k: int) -> list[Passage]:
        """The `k` passages that are most like a vector of length one, best first; raises OtherModel."""
        ...

    async def delete(self, collection: Collection, document_ids: Sequence[str] | None = None) -> int:
        """Forget some documents, or all; how many there were."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


def other_model(collection: Collection, kept: str, wanted: str) -> OtherModel:
    """The error of a collection that holds vectors of another model."""
    advice = f"set CALLSHEET_EMBED_MODEL={kept}, or delete the collection and ingest it again"
    return OtherModel(f"collection {collection.name!r} was embedded by {kept}, this job uses {wanted}; {advice}")
