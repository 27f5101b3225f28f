"""The Redis Streams store: the public data model of the 001 contract, one Lua script per verb."""

from .store import RedisStore

__all__ = ["RedisStore"]
