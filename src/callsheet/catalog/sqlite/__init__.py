"""The catalogue in a SQLite file, normally that of the jobs."""

from .store import SqliteCatalog

__all__ = ["SqliteCatalog"]
