"""A small model that embeds texts in this process: a model2vec folder, pinned by the digest of its content.

No model is ever downloaded: a missing folder is an error. The digest is that of this command inside the folder:
`find . -type f -not -path '*/.*' | LC_ALL=C sort | xargs sha256sum | sha256sum`
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .errors import NotConfigured

MODEL_VARIABLE, DIGEST_VARIABLE = "CALLSHEET_EMBED_MODEL", "CALLSHEET_EMBED_SHA256"
DIGITS = 8  # a float4 has no more
DIGEST_DIGITS = 12  # shown of a digest: enough to distinguish models


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
