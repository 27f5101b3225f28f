"""The store of passages and their vectors: one small interface, for SQLite and for PostgreSQL.

All rows belong to a requester; no call can reach the passages of another requester.
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
    """A document to store: its passages, and one vector of length one per passage."""

    document_id: str
    title: str
    chunks: Sequence[Chunk]
    vectors: Sequence[Sequence[float]]


class Passage(NamedTuple):
    """A search result; `score` is its cosine with the question."""

    document_id: str
    title: str
    start: int
    end: int
    text: str
    score: float


class Vectors(Protocol):
    """The interface of both stores."""

    async def replace(self, collection: Collection, model: str, documents: Sequence[Document]) -> None:
        """Store documents in one transaction, replacing those with the same ids. Raises OtherModel."""
        ...

    async def nearest(self, collection: Collection, model: str, vector: Sequence[float], k: int) -> list[Passage]:
        """Return the `k` passages most similar to a vector of length one, best first. Raises OtherModel."""
        ...

    async def delete(self, collection: Collection, document_ids: Sequence[str] | None = None) -> int:
        """Delete the given documents, or all; return the number of deleted documents."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def other_model(collection: Collection, stored_model: str, job_model: str) -> OtherModel:
    """Return the error for a collection whose vectors come from a different model."""
    advice = f"set CALLSHEET_EMBED_MODEL={stored_model}, or delete the collection and ingest it again"
    return OtherModel(
        f"collection {collection.name!r} was embedded by {stored_model}, this job uses {job_model}; {advice}"
    )
