"""The PostgreSQL store: many processes and machines on one database, also through PgBouncer."""

from .store import PostgresStore

__all__ = ["PostgresStore"]
