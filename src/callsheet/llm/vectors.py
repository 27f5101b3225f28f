"""Where passages and their vectors are kept: one small interface, on SQLite and on PostgreSQL.

Everything belongs to a requester; no call can name the passages of another.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from callsheet.kernel.errors import StoreError, UnknownStore

from .chunks import Chunk
from .errors import OtherModel

SCHEMES = "sqlite:///file.db or postgresql://…"


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


@contextlib.asynccontextmanager
async def open_vectors(url: str) -> AsyncIterator[Vectors]:
    """The vectors at a URL, ready for use; raises UnknownStore, StoreUnavailable."""
    vectors = await _opened(url)
    try:
        yield vectors
    finally:
        await vectors.close()


async def _opened(url: str) -> Vectors:
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from .vectors_sqlite import SqliteVectors  # noqa: PLC0415 - a driver is loaded only when it is used

        return await SqliteVectors.open(url)
    if scheme in ("postgresql", "postgres"):
        try:
            from .vectors_postgres import PostgresVectors  # noqa: PLC0415
        except ModuleNotFoundError as error:
            advice = "pip install 'callsheet[postgres]'"
            raise StoreError(f"the driver for PostgreSQL is missing ({error.name}): {advice}") from error
        return await PostgresVectors.open(url)
    raise UnknownStore(f"passages cannot be kept at {scheme!r}; set CALLSHEET_VECTORS_URL to {SCHEMES}")


def other_model(collection: Collection, kept: str, wanted: str) -> OtherModel:
    """The error of a collection that holds vectors of another model."""
    advice = f"set CALLSHEET_EMBED_MODEL={kept}, or delete the collection and ingest it again"
    return OtherModel(f"collection {collection.name!r} was embedded by {kept}, this job uses {wanted}; {advice}")
