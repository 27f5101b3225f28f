"""The PostgreSQL store: many processes and machines on one database, also behind PgBouncer in transaction mode."""

from .store import PostgresStore

__all__ = ["PostgresStore"]
