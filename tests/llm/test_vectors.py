"""The vector stores: SQLite, PostgreSQL, and PostgreSQL with pgvector keep the same promises."""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from callsheet.kernel.errors import StoreError, StoreUnavailable, UnknownStore
from callsheet.llm import vectors as similarity
from callsheet.llm.errors import OtherModel
from callsheet.llm.vector_stores import open_vectors
from callsheet.llm.vectors import Chunk, Collection, Document, Vectors, pack, scores, unit, unpack
from callsheet.llm.vectors_postgres import PostgresVectors
from tests import stores

HERE = Collection("ann", "books")


@pytest.fixture(params=["sqlite", "postgres", "pgvector"])
async def place(request: pytest.FixtureRequest) -> str:
    url = stores.fresh_url("sqlite" if request.param == "sqlite" else "postgres")
    if request.param == "pgvector":
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE EXTENSION vector")
        await connection.close()
    return url


@pytest.fixture
async def vectors(place: str, request: pytest.FixtureRequest) -> AsyncIterator[Vectors]:
    async with open_vectors(place) as vectors:
        if isinstance(vectors, PostgresVectors):
            assert vectors.pgvector == ("pgvector" in request.node.callspec.id)
        yield vectors


def document(document_id: str, *rows: list[float], title: str = "") -> Document:
    chunks = [Chunk(n * 10, n * 10 + 5, f"{document_id}{n}") for n in range(len(rows))]
    return Document(document_id, title, chunks, [unit(row) for row in rows])


async def texts(vectors: Vectors, vector: list[float], k: int = 10, collection: Collection = HERE) -> list[str]:
    return [passage.text for passage in await vectors.nearest(collection, "m", unit(vector), k)]


async def test_the_nearest_come_first_with_their_cosine(vectors: Vectors) -> None:
    random.seed(7)
    rows = [[random.gauss(0, 1) for _ in range(32)] for _ in range(50)]
    query = [random.gauss(0, 1) for _ in range(32)]
    await vectors.replace(HERE, "m", [document("d", *rows, title="Dune")])
    best = sorted(((cosine(row, query), n) for n, row in enumerate(rows)), reverse=True)[:5]
    result = await vectors.nearest(HERE, "m", unit(query), 5)
    assert [passage.text for passage in result] == [f"d{n}" for _, n in best]
    assert [passage.score for passage in result] == pytest.approx([score for score, _ in best], abs=1e-6)
    first = result[0]
    assert (first.document_id, first.title, first.start, first.end) == (
        "d",
        "Dune",
        best[0][1] * 10,
        best[0][1] * 10 + 5,
    )


async def test_a_document_that_comes_again_is_replaced(vectors: Vectors) -> None:
    await vectors.replace(HERE, "m", [document("a", [1, 0], [1, 1]), document("b", [0, 1])])
    await vectors.replace(HERE, "m", [document("a", [0, 1])])
    assert sorted(await texts(vectors, [1, 0])) == ["a0", "b0"]
    await vectors.replace(HERE, "m", [document("a")])
    assert await texts(vectors, [1, 0]) == ["b0"]


async def test_a_replacement_that_fails_changes_nothing(vectors: Vectors) -> None:
    await vectors.replace(HERE, "m", [document("a", [1, 0])])
    broken_job = document("b", [0, 1])._replace(vectors=[])
    with pytest.raises(ValueError, match="zip"):
        await vectors.replace(HERE, "m", [document("a", [0, 1], [1, 1]), broken_job])
    assert await texts(vectors, [1, 0]) == ["a0"]


async def test_one_requester_never_sees_anothers(vectors: Vectors) -> None:
    bobs = Collection("bob", "books")
    await vectors.replace(HERE, "m", [document("secret", [1, 0])])
    assert await texts(vectors, [1, 0], collection=bobs) == []
    assert await vectors.delete(bobs) == 0
    assert await vectors.delete(bobs, ["secret"]) == 0
    await vectors.replace(bobs, "other model", [document("secret", [1, 0, 0])])
    assert await texts(vectors, [1, 0]) == ["secret0"]


async def test_documents_are_forgotten(vectors: Vectors) -> None:
    await vectors.replace(HERE, "m", [document(name, [1, 0], [0, 1]) for name in "abc"])
    assert await vectors.delete(HERE, ["a", "x", "a"]) == 1
    assert await vectors.delete(HERE, []) == 0
    assert await vectors.delete(HERE) == 2
    assert await texts(vectors, [1, 0]) == []


async def test_vectors_of_two_models_are_not_mixed(vectors: Vectors) -> None:
    await vectors.replace(HERE, "m", [document("a", [1, 0]), document("b", [1, 0])])
    with pytest.raises(OtherModel, match="CALLSHEET_EMBED_MODEL=m"):
        await vectors.replace(HERE, "n", [document("a", [1, 0, 0])])
    with pytest.raises(OtherModel):
        await vectors.nearest(HERE, "n", [1, 0, 0], 5)
    assert await texts(vectors, [1, 0]) == ["a0", "b0"]
    await vectors.replace(HERE, "n", [document("a", [1, 0, 0]), document("b", [1, 0, 0])])
    assert len(await vectors.nearest(HERE, "n", [1, 0, 0], 5)) == 2


async def test_a_vector_of_nothing_is_like_nothing(vectors: Vectors) -> None:
    await vectors.replace(HERE, "m", [document("zero", [0, 0]), document("one", [1, 0])])
    result = await vectors.nearest(HERE, "m", [1, 0], 5)
    assert [(passage.text, passage.score) for passage in result] == [("one0", 1.0), ("zero0", 0.0)]


async def test_text_of_any_kind_is_kept(vectors: Vectors) -> None:
    kept = Document("d'; --", "Ti\0tle", [Chunk(0, 3, "é\0🎬")], [[1.0, 0.0]])
    await vectors.replace(HERE, "m", [kept])
    (result,) = await vectors.nearest(HERE, "m", [1, 0], 5)
    assert (result.document_id, len(result.text), result.text[::2]) == ("d'; --", 3, "é🎬")


async def test_many_may_make_the_table_at_once(place: str) -> None:
    async def use(n: int) -> None:
        async with open_vectors(place) as vectors:
            await vectors.replace(HERE, "m", [document(f"d{n}", [1, 0])])

    await asyncio.gather(*(use(n) for n in range(8)))
    async with open_vectors(place) as vectors:
        assert len(await texts(vectors, [1, 0])) == 8


@pytest.mark.parametrize("url", ["redis://localhost", "sqlite::memory:", "sqlite:///:memory:", "file.db"])
async def test_a_place_that_cannot_hold_passages_is_refused(url: str) -> None:
    with pytest.raises(UnknownStore):
        async with open_vectors(url):
            pass


async def test_a_place_that_is_not_there_is_told() -> None:
    with pytest.raises(StoreUnavailable):
        async with open_vectors("sqlite:////no/such/folder/v.db"):
            pass
    with pytest.raises(StoreError):
        async with open_vectors("postgresql://nobody@127.0.0.1:1/none"):
            pass


def test_both_ways_to_multiply_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [unit([1, 2, 3]), unit([-1, 0.5, 0])]
    query, packed_rows = pack(rows[0]), [pack(row) for row in rows]
    plain = scores(query, packed_rows)
    assert plain == pytest.approx([1.0, cosine([1, 2, 3], [-1, 0.5, 0])], abs=1e-6)
    monkeypatch.setattr(similarity, "np", _Numpy())
    assert scores(query, packed_rows) == pytest.approx(plain, abs=1e-6)


class _Numpy:
    """As much of numpy's face as is used, since it is not a dependency."""

    @staticmethod
    def frombuffer(data: bytes, dtype: str) -> Any:
        assert dtype == "float32"
        return _Array(unpack(data))


class _Array(list):
    def reshape(self, rows: int, rest: int) -> _Array:
        assert rest == -1
        width = len(self) // rows
        return _Array(self[n * width : (n + 1) * width] for n in range(rows))

    def __matmul__(self, other: _Array) -> _Array:
        return _Array(sum(a * b for a, b in zip(row, other, strict=True)) for row in self)

    def tolist(self) -> list[float]:
        return list(self)


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


async def test_the_job_stores_file_stays_usable_beside_it() -> None:
    url = stores.fresh_url("sqlite")
    store = await stores.open_store(url)
    async with open_vectors(url) as vectors:
        await vectors.replace(HERE, "m", [document("a", [1, 0])])
        await store.migrate()
        assert await texts(vectors, [1, 0]) == ["a0"]
    await store.close()
    path = url.removeprefix("sqlite:///")
    assert sqlite3.connect(path).execute("SELECT count(*) FROM llm_passages").fetchone() == (1,)
