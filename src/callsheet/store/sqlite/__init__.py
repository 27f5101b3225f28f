"""The embedded store: one SQLite (or libSQL) file, one writer thread, no server."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
