"""SQL in files: named blocks, read once. A block begins with `-- name: verb` and runs to the next block."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple


class Migration(NamedTuple):
    """One numbered step of a schema."""

    number: int
    name: str
    sql: str


class Queries:
    """The named blocks of a package's `queries.sql`, or of another SQL file in the package, as attributes."""

    def __init__(self, package: str, file: str = "queries.sql") -> None:
        self._blocks: dict[str, str] = {}
        text = files(package).joinpath(file).read_text("utf-8")
        for block in text.split("-- name: ")[1:]:
            name, _, sql = block.partition("\n")
            self._blocks[name.strip()] = sql.strip()

    def __getattr__(self, name: str) -> str:
        try:
            return self._blocks[name]
        except KeyError:
            raise AttributeError(name) from None

    def names(self) -> list[str]:
        """Return the names of all blocks."""
        return list(self._blocks)


def migrations_of(package: str) -> list[Migration]:
    """Return the package's migrations in order; migrations are forward-only and additive."""
    folder = files(package).joinpath("migrations")
    entries = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted(Migration(int(e.name[:4]), e.name.removesuffix(".sql"), e.read_text("utf-8")) for e in entries)
