"""Store passages in PostgreSQL, possibly in the job store's database.

Vectors are `float4[]`, so that a database with pgvector and one without share one table form. With the extension the
search uses its inner product (about ten times faster). Both searches are exact: they compare every vector of the
collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from callsheet.store.postgres.connection import Database, Target

from .vectors import Collection, Document, Passage, other_model

LOCK = 0x63616C6C_7261  # an arbitrary lock id: two workers that start together must not both create the table
SCHEMA = """
CREATE TABLE IF NOT EXISTS llm_passages (
    requester_id text NOT NULL,
    collection text NOT NULL,
    document_id text NOT NULL,
    n integer NOT NULL,
    title text NOT NULL,
    model text NOT NULL,
    "start" integer NOT NULL,
    "end" integer NOT NULL,
    "text" text NOT NULL,
    vector float4[] NOT NULL,
    PRIMARY KEY (requester_id, collection, document_id, n)
)"""
READY = """
SELECT to_regclass('llm_passages') IS NOT NULL, EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')"""
INSERT = "INSERT INTO llm_passages VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
DELETE = """
WITH gone AS (
    DELETE FROM llm_passages
    WHERE requester_id = $1 AND collection = $2 AND ($3::text[] IS NULL OR document_id = ANY ($3))
    RETURNING document_id)
SELECT count(DISTINCT document_id) FROM gone"""
OTHER = "SELECT model FROM llm_passages WHERE requester_id = $1 AND collection = $2 AND model <> $3 LIMIT 1"
NEAREST = """
SELECT document_id, title, "start", "end", "text", score FROM (
    SELECT *, {score} AS score FROM llm_passages
    WHERE requester_id = $1 AND collection = $2 AND cardinality(vector) = cardinality($3::float4[])
) AS scored ORDER BY score DESC, document_id, n LIMIT $4"""
BY_ARRAYS = "(SELECT sum(a::float8 * b::float8) FROM unnest(vector, $3::float4[]) AS pair (a, b))"
BY_PGVECTOR = "-(vector::vector <#> $3::float4[]::vector)"  # vectors have length one: the product is the cosine


class PostgresVectors:
    """A small connection pool, open for the length of a job."""

    def __init__(self, database: Database, *, pgvector: bool) -> None:
        self._db = database
        self.pgvector = pgvector

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, and create the table if it is missing. Raises StoreUnavailable."""
        database = Database(Target.from_url(url))
        await database.open()
        try:
            ((ready, pgvector),) = await database.fetch(READY)
            if not ready:
                await database.transact(_make_table)
        except BaseException:
            await database.close()
            raise
        return cls(database, pgvector=pgvector)

    async def close(self) -> None:
        """Close the connections."""
        await self._db.close()

    async def replace(self, collection: Collection, model: str, documents: Sequence[Document]) -> None:
        """Store documents in one transaction, replacing those with the same ids. Raises OtherModel."""

        async def work(session: Any) -> None:
            await session.fetch(DELETE, *collection, [document.document_id for document in documents])
            _check_model(await session.fetch(OTHER, *collection, model), collection, model)
            rows = [
                (*collection, d.document_id, n, _plain(d.title), model, c.start, c.end, _plain(c.text), list(vector))
                for d in documents
                for n, (c, vector) in enumerate(zip(d.chunks, d.vectors, strict=True))
            ]
            await session.executemany(INSERT, rows)

        await self._db.transact(work)

    async def nearest(self, collection: Collection, model: str, vector: Sequence[float], k: int) -> list[Passage]:
        """Return the `k` passages most similar to a vector of length one, best first. Raises OtherModel."""
        _check_model(await self._db.fetch(OTHER, *collection, model), collection, model)
        sql = NEAREST.format(score=BY_PGVECTOR if self.pgvector else BY_ARRAYS)
        return [Passage(*row) for row in await self._db.fetch(sql, *collection, list(vector), k)]

    async def delete(self, collection: Collection, document_ids: Sequence[str] | None = None) -> int:
        """Delete the given documents, or all; return the number of deleted documents."""
        ids = None if document_ids is None else list(document_ids)
        ((count,),) = await self._db.fetch(DELETE, *collection, ids)
        return int(count)


async def _make_table(session: Any) -> None:
    await session.fetch("SELECT pg_advisory_xact_lock($1)", LOCK)
    await session.execute(SCHEMA)


def _check_model(rows: Sequence[Any], collection: Collection, model: str) -> None:
    if rows:
        raise other_model(collection, rows[0][0], model)


def _plain(text: str) -> str:
    """Replace NUL, which PostgreSQL's text cannot hold; character positions stay valid."""
    return text.replace("\0", "\ufffd")
