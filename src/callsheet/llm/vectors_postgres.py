"""Passages in a PostgreSQL database, which may be that of the job store.

Vectors are `float4[]`, so that a database with pgvector and one without it have the same table. With the extension
the search uses its cosine (about ten times faster); both read all vectors of the collection, so both are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from callsheet.store.postgres.connection import Database
from callsheet.store.postgres.target import Target

from .vectors import Collection, Document, Passage, other_model

LOCK = 0x63616C6C_7261  # any number of our own: two workers that start together must not both make the table
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
    """A small pool for as long as a job needs it."""

    def __init__(self, database: Database, *, pgvector: bool) -> None:
        self._db = database
        self.pgvector = pgvector

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, and make the table if it is not there; raises StoreUnavailable."""
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
        """Keep documents in place of those of the same ids, all or none; raises OtherModel."""

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
        """The `k` passages that are most like a vector of length one, best first; raises OtherModel."""
        _check_model(await self._db.fetch(OTHER, *collection, model), collection, model)
        sql = NEAREST.format(score=BY_PGVECTOR if self.pgvector else BY_ARRAYS)
        return [Passage(*row) for row in await self._db.fetch(sql, *collection, list(vector), k)]

    async def delete(self, collection: Collection, document_ids: Sequence[str] | None = None) -> int:
        """Forget some documents, or all; how many there were."""
        ids = None if document_ids is None else list(document_ids)
        ((gone,),) = await self._db.fetch(DELETE, *collection, ids)
        return int(gone)


async def _make_table(session: Any) -> None:
    await session.fetch("SELECT pg_advisory_xact_lock($1)", LOCK)
    await session.execute(SCHEMA)


def _check_model(found: Sequence[Any], collection: Collection, model: str) -> None:
    if found:
        raise other_model(collection, found[0][0], model)


def _plain(text: str) -> str:
    """PostgreSQL's text has no NUL; positions stay the same."""
    return text.replace("\0", "\ufffd")
