"""A small model that embeds texts in this process: a folder as model2vec writes it, named and pinned by its content.

Nothing is ever fetched: a folder that is not there is an error. Its digest is that of
`find . -type f -not -path '*/.*' | LC_ALL=C sort | xargs sha256sum | sha256sum` inside the folder.
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
SHOWN = 12  # of a digest: enough to tell models apart


class LocalModel(NamedTuple):
    """A model of which the content is known."""

    folder: Path
    digest: str

    @property
    def name(self) -> str:
        """The folder's name and the content's: vectors of another content are another model's."""
        return f"{self.folder.name}@{self.digest[:SHOWN]}"

    def is_called(self, name: str) -> bool:
        """Whether a job that asks for a model by this name means this one."""
        return name in (self.name, self.folder.name)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of length one, in the order of the texts; raises NotConfigured when the model cannot be loaded."""
        rows = _loaded(self).encode(list(texts), normalize=True, use_multiprocessing=False)
        return [[round(float(x), DIGITS) for x in row] for row in rows]


def local_model(environ: Mapping[str, str] | None = None) -> LocalModel | None:
    """The model whose folder CALLSHEET_EMBED_MODEL names, None without; raises NotConfigured unless it is pinned."""
    environ = os.environ if environ is None else environ
    named = environ.get(MODEL_VARIABLE, "").strip()
    if not named:
        return None
    folder = Path(named).absolute()
    if not folder.is_dir():
        advice = "name the folder of a model2vec model, or set CALLSHEET_EMBED_URL to a server that has it"
        raise NotConfigured(f"what {MODEL_VARIABLE} names is no folder, and nothing is fetched; {advice}")
    pinned, digest = environ.get(DIGEST_VARIABLE, "").strip().lower(), _digest_at(folder, _newest(folder))
    if not pinned:
        advice = f"compare it with where you got it from, then set {DIGEST_VARIABLE}={digest}"
        raise NotConfigured(f"the model of {MODEL_VARIABLE} is not pinned; {advice}")
    if pinned != digest:
        advice = f"it is not the model that was pinned: get that one again, or change {DIGEST_VARIABLE}"
        raise NotConfigured(f"the files of {MODEL_VARIABLE} have the digest {digest}; {advice}")
    return LocalModel(folder, digest)


def digest_of(folder: Path) -> str:
    """One digest for all files of a folder and below, by their names and contents; hidden ones do not count."""
    lines = hashlib.sha256()
    for path in _files(folder):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        lines.update(f"{content}  ./{path.relative_to(folder).as_posix()}\n".encode())
    return lines.hexdigest()


def _files(folder: Path) -> list[Path]:
    inside = [path for path in folder.rglob("*") if path.is_file()]
    seen = [path for path in inside if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    return sorted(seen, key=lambda path: os.fsencode(f"./{path.relative_to(folder).as_posix()}"))


def _newest(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """What changes when a file does, without reading them all for every job."""
    return tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in _files(folder))


@cache
def _digest_at(folder: Path, _state: tuple[tuple[str, int, int], ...]) -> str:
    return digest_of(folder)


@cache
def _loaded(model: LocalModel) -> Any:
    """Loaded once: a second or so, and as much memory as its file is large."""
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
