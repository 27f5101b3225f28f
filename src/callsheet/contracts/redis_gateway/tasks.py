"""The six tasks of the gateway's contract: chat, plan, code, tool, rag and embed.

This module converts payloads to model questions, and model errors to job outcomes; `llm` does the work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue
from typing_extensions import TypedDict

from callsheet.kernel.contracts import REDIS_GATEWAY
from callsheet.kernel.errors import InvalidPayload
from callsheet.kernel.retry import Backoff
from callsheet.llm import answers, rag
from callsheet.llm.chat import Answer, Question, Tokens, ask
from callsheet.llm.embed import embed_all, embedder
from callsheet.llm.errors import NoPassages
from callsheet.llm.settings import chat_endpoint, vectors_url
from callsheet.llm.tools import Tools
from callsheet.llm.vector_stores import open_vectors
from callsheet.llm.vectors import Collection, Passage, unit
from callsheet.worker.context import Context
from callsheet.worker.pipeline import TakesTasks

from ..attempts import llm_errors_as_outcomes  # noqa: TID252 - what contracts share

RETRY = Backoff(base_ms=2_000, cap_ms=120_000)
ATTEMPTS = 4
DONE_PERCENT = 95.0
T = TypeVar("T")
Result = dict[str, Any]
Work = Callable[[Context, Question], Awaitable[Result]]


class Document(TypedDict):
    """A text document to store in a collection."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc] # pydantic's way

    id: Annotated[str, Field(min_length=1, max_length=500)]
    text: str
    title: NotRequired[str]


def _refuse(_: object) -> None:
    raise ValueError("the payload was not JSON; send a JSON object")


# A foreign producer's payload that cannot be parsed is kept by the store as {"_raw": text}: each task refuses it.
Rejected = Annotated[None, BeforeValidator(_refuse)]


def add_tasks(app: TakesTasks, tools: Tools | None = None) -> None:
    """Declare the six tasks on an app; `tools` are the functions available to `tool`."""
    options = {"queue": "default", "retry": RETRY, "max_attempts": ATTEMPTS, "contract": REDIS_GATEWAY.name}
    for name, (work, system) in LANGUAGE.items():
        app.task(name=name, timeout="30m", **options)(_language_task(work, system))
    app.task(name="embed", timeout="30m", **options)(embed)
    app.task(name="rag", timeout="1h", **options)(_rag_task(app))
    app.task(name="tool", timeout="1h", **options)(_tool_task(tools or Tools()))


# chat, plan, code


def _language_task(work: Work, own_system: str) -> Callable[..., Awaitable[Result]]:
    async def task(  # noqa: PLR0913 - the payload, key by key
        ctx: Context,
        prompt: str | None = None,
        messages: list[dict[str, JsonValue]] | None = None,
        *,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: Annotated[int, Field(ge=1)] | None = None,
        system: str | None = None,
        stop: str | list[str] | None = None,
        options: dict[str, JsonValue] | None = None,
        _raw: Rejected = None,
    ) -> Result:
        conversation = _messages(prompt, messages, "\n\n".join(filter(None, (own_system, system))))
        question = Question(conversation, model, temperature, max_tokens, stop, options or {})
        with llm_errors_as_outcomes():
            return await work(ctx, question)

    return task


def _messages(prompt: str | None, messages: list[dict[str, JsonValue]] | None, system: str) -> list[dict[str, Any]]:
    if (prompt is None) == (messages is None):
        raise InvalidPayload("give either prompt or messages")
    conversation = messages if messages is not None else [{"role": "user", "content": prompt}]
    if not conversation or not all(isinstance(message.get("role"), str) for message in conversation):
        raise InvalidPayload("messages: there must be one, and each needs a role, such as user")
    return [{"role": "system", "content": system}, *conversation] if system else list(conversation)


@contextlib.contextmanager
def _streaming(ctx: Context) -> Iterator[Tokens]:
    """Emit text pieces as token events. From the second attempt on, a restart event first voids earlier tokens."""
    if ctx.job.claim_version > 1:  # `attempt` does not count outages and released claims
        _restart(ctx, "another attempt")
    with Tokens(lambda text: ctx.emit("token", text=text)) as tokens:
        yield tokens


def _restart(ctx: Context, why: str) -> None:
    """Emit an event that voids all earlier tokens."""
    _ = ctx.emit("restart", attempt=ctx.attempt, reason=why)


async def _speak(ctx: Context, question: Question) -> Answer:
    endpoint = chat_endpoint()
    with _streaming(ctx) as tokens:
        return await ask(endpoint, question, tokens)


async def chat(ctx: Context, question: Question) -> Result:
    """Return the model's next answer in a conversation."""
    return (await _speak(ctx, question)).json()


async def plan(ctx: Context, question: Question) -> Result:
    """Return the model's plan for a goal, as steps."""
    endpoint = chat_endpoint()
    with _streaming(ctx) as tokens:

        def again(fault: str) -> None:
            tokens.flush()
            _restart(ctx, f"the plan could not be read: {fault}")

        return (await answers.plan(endpoint, question, tokens, again)).json()


async def code(ctx: Context, question: Question) -> Result:
    """Return the model's answer and its code blocks."""
    answer = await _speak(ctx, question)
    return {**answer.json(), "blocks": answers.blocks_in(answer.text)}


LANGUAGE: dict[str, tuple[Work, str]] = {
    "chat": (chat, ""),
    "plan": (plan, answers.PLAN_PROMPT),
    "code": (code, answers.CODE_PROMPT),
}


# embed, tool


async def embed(
    input: str | Annotated[list[str], Field(min_length=1, max_length=2048)],
    *,
    model: str | None = None,
    _raw: Rejected = None,
) -> Result:
    """Return one vector per text."""
    with llm_errors_as_outcomes():
        return await embed_all([input] if isinstance(input, str) else input, model)


def _tool_task(tools: Tools) -> Callable[..., Awaitable[Result]]:
    async def tool(
        ctx: Context, name: str, arguments: dict[str, JsonValue] | None = None, *, _raw: Rejected = None
    ) -> Result:
        with llm_errors_as_outcomes():
            return {"name": name, "result": await tools.call(name, arguments or {}, ctx.workspace)}

    return tool


# rag


def _rag_task(app: TakesTasks) -> Callable[..., Awaitable[Result]]:
    async def task(  # noqa: PLR0913 - the payload, key by key
        ctx: Context,
        action: Literal["ingest", "ask", "delete"],
        collection: Annotated[str, Field(min_length=1, max_length=200)],
        *,
        documents: list[Document] | None = None,
        document_ids: list[str] | None = None,
        question: str | None = None,
        k: Annotated[int, Field(ge=1, le=20)] = 5,
        model: str | None = None,
        _raw: Rejected = None,
    ) -> Result:
        place = Place(vectors_url(app.database_url), Collection(ctx.job.requester_id, collection))
        with llm_errors_as_outcomes():
            match action:
                case "ingest":
                    return await ingest(ctx, place, _required(documents, "documents"))
                case "ask":
                    passages = await find(place, _required(question, "question"), k)
                    question_with_passages = Question(
                        rag.conversation(_required(question, "question"), passages), model
                    )
                    answer = await _speak(ctx, question_with_passages)
                    return {**answer.json(), "citations": rag.citations(passages)}
            return await delete(place, document_ids)

    return task


class Place(NamedTuple):
    """The vector store's URL and the requester's collection."""

    url: str
    collection: Collection


async def ingest(ctx: Context, place: Place, sources: Sequence[Document]) -> Result:
    """Store documents, replacing documents with equal ids. Each embedded batch is a checkpoint for later attempts."""
    ids = [document["id"] for document in sources]
    if len(set(ids)) < len(ids) or not ids:
        raise InvalidPayload("documents: there must be one, and no id twice")
    parts = [rag.Source.of(document["id"], document.get("title", ""), document["text"]) for document in sources]
    embed, batches, checkpoints = embedder(), rag.batches(parts), list[rag.BatchCheckpoint]()
    for n, texts in enumerate(batches, 1):
        async with ctx.step(f"embed {n}") as step:
            if not step.done:
                step.result = rag.checkpoint_of(await embed(texts))
        checkpoints.append(step.result)
        _ = ctx.progress(DONE_PERCENT * n / len(batches), f"{n} of {len(batches)} batches embedded")
    model, documents = rag.documents(parts, checkpoints)
    async with open_vectors(place.url) as vectors:
        await vectors.replace(place.collection, model, documents)
    return {"documents": len(ids), "passages": sum(map(len, batches)), "model": model}


async def find(place: Place, question: str, k: int) -> list[Passage]:
    """Return the passages nearest to a question; raises NoPassages."""
    vector = await embedder()([question])
    async with open_vectors(place.url) as vectors:
        passages = await vectors.nearest(place.collection, vector.model, unit(vector.vectors[0]), k)
    if not passages:
        raise NoPassages(f"collection {place.collection.name!r} holds no passages; ingest documents first")
    return passages


async def delete(place: Place, document_ids: Sequence[str] | None) -> Result:
    """Delete some or all documents of a collection."""
    async with open_vectors(place.url) as vectors:
        return {"deleted": await vectors.delete(place.collection, document_ids)}


def _required(value: T | None, name: str) -> T:
    if value is None:
        raise InvalidPayload(f"{name}: Field required for this action")
    return value
