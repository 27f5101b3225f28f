"""Turn texts into vectors: by a server, or by a small local model when no server is configured.

The local model is a model2vec folder in this process, pinned by the digest of its content. No model is ever downloaded:
a missing folder is an error. The digest is that of this command inside the folder:
`find . -type f -not -path '*/.*' | LC_ALL=C sort | xargs sha256sum | sha256sum`
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .errors import Garbled, NotConfigured, ResultTooLarge
from .post import body_of, open_post
from .settings import Endpoint, embed_endpoint

BATCH = 64
ANSWER_BYTES = 64 * 1024 * 1024
RESULT_BYTES = 1_000_000  # the engine refuses results over 1 MiB
Vector = list[float]
_one_at_a_time = threading.Lock()

MODEL_VARIABLE, DIGEST_VARIABLE = "CALLSHEET_EMBED_MODEL", "CALLSHEET_EMBED_SHA256"
DIGITS = 8  # a float4 has no more
DIGEST_DIGITS = 12  # shown of a digest: enough to distinguish models


class Embedded(NamedTuple):
    """Embedding vectors of equal dimensions, in text order."""

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
    lengths = {len(vector) for vector in vectors}
    if len(lengths) != 1 or 0 in lengths:
        raise Garbled(f"the embeddings have different dimensions: {sorted(lengths)}")
    if not all(math.isfinite(x) for vector in vectors for x in vector):
        raise Garbled("the embeddings hold values that are no numbers")


def _by_local_model(model: LocalModel, texts: Sequence[str]) -> Embedded:
    with _one_at_a_time:  # loading twice would cost twice the memory
        return Embedded(model.name, model.embed(texts))


class LocalModel(NamedTuple):
    """A model folder and the digest of its content."""

    folder: Path
    digest: str

    @property
    def name(self) -> str:
        """The folder's name and part of the digest, so that changed content counts as another model."""
        return f"{self.folder.name}@{self.digest[:DIGEST_DIGITS]}"

    def is_called(self, name: str) -> bool:
        """Whether a job that asks for `name` means this model."""
        return name in (self.name, self.folder.name)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector of length one per text, in order. Raises NotConfigured if the model cannot be loaded."""
        rows = _load(self).encode(list(texts), normalize=True, use_multiprocessing=False)
        return [[round(float(x), DIGITS) for x in row] for row in rows]


def local_model(environ: Mapping[str, str] | None = None) -> LocalModel | None:
    """Return the model in the folder CALLSHEET_EMBED_MODEL, None if unset. Raises NotConfigured unless it is pinned."""
    environ = os.environ if environ is None else environ
    folder_name = environ.get(MODEL_VARIABLE, "").strip()
    if not folder_name:
        return None
    folder = Path(folder_name).absolute()
    if not folder.is_dir():
        advice = "name the folder of a model2vec model, or set CALLSHEET_EMBED_URL to a server that has it"
        raise NotConfigured(f"what {MODEL_VARIABLE} names is no folder, and nothing is fetched; {advice}")
    pinned_digest, digest = environ.get(DIGEST_VARIABLE, "").strip().lower(), _digest_at(folder, _newest(folder))
    if not pinned_digest:
        advice = f"compare it with where you got it from, then set {DIGEST_VARIABLE}={digest}"
        raise NotConfigured(f"the model of {MODEL_VARIABLE} is not pinned; {advice}")
    if pinned_digest != digest:
        advice = f"it is not the model that was pinned: get that one again, or change {DIGEST_VARIABLE}"
        raise NotConfigured(f"the files of {MODEL_VARIABLE} have the digest {digest}; {advice}")
    return LocalModel(folder, digest)


def digest_of(folder: Path) -> str:
    """Return one digest for all files below a folder, by their names and contents. Hidden files are ignored."""
    lines = hashlib.sha256()
    for path in _files(folder):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        lines.update(f"{content}  ./{path.relative_to(folder).as_posix()}\n".encode())
    return lines.hexdigest()


def _files(folder: Path) -> list[Path]:
    inside = [path for path in folder.rglob("*") if path.is_file()]
    visible = [path for path in inside if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    return sorted(visible, key=lambda path: os.fsencode(f"./{path.relative_to(folder).as_posix()}"))


def _newest(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return names, times and sizes of all files: a key that changes with any file, without reading contents."""
    return tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in _files(folder))


@cache
def _digest_at(folder: Path, _state: tuple[tuple[str, int, int], ...]) -> str:
    return digest_of(folder)


@cache
def _load(model: LocalModel) -> Any:
    """Load the model once per process; this takes about a second and as much memory as the model's file."""
    try:
        from model2vec import StaticModel  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        advice = "pip install 'callsheet[llm]'"
        raise NotConfigured(f"the local model cannot be loaded, {error.name} is missing; {advice}") from error
    try:
        return StaticModel.from_pretrained(model.folder, force_download=False)
    except Exception as error:  # its libraries raise whatever they like
        raise NotConfigured(
            f"the folder of {MODEL_VARIABLE} holds no model2vec model ({type(error).__name__})"
        ) from error
