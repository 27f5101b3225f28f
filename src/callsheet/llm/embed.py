"""Turn texts into vectors: by a server, or by a small local model when no server is configured."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from .errors import Garbled, NotConfigured, ResultTooLarge
from .local_model import LocalModel, local_model
from .post import body_of, open_post
from .settings import Endpoint, embed_endpoint

BATCH = 64
ANSWER_BYTES = 64 * 1024 * 1024
RESULT_BYTES = 1_000_000  # the engine refuses results over 1 MiB
Vector = list[float]
_one_at_a_time = threading.Lock()


class Embedded(NamedTuple):
    """One vector per text, in the order of the texts, all with the same dimensions."""

    model: str
    vectors: list[Vector]


Embed = Callable[[Sequence[str]], Awaitable[Embedded]]


def embedder(model: str | None = None) -> Embed:
    """Return the function that embeds texts here: the server's, else the local model's. Raises NotConfigured."""
    endpoint = embed_endpoint()
    if endpoint is not None:
        return lambda texts: _by_server(endpoint, texts, model)
    local = local_model()
    if local is None:
        raise NotConfigured(
            "nothing here can embed texts; set CALLSHEET_EMBED_URL (or CALLSHEET_LLM_URL) to an OpenAI-compatible "
            "server, or pip install 'callsheet[llm]' and set CALLSHEET_EMBED_MODEL to the folder of a model"
        )
    if model is not None and not local.is_called(model):
        raise NotConfigured(f"the local model is {local.name}; for {model} set CALLSHEET_EMBED_URL")
    return lambda texts: asyncio.to_thread(_by_local_model, local, texts)


async def embed_all(texts: Sequence[str], model: str | None = None) -> dict[str, Any]:
    """Embed all texts as a job's result. Raises ResultTooLarge as soon as the first batches show that it will be."""
    embed_batch = embedder(model)
    used_model, vectors, size = "", list[Vector](), 0
    for start in range(0, len(texts), BATCH):
        batch = await embed_batch(texts[start : start + BATCH])
        used_model = batch.model
        vectors += batch.vectors
        size += len(json.dumps(batch.vectors, separators=(",", ":")))
        _check_size(size, len(vectors), len(texts))
    _check_alike(vectors)
    return {"model": used_model, "dimensions": len(vectors[0]), "embeddings": vectors}


def _check_size(size: int, done_count: int, total_count: int) -> None:
    if size * total_count > RESULT_BYTES * done_count:
        fit = max(1, RESULT_BYTES * done_count // size)
        advice = f"send at most about {fit} inputs in one job"
        raise ResultTooLarge(
            f"the embeddings of {total_count} inputs are over the limit of 1 MiB for a result; {advice}"
        )


async def _by_server(endpoint: Endpoint, texts: Sequence[str], model: str | None) -> Embedded:
    model_name = model or endpoint.model
    body = {"input": list(texts), **({"model": model_name} if model_name else {})}
    async with open_post(endpoint, "embeddings", body) as response:
        answer = await body_of(response, ANSWER_BYTES)
    try:
        content = json.loads(answer)
        rows = sorted(content["data"], key=lambda row: row["index"])
        vectors = [[float(x) for x in row["embedding"]] for row in rows]
        used_model = str(content.get("model") or model_name or "unknown")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Garbled(f"the server's embeddings cannot be read ({type(error).__name__}: {error})") from None
    if len(vectors) != len(texts):
        raise Garbled(f"the server gave {len(vectors)} embeddings for {len(texts)} inputs")
    _check_alike(vectors)
    return Embedded(used_model, vectors)


def _check_alike(vectors: list[Vector]) -> None:
    """Raise Garbled unless all vectors have the same dimensions and finite numbers."""
    lengths = {len(vector) for vector in vectors}
    if len(lengths) != 1 or 0 in lengths:
        raise Garbled(f"the embeddings have different dimensions: {sorted(lengths)}")
    if not all(math.isfinite(x) for vector in vectors for x in vector):
        raise Garbled("the embeddings hold values that are no numbers")


def _by_local_model(model: LocalModel, texts: Sequence[str]) -> Embedded:
    with _one_at_a_time:  # loading twice would cost twice the memory
        return Embedded(model.name, model.embed(texts))
