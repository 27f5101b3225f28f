"""Embeddings: by a server, by a local model, or refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model2vec import StaticModel
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from callsheet import Callsheet
from callsheet.kernel.errors import InvalidPayload
from callsheet.kernel.job import Status
from callsheet.llm import embed as local
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
    ("answer", "message"),
    [
        ({"data": []}, "0 embeddings for 2"),
        ({"nothing": 1}, "KeyError"),
        (b"<html>", "cannot be read"),
        ({"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}, "different dimensions"),
        ({"data": [{"index": 0, "embedding": ["x"]}, {"index": 1, "embedding": [1]}]}, "cannot be read"),
        (b'{"data": [{"index": 0, "embedding": [NaN]}, {"index": 1, "embedding": [1]}]}', "no numbers"),
    ],
)
async def test_embeddings_that_cannot_be_used_are_told(
    app: Callsheet, server: Server, answer: Any, message: str
) -> None:
    server.on_embed = refuse("200 OK", answer)
    error = await error_of(await run(app, "embed", input=["a", "b"]))
    assert error["code"] == "llm_garbled"
    assert message in error["message"]


async def test_a_busy_server_is_asked_again(app: Callsheet, server: Server) -> None:
    server.on_embed = refuse("503 Busy")
    job = await run(app, "embed", input="x")
    waiting = await job.get()
    assert (waiting.status, waiting.attempt_count) == (Status.QUEUED, 0)
    assert (await error_of(job))["details"]["waits_for"] == "the model server"


async def test_with_neither_server_nor_model_both_ways_out_are_named(app: Callsheet) -> None:
    error = await error_of(await run(app, "embed", input="x"))
    assert error["code"] == "llm_not_configured"
    assert "CALLSHEET_EMBED_URL" in error["message"]
    assert "callsheet[llm]" in error["message"]


WORDS = ("a", "cat", "dog", "sat")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real model of four words, made here, named and pinned."""
    words = {word: number for number, word in enumerate(("[UNK]", *WORDS))}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    path = tmp_path / "tiny"
    StaticModel(np.eye(5, 4, -1, dtype=np.float32) * 3, tokenizer).save_pretrained(path)
    monkeypatch.setenv("CALLSHEET_EMBED_MODEL", str(path))
    monkeypatch.setenv("CALLSHEET_EMBED_SHA256", local.digest_of(path))
    return path


async def test_a_local_model_serves_when_no_server_is_configured(app: Callsheet, folder: Path) -> None:
    result = await (await run(app, "embed", input=["cat", "dog dog", "a cat"])).result()
    assert result["model"] == f"tiny@{local.digest_of(folder)[:12]}"
    assert result["embeddings"][:2] == [[0, 1, 0, 0], [0, 0, 1, 0]]
    assert result["embeddings"][2] == pytest.approx([0.5**0.5, 0.5**0.5, 0, 0])
    assert (await (await run(app, "embed", input="cat", model="tiny")).result())["dimensions"] == 4
    error = await error_of(await run(app, "embed", input="a", model="other"))
    assert "CALLSHEET_EMBED_URL" in error["message"]


async def test_a_local_model_does_not_block_the_event_loop(
    app: Callsheet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    embed = local.LocalModel.embed

    def noted(model: local.LocalModel, texts: list[str]) -> list[list[float]]:
        threads.append(threading.current_thread())
        return embed(model, texts)

    monkeypatch.setattr(local.LocalModel, "embed", noted)
    await (await run(app, "embed", input="a")).result()
    assert [thread is threading.main_thread() for thread in threads] == [False]


async def test_a_local_model_is_pinned_by_its_content(
    app: Callsheet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = local.digest_of(folder)
    monkeypatch.delenv("CALLSHEET_EMBED_SHA256")
    error = await error_of(await run(app, "embed", input="a"))
    assert (error["code"], f"CALLSHEET_EMBED_SHA256={digest}" in error["message"]) == ("llm_not_configured", True)
    monkeypatch.setenv("CALLSHEET_EMBED_SHA256", digest.upper())
    await (await run(app, "embed", input="a")).result()
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + "\n")
    error = await error_of(await run(app, "embed", input="a"))
    assert error["code"] == "llm_not_configured"
    assert "it is not the model that was pinned" in error["message"]


def test_a_digest_is_what_a_shell_says_too(folder: Path) -> None:
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x").write_text("hidden")
    (folder / "more").mkdir()
    (folder / "more" / "b.txt").write_text("b")
    command = "find . -type f -not -path '*/.*' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    output = subprocess.run(["/bin/sh", "-c", command], cwd=folder, capture_output=True, check=True, text=True)
    assert output.stdout.split()[0] == local.digest_of(folder)


async def test_a_model_that_is_not_there_is_not_fetched(
    app: Callsheet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHEET_EMBED_MODEL", "minishlab/potion-base-8M")
    error = await error_of(await run(app, "embed", input="a"))
    assert (error["code"], "is no folder, and nothing is fetched" in error["message"]) == ("llm_not_configured", True)


async def test_a_folder_without_a_model_is_told(app: Callsheet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.safetensors").write_bytes(b"no tensors")
    monkeypatch.setenv("CALLSHEET_EMBED_SHA256", local.digest_of(folder))
    error = await error_of(await run(app, "embed", input="a"))
    assert (error["code"], "holds no model2vec model" in error["message"]) == ("llm_not_configured", True)


async def test_a_local_model_that_lacks_a_part_is_told(
    app: Callsheet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model2vec", None)
    error = await error_of(await run(app, "embed", input="a"))
    assert (error["code"], "pip install 'callsheet[llm]'" in error["message"]) == ("llm_not_configured", True)


async def test_a_server_goes_before_the_local_model(app: Callsheet, server: Server, folder: Path) -> None:
    result = await (await run(app, "embed", input="a")).result()
    assert result["embeddings"] == [vector_of("a")]


def test_a_key_goes_to_no_other_server_than_its_own() -> None:
    chat = {"CALLSHEET_LLM_URL": "http://a:1/v1", "CALLSHEET_LLM_API_KEY": "k", "CALLSHEET_LLM_MODEL": "m"}
    same, other = "http://a:1/embed", "http://b:1/v1"
    results = [embed_endpoint({**chat, "CALLSHEET_EMBED_URL": url}) for url in ("", same, other)]
    assert [endpoint and endpoint.api_key for endpoint in results] == ["k", "k", ""]
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
