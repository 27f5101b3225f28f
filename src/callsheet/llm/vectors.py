"""The store of passages and their vectors: one small interface, for SQLite and for PostgreSQL.

All rows belong to a requester; no call can reach the passages of another requester.

Similarity is exact: stored vectors have length one and type float4, so a dot product is the cosine. With numpy a page
of vectors is one product; without numpy, a vector of 384 numbers takes about 20 µs.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from operator import mul
from typing import Any, NamedTuple, Protocol

from .errors import OtherModel

np: Any = import_module("numpy") if find_spec("numpy") is not None else None  # optional


class Collection(NamedTuple):
    """A requester's documents under one name."""

    requester_id: str
    name: str


class Chunk(NamedTuple):
    """A passage: the document's text from character `start` to character `end`."""

    start: int
    end: int
    text: str


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
    """The interface of a vector store."""

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


def unit(vector: Sequence[float]) -> list[float]:
    """Return the vector scaled to length one. A zero vector stays zero and has no similarity to any other."""
    length = math.sqrt(math.fsum(x * x for x in vector))
    return [x / length for x in vector] if length > 0 else list(vector)


def pack(vector: Sequence[float]) -> bytes:
    """Return the numbers as bytes, four per number."""
    return array("f", vector).tobytes()


def unpack(data: bytes) -> list[float]:
    """Return the numbers that `pack` encoded."""
    numbers = array("f")
    numbers.frombytes(data)
    return numbers.tolist()


def scores(query: bytes, vectors: Sequence[bytes]) -> list[float]:
    """Return the cosine of each vector with the query. All inputs are packed unit vectors."""
    if np is not None and vectors:
        page = np.frombuffer(b"".join(vectors), dtype="float32").reshape(len(vectors), -1)
        cosines: list[float] = (page @ np.frombuffer(query, dtype="float32")).tolist()
        return cosines
    numbers = unpack(query)
    return [math.fsum(map(mul, numbers, unpack(vector))) for vector in vectors]
