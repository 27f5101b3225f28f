"""Answers from documents, through the real worker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from callsheet import Callsheet
from callsheet.contracts.redis_gateway.tasks import add_tasks
from callsheet.kernel.errors import InvalidPayload
from callsheet.kernel.job import Status
from callsheet.testing import harness
from tests import stores

from .conftest import enqueued, error_of, events_of, gateway, run, working
from .server import Request, Server, embed, piece, refuse, say, stream, text_of

CATS = {"id": "cats", "title": "On cats", "text": "Cats sleep sixteen hours a day.\n\nA cat purrs when it is content."}
DOGS = {"id": "dogs", "text": "Dogs bark at the mailman. A dog wags its tail."}
LONG = " ".join(f"Sentence number {n} speaks about topic {n % 7} at some length." for n in range(800))


async def ingested(app: Callsheet, *documents: dict[str, Any], requester: str = "ann") -> dict[str, Any]:
    job = await run(app, "rag", requester, action="ingest", collection="pets", documents=list(documents))
    result: dict[str, Any] = await job.result()
    return result


async def test_an_answer_cites_its_passages(app: Callsheet, server: Server) -> None:
    assert await ingested(app, CATS, DOGS) == {"documents": 2, "passages": 2, "model": "bag"}
    server.turns = [say("Sixteen ", "hours ", "[1].")]
    job = await run(app, "rag", "ann", action="ask", collection="pets", question="How many hours do cats sleep a day?")
    result = await job.result()
    assert result["text"] == "Sixteen hours [1]."
    assert text_of(await events_of(app, job)) == "Sixteen hours [1]."
    first, second = result["citations"]
    assert first.keys() == {"n", "document_id", "title", "start", "end", "text", "score"}
    assert (first["n"], first["document_id"], first["title"]) == (1, "cats", "On cats")
    assert CATS["text"][first["start"] : first["end"]] == first["text"]
    assert first["score"] > second["score"]
    assert (second["n"], second["document_id"], second["title"]) == (2, "dogs", "")
    request = server.chats[0]["messages"][1]["content"]
    assert (
        request.index("[1] (On cats)\nCats sleep")
        < request.index("[2] Dogs bark")
        < request.index("Question: How many")
    )


async def test_only_the_nearest_are_shown(app: Callsheet, server: Server) -> None:
    await ingested(app, CATS, DOGS)
    job = await run(app, "rag", "ann", action="ask", collection="pets", question="dog tail", k=1)
    assert [c["document_id"] for c in (await job.result())["citations"]] == ["dogs"]
    assert "purrs" not in str(server.chats)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_one_tenant_never_sees_the_passages_of_another(kind: str, server: Server) -> None:
    async with gateway(stores.fresh_url(kind)) as app:
        await ingested(app, {"id": "x", "text": "Ann's password is swordfish."}, requester="ann")
        question = {"action": "ask", "collection": "pets", "question": "What is Ann's password?"}
        job = await run(app, "rag", "bob", **question)
        assert (await error_of(job))["code"] == "no_passages"
        await run(app, "rag", "bob", action="delete", collection="pets")
        await ingested(app, {"id": "x", "text": "Bob knows nothing."}, requester="bob")
        job = await run(app, "rag", "bob", **question)
        assert "swordfish" not in json.dumps(await job.result()) + json.dumps(server.chats)
        job = await run(app, "rag", "ann", **question)
        assert [c["text"] for c in (await job.result())["citations"]] == ["Ann's password is swordfish."]


async def test_a_document_that_comes_again_replaces_itself(app: Callsheet, server: Server) -> None:
    await ingested(app, CATS, DOGS)
    await ingested(app, {"id": "cats", "text": "Cats are liquid."})
    job = await run(app, "rag", "ann", action="ask", collection="pets", question="cats", k=20)
    assert sorted(c["text"] for c in (await job.result())["citations"]) == sorted(["Cats are liquid.", DOGS["text"]])


async def test_documents_are_deleted(app: Callsheet, server: Server) -> None:
    await ingested(app, CATS, DOGS)
    some = await run(app, "rag", "ann", action="delete", collection="pets", document_ids=["cats"])
    rest = await run(app, "rag", "ann", action="delete", collection="pets")
    assert [await some.result(), await rest.result()] == [{"deleted": 1}, {"deleted": 1}]
    job = await run(app, "rag", "ann", action="ask", collection="pets", question="cats")
    assert ((await job.get()).status, (await error_of(job))["code"]) == (Status.FAILED, "no_passages")


async def test_a_worker_that_dies_while_it_embeds_goes_on_where_it_was(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CALLSHEET_VECTORS_URL", f"sqlite:///{tmp_path}/vectors.db")
    app = Callsheet("sqlite:///never-opened.db")
    add_tasks(app)
    async with harness(app) as jobs:
        document = {"id": "long", "text": LONG}
        job = await app.task_named("rag").enqueue(action="ingest", collection="c", documents=[document])
        jobs.crash("rag", after="step:embed 2")
        await jobs.run()
        assert len(server.embeds) == 2
        await jobs.advance("1m")
        result = await jobs.result(job)
        texts = [text for body in server.embeds for text in body["input"]]
        assert len(server.embeds) >= 4
        assert len(texts) == len(set(texts)) == result["passages"], "no passage was embedded twice"
        request = await app.task_named("rag").enqueue(action="ask", collection="c", question="topic 3", k=20)
        await jobs.run()
        assert len((await jobs.result(request))["citations"]) == 20


async def test_a_busy_server_costs_only_the_batch_it_refused(app: Callsheet, server: Server) -> None:
    async def second_is_refused(server: Server, request: Request, writer: asyncio.StreamWriter) -> None:
        behave = refuse("503 Busy", Retry_After="0") if len(server.embeds) == 2 else embed
        await behave(server, request, writer)

    server.on_embed = second_is_refused
    job = await enqueued(app, "rag", action="ingest", collection="c", documents=[{"id": "long", "text": LONG}])
    async with working(app):
        result = await job.result(timeout=60)
    sizes = [len(body["input"]) for body in server.embeds]
    assert sum(sizes) == result["passages"] + sizes[1]
    assert (await job.get()).attempt_count == 1, "a busy server costs no attempt"
    progress = [e.progress for e in await events_of(app, job) if e.type == "progress"]
    assert progress == sorted(progress)
    assert progress[-1] == 95.0


async def test_an_answer_that_breaks_off_is_given_again(app: Callsheet, server: Server) -> None:
    await ingested(app, CATS)
    server.turns = [stream(piece("half "), whole=False), say("whole")]
    job = await enqueued(app, "rag", "ann", action="ask", collection="pets", question="cats")
    async with working(app):
        assert (await job.result(timeout=60))["text"] == "whole"
    assert text_of(await events_of(app, job)) == "whole"


async def test_another_embedding_model_is_told(app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await ingested(app, CATS)
    monkeypatch.setenv("CALLSHEET_EMBED_MODEL", "newer")
    job = await run(app, "rag", "ann", action="ask", collection="pets", question="cats")
    error = await error_of(job)
    assert error["code"] == "other_model"
    assert "CALLSHEET_EMBED_MODEL=bag" in error["message"]


async def test_a_place_that_cannot_hold_passages_fails_the_job(
    app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHEET_VECTORS_URL", "redis://localhost")
    job = await run(app, "rag", action="delete", collection="c")
    error = await error_of(job)
    assert ((await job.get()).status, error["code"]) == (Status.FAILED, "vectors_not_configured")
    assert "CALLSHEET_VECTORS_URL" in error["message"]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"action": "ingest"}, "documents: Field required"),
        ({"action": "ingest", "documents": []}, "there must be one"),
        ({"action": "ingest", "documents": [DOGS, DOGS]}, "no id twice"),
        ({"action": "ask"}, "question: Field required"),
    ],
)
async def test_an_action_says_what_it_misses(
    app: Callsheet, server: Server, payload: dict[str, Any], message: str
) -> None:
    job = await run(app, "rag", collection="c", **payload)
    error = await error_of(job)
    assert error["code"] == "invalid_payload"
    assert message in error["message"]


@pytest.mark.parametrize(
    "payload",
    [
        {"action": "read", "collection": "c"},
        {"action": "ask", "collection": "", "question": "x"},
        {"action": "ask", "collection": "c", "question": "x", "k": 0},
        {"action": "ingest", "collection": "c", "documents": [{"id": "a", "path": "/etc/passwd"}]},
        {"action": "ingest", "collection": "c", "paths": ["/etc/passwd"]},
    ],
)
async def test_a_payload_that_makes_no_sense_is_refused_when_it_is_sent(
    app: Callsheet, payload: dict[str, Any]
) -> None:
    with pytest.raises(InvalidPayload):
        await enqueued(app, "rag", **payload)
