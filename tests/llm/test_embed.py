"""Embeddings: by a server, by a local model, or not at all."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from callsheet import Callsheet
from callsheet.kernel.errors import InvalidPayload
from callsheet.kernel.job import Status
from callsheet.llm import embed as embed_module
from callsheet.llm.settings import chat_endpoint, embed_endpoint, vectors_url

from .conftest import enqueued, error_of, run
from .server import DIMENSIONS, Request, Server, refuse, vector_of


async def test_texts_become_vectors_in_their_order(app: Callsheet, server: Server) -> None:
    texts = [f"text number {n}" for n in range(100)]
    result = await (await run(app, "embed", input=texts)).result()
    assert (result["model"], result["dimensions"]) == ("bag", DIMENSIONS)
    assert result["embeddings"] == [vector_of(text) for text in texts]
    assert [len(body["input"]) for body in server.embeds] == [64, 36]


async def test_one_text_may_stand_alone(app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_EMBED_MODEL", "nomic")
    result = await (await run(app, "embed", input="hello")).result()
    assert result == {"model": "nomic", "dimensions": DIMENSIONS, "embeddings": [vector_of("hello")]}


async def test_too_many_inputs_are_told_before_all_are_embedded(app: Callsheet, server: Server) -> None:
    async def wide(server: Server, request: Request, writer: asyncio.StreamWriter) -> None:
        data = [{"index": n, "embedding": [0.123456] * 1000} for n in range(len(request.body["input"]))]
        await refuse("200 OK", {"model": "wide", "data": data})(server, request, writer)

    server.on_embed = wide
    job = await run(app, "embed", input=["x"] * 2048)
    error = await error_of(job)
    assert ((await job.get()).status, error["code"]) == (Status.FAILED, "result_too_large")
    assert "send at most about 111 inputs" in error["message"]
    assert len(server.embeds) == 1
    assert (await (await run(app, "embed", input=["x"] * 110)).result())["dimensions"] == 1000


@pytest.mark.parametrize("wrong", [[], ["x"] * 2049, [5], 5, None])
async def test_input_that_is_no_text_is_refused(app: Callsheet, wrong: Any) -> None:
    with pytest.raises(InvalidPayload, match="input"):
        await enqueued(app, "embed", input=wrong)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"data": []}, "0 embeddings for 2"),
        ({"nothing": 1}, "KeyError"),
        (b"<html>", "cannot be read"),
        ({"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}, "different dimensions"),
        ({"data": [{"index": 0, "embedding": ["x"]}, {"index": 1, "embedding": [1]}]}, "cannot be read"),
        (b'{"data": [{"index": 0, "embedding": [NaN]}, {"index": 1, "embedding": [1]}]}', "no numbers"),
    ],
)
async def test_embeddings_that_cannot_be_used_are_told(app: Callsheet, server: Server, answer: Any, said: str) -> None:
    server.on_embed = refuse("200 OK", answer)
    error = await error_of(await run(app, "embed", input=["a", "b"]))
    assert error["code"] == "llm_garbled"
    assert said in error["message"]


async def test_a_busy_server_is_asked_again(app: Callsheet, server: Server) -> None:
    server.on_embed = refuse("503 Busy")
    job = await run(app, "embed", input="x")
    assert (await job.get()).status is Status.QUEUED


async def test_with_neither_server_nor_model_both_ways_out_are_named(app: Callsheet) -> None:
    error = await error_of(await run(app, "embed", input="x"))
    assert error["code"] == "llm_not_configured"
    assert "CALLSHEET_EMBED_URL" in error["message"]
    assert "callsheet[embed]" in error["message"]


@pytest.fixture
def local_model(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The package of the extra `embed`, with its real face and a small inside."""
    threads: list[threading.Thread] = []

    class Model:
        def encode(self, texts: list[str], *, normalize_embeddings: bool, show_progress_bar: bool) -> list[list[float]]:
            threads.append(threading.current_thread())
            assert normalize_embeddings
            assert not show_progress_bar
            return [vector_of(text) for text in texts]

    package = ModuleType(embed_module.LOCAL_PACKAGE)
    package.__spec__ = sys.__spec__
    package.load_model = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, embed_module.LOCAL_PACKAGE, package)
    embed_module._local_model.cache_clear()
    return threads


async def test_a_local_model_serves_when_no_server_is_configured(
    app: Callsheet, local_model: list[threading.Thread]
) -> None:
    result = await (await run(app, "embed", input=["a", "b"])).result()
    assert (result["model"], result["embeddings"]) == ("all-MiniLM-L6-v2", [vector_of("a"), vector_of("b")])
    assert local_model[0] is not threading.main_thread(), "it must not block the event loop"
    error = await error_of(await run(app, "embed", input="a", model="other"))
    assert "CALLSHEET_EMBED_URL" in error["message"]


async def test_a_local_model_that_lacks_a_part_is_told(
    app: Callsheet, local_model: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(sys.modules[embed_module.LOCAL_PACKAGE], "load_model", broken)
    error = await error_of(await run(app, "embed", input="a"))
    assert error["code"] == "llm_not_configured"
    assert "torch is missing" in error["message"]


async def test_a_server_goes_before_the_local_model(
    app: Callsheet, server: Server, local_model: list[threading.Thread]
) -> None:
    assert (await (await run(app, "embed", input="a")).result())["model"] == "bag"
    assert local_model == []


def test_a_key_goes_to_no_other_server_than_its_own() -> None:
    chat = {"CALLSHEET_LLM_URL": "http://a:1/v1", "CALLSHEET_LLM_API_KEY": "k", "CALLSHEET_LLM_MODEL": "m"}
    same, other = "http://a:1/embed", "http://b:1/v1"
    found = [embed_endpoint({**chat, "CALLSHEET_EMBED_URL": url}) for url in ("", same, other)]
    assert [endpoint and endpoint.api_key for endpoint in found] == ["k", "k", ""]
    own = embed_endpoint({**chat, "CALLSHEET_EMBED_URL": other, "CALLSHEET_EMBED_API_KEY": "e"})
    assert own is not None
    assert own.api_key == "e"
    assert "k" not in repr(chat_endpoint(chat)).replace("Endpoint", "")


@pytest.mark.parametrize(
    ("database", "given", "place"),
    [
        ("sqlite:///jobs.db", "", "sqlite:///jobs.db"),
        ("postgresql://h/d", "", "postgresql://h/d"),
        ("redis://h", "", "sqlite:///callsheet-vectors.db"),
        ("libsql:///jobs.db", "", "sqlite:///callsheet-vectors.db"),
        ("sqlite::memory:", "", "sqlite:///callsheet-vectors.db"),
        ("redis://h", "sqlite:///v.db", "sqlite:///v.db"),
    ],
)
def test_where_passages_are_kept(database: str, given: str, place: str) -> None:
    assert vectors_url(database, {"CALLSHEET_VECTORS_URL": given}) == place
