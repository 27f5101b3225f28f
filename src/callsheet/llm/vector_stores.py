"""Open the store of passages that a URL names; passages in a SQLite file, which may be that of the job store.

A search in SQLite compares all vectors of its collection. The PostgreSQL driver is imported on first use.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Self, TypeVar
from urllib.parse import parse_qsl, unquote

from callsheet.kernel.errors import StoreError, UnknownStore
from callsheet.store.sqlite.connection import Target, connect, known_error
from callsheet.store.sqlite.files import GROUPS

from .vectors import Collection, Document, Passage, Vectors, other_model, pack, scores

SCHEMES = "sqlite:///file.db or postgresql://…"

T = TypeVar("T")
PAGE = 1_000
SCHEMA = """
CREATE TABLE IF NOT EXISTS llm_passages (
    requester_id TEXT NOT NULL,
    collection TEXT NOT NULL,
    document_id TEXT NOT NULL,
    n INTEGER NOT NULL,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    text TEXT NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (requester_id, collection, document_id, n)
)"""
HERE = "requester_id = ? AND collection = ?"


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
        return await SqliteVectors.open(url)
    if scheme in ("postgresql", "postgres"):
        try:
            from .vectors_postgres import PostgresVectors  # noqa: PLC0415
        except ModuleNotFoundError as error:
            advice = "pip install 'callsheet[postgres]'"
            raise StoreError(f"the driver for PostgreSQL is missing ({error.name}): {advice}") from error
        return await PostgresVectors.open(url)
    raise UnknownStore(f"passages cannot be kept at {scheme!r}; set CALLSHEET_VECTORS_URL to {SCHEMES}")


class SqliteVectors:
    """Passages in one file. Each call opens its own connection, in a thread."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @classmethod
    async def open(cls, url: str) -> Self:
        """Create the table if it is missing. Raises UnknownStore, StoreUnavailable."""
        path, _, query = url.partition(":")[2].partition("?")
        if not path.startswith("///") or path.endswith(":memory:"):
            raise UnknownStore("passages need a file; set CALLSHEET_VECTORS_URL to sqlite:///vectors.db")
        group = dict(parse_qsl(query)).get("group", "")
        vectors = cls(Target(unquote(path[3:]), group=group if group in GROUPS else ""))
        await vectors._write(lambda db: db.execute(SCHEMA))
        return vectors

    async def close(self) -> None:
        """Do nothing: no connection stays open between calls."""

    async def replace(self, collection: Collection, model: str, documents: Sequence[Document]) -> None:
        """Store documents in one transaction, replacing those with the same ids. Raises OtherModel."""
        await self._write(lambda db: _replace(db, collection, model, documents))

    async def nearest(self, collection: Collection, model: str, vector: Sequence[float], k: int) -> list[Passage]:
        """Return the `k` passages most similar to a vector of length one, best first. Raises OtherModel."""
        return await asyncio.to_thread(self._run, lambda db: _nearest(db, collection, model, pack(vector), k))

    async def delete(self, collection: Collection, document_ids: Sequence[str] | None = None) -> int:
        """Delete the given documents, or all; return the number of deleted documents."""
        return await self._write(lambda db: _delete(db, collection, document_ids))

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def in_transaction(db: sqlite3.Connection) -> T:
            db.execute("BEGIN IMMEDIATE")
            result = work(db)
            db.execute("COMMIT")
            return result

        return await asyncio.to_thread(self._run, in_transaction)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        db = connect(self._target)
        try:
            return work(db)
        except Exception as error:
            raise known_error(db, error) from error
        finally:
            db.close()  # rolls back an uncommitted transaction


def _replace(db: sqlite3.Connection, collection: Collection, model: str, documents: Sequence[Document]) -> None:
    _delete(db, collection, [document.document_id for document in documents])
    _check_model(db, collection, model)
    rows = (
        (*collection, d.document_id, n, d.title, model, chunk.start, chunk.end, chunk.text, pack(vector))
        for d in documents
        for n, (chunk, vector) in enumerate(zip(d.chunks, d.vectors, strict=True))
    )
    db.executemany("INSERT INTO llm_passages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _check_model(db: sqlite3.Connection, collection: Collection, model: str) -> None:
    sql = f"SELECT model FROM llm_passages WHERE {HERE} AND model <> ? LIMIT 1"  # noqa: S608 - our own words
    row = db.execute(sql, (*collection, model)).fetchone()
    if row is not None:
        raise other_model(collection, row[0], model)


def _delete(db: sqlite3.Connection, collection: Collection, document_ids: Sequence[str] | None) -> int:
    if document_ids is None:
        sql = f"SELECT DISTINCT document_id FROM llm_passages WHERE {HERE}"  # noqa: S608 - our own words
        document_ids = [row[0] for row in db.execute(sql, collection)]
    count = 0
    for document_id in dict.fromkeys(document_ids):
        sql = f"DELETE FROM llm_passages WHERE {HERE} AND document_id = ?"  # noqa: S608 - our own words
        count += db.execute(sql, (*collection, document_id)).rowcount > 0
    return count


def _nearest(db: sqlite3.Connection, collection: Collection, model: str, query: bytes, k: int) -> list[Passage]:
    _check_model(db, collection, model)
    best = heapq.nlargest(k, _scores_of(db, collection, query))
    sql = 'SELECT document_id, title, start, "end", text FROM llm_passages WHERE rowid = ?'
    return [Passage._make((*db.execute(sql, (-row,)).fetchone(), score)) for score, row in best]


def _scores_of(db: sqlite3.Connection, collection: Collection, query: bytes) -> Iterator[tuple[float, int]]:
    """Yield score and negated row id of every passage; negation makes the earlier of two equals the larger."""
    sql = f"SELECT rowid, vector FROM llm_passages WHERE {HERE} AND length(vector) = ?"  # noqa: S608 - our own words
    cursor = db.execute(sql, (*collection, len(query)))
    while page := cursor.fetchmany(PAGE):
        rows, vectors = zip(*page, strict=True)
        yield from zip(scores(query, vectors), (-row for row in rows), strict=True)
