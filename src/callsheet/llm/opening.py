"""Opens the store of passages that a URL names. A driver is loaded only when it is used."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from callsheet.kernel.errors import StoreError, UnknownStore

from .vectors import Vectors

SCHEMES = "sqlite:///file.db or postgresql://…"


@contextlib.asynccontextmanager
async def open_vectors(url: str) -> AsyncIterator[Vectors]:
    """The vectors at a URL, ready for use; raises UnknownStore, StoreUnavailable."""
    vectors = await _opened(url)
    try:
        yield vectors
    finally:
        await vectors.close()


async def _opened(url: str) -> Vectors:
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from .vectors_sqlite import SqliteVectors  # noqa: PLC0415 - see above

        return await SqliteVectors.open(url)
    if scheme in ("postgresql", "postgres"):
        try:
            from .vectors_postgres import PostgresVectors  # noqa: PLC0415
        except ModuleNotFoundError as error:
            advice = "pip install 'callsheet[postgres]'"
            raise StoreError(f"the driver for PostgreSQL is missing ({error.name}): {advice}") from error
        return await PostgresVectors.open(url)
    raise UnknownStore(f"passages cannot be kept at {scheme!r}; set CALLSHEET_VECTORS_URL to {SCHEMES}")
