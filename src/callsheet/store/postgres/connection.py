"""The pool of connections, transactions with retries, and the translation of driver errors.

No verb needs session state, so that PgBouncer in transaction mode serves as well. The settings of a direct connection
only make the planner prefer indexes while the tables' statistics are young, and save planning work.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from callsheet.kernel.errors import (
    CallsheetError,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UnknownStore,
    is_from_driver,
)
from callsheet.store.queries import Queries
from callsheet.store.tasks import end

T = TypeVar("T")
Q = Queries("callsheet.store.postgres")
Row = Any  # an asyncpg.Record: a tuple in all that we do with it
CONNECT_S = 10.0
TRIES = 6
IDLE_S = 0.2
AT_HAND_S = 1.0
_ARRAYS = {  # type numbers of arrays and of their elements, the same on every server
    1000: ("_bool", 16),
    1001: ("_bytea", 17),
    1007: ("_int4", 23),
    1009: ("_text", 25),
    1016: ("_int8", 20),
    1021: ("_float4", 700),
    1022: ("_float8", 701),
    2951: ("_uuid", 2950),
}
_STATEMENT = SimpleNamespace(name="none")  # takes the place of the driver's statement, which was not needed
LOOK_ROUNDS = 6  # turns of the event loop until it has seen all idle connections that the server closed
SETTINGS = {
    "application_name": "callsheet",
    "jit": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "lock_timeout": "15s",
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
}
COMMAND_S = 60.0

RETRYABLE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
OF_THE_STATEMENT = frozenset({"0A", "21", "22", "23", "26", "2F", "34", "38", "39", "3F", "42", "44", "54", "P0"})
NO_CONNECTION = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
TRUE = ("1", "true", "yes", "on")


class Session(asyncpg.Connection):
    """A connection without session state, which needs no reset between uses: this saves one round trip.

    The driver asks every new connection for the definition of integer arrays, 20 ms before the first claim and
    settlement. Our statements use only array types with the same definition on all servers, so the driver gets a
    constant answer.
    """

    def get_reset_query(self) -> str:
        """Return an empty query: there is no session state to reset."""
        return ""

    async def _introspect_types(self, typeoids: Iterable[int], *more: Any) -> tuple[Any, Any]:
        if unknown_types := set(typeoids) - _ARRAYS.keys():
            return await super()._introspect_types(unknown_types, *more)  # type: ignore[misc,no-any-return] # the driver's own
        return [_array(oid) for oid in typeoids], _STATEMENT


def _array(oid: int) -> Mapping[str, object]:
    """Return the row that the driver's own type query would return."""
    name, element = _ARRAYS[oid]
    none = dict.fromkeys(("basetype", "range_subtype", "attrtypoids", "attrnames"))
    return {"oid": oid, "ns": "pg_catalog", "name": name, "kind": b"b", "elemtype": element, "elemdelim": b",", **none}


@contextlib.contextmanager
def edge() -> Iterator[None]:
    """Translate driver errors: temporary ones to StoreUnavailable, others to StoreError; some pass through.

    Unique violations, deadlocks and serialization errors pass through to the callers.
    """
    try:
        yield
    except asyncpg.InvalidAuthorizationSpecificationError as error:
        raise StoreRefused(f"PostgreSQL does not let this user in: {error}") from error
    except (asyncpg.UniqueViolationError, *RETRYABLE):
        raise
    except asyncpg.PostgresError as error:
        if (error.sqlstate or "")[:2] in OF_THE_STATEMENT:
            raise StoreError(f"PostgreSQL refused a statement: {error}") from error
        raise StoreUnavailable(f"PostgreSQL cannot serve now: {str(error) or type(error).__name__}") from error
    except CallsheetError:
        raise
    except OSError as error:
        raise StoreUnavailable(f"PostgreSQL cannot be reached now: {str(error) or type(error).__name__}") from error
    except Exception as error:
        if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):  # a value that it cannot write
            raise
        if not (isinstance(error, NO_CONNECTION) or is_from_driver(error, "asyncpg")):
            raise
        raise StoreUnavailable(f"the connection to PostgreSQL broke ({type(error).__name__}: {error})") from error


async def connect(target: Target, dsn: str | None = None, *, statements: int = 0) -> Session:
    """Return a connection outside the pool; raises StoreUnavailable."""
    with edge():
        session: Session = await asyncpg.connect(
            dsn or target.dsn, timeout=CONNECT_S, statement_cache_size=statements, connection_class=Session
        )
    return session


async def _prepare(session: Any) -> None:
    """Read UUIDs as plain text, as in our records; the text codec serves arrays too and costs about 1 µs a value."""
    await session.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")


class Database:
    """A small pool that replaces dead connections.

    Connections used within the last second stay at hand: the driver's pool creates a task for every release and delays
    the result until that task ends, a third of a short statement's time.
    """

    settings: ClassVar[Mapping[str, str]] = SETTINGS
    transaction_settings: ClassVar[str] = Q.plan_by_index  # behind a pooler, where session settings do not last

    def __init__(self, target: Target) -> None:
        self.target = target
        self._pool: asyncpg.Pool[Any] | None = None
        self._waiting = 0
        self._at_hand: deque[tuple[float, Any]] = deque()  # the connection used last is at the right end
        self._tidying: asyncio.Task[None] | None = None
        self._used_at = 0.0

    async def open(self) -> None:
        """Create the pool; raises StoreUnavailable."""
        is_pooled = self.target.is_pooled
        with edge():
            self._pool = await asyncpg.create_pool(
                self.target.dsn,
                min_size=0,
                max_size=self.target.pool_size,
                init=_prepare,
                timeout=CONNECT_S,
                command_timeout=COMMAND_S,
                connection_class=Session,
                statement_cache_size=0 if is_pooled else 200,
                max_cached_statement_lifetime=0,
                max_inactive_connection_lifetime=300,
                server_settings=None if is_pooled else dict(self.settings),
            )

    async def close(self) -> None:
        """Close all connections; a hanging connection is cut after some seconds."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(5):
                    if self._tidying is not None:
                        await end(self._tidying)
                    while self._at_hand:
                        await pool.release(self._at_hand.pop()[1])
                    await pool.close()
            except NO_CONNECTION:
                pool.terminate()
            finally:
                self._at_hand.clear()

    async def fetch(self, sql: str, *parameters: object) -> list[Row]:
        """Run one statement and return its rows after commit."""

        async def once() -> list[Row]:
            async with self._session() as session:
                rows: list[Row] = await session.fetch(sql, *parameters)
                return rows

        return await _again_on_deadlock(once)

    async def transact(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run `work` in one transaction; after a deadlock `work` runs again from its start."""

        async def once() -> T:
            async with self._session() as session, session.transaction():
                if self.target.is_pooled:
                    await session.execute(self.transaction_settings)
                return await work(session)

        return await _again_on_deadlock(once)

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        pool = self._pool
        if pool is None:
            raise StoreUnavailable("the store is not open; call open() first")
        if time.monotonic() - self._used_at > IDLE_S:
            for _ in range(LOOK_ROUNDS):
                await asyncio.sleep(0)
        self._used_at = time.monotonic()
        with edge():
            session = self._take_at_hand() or await self._acquire(pool)
            try:
                yield session
            except BaseException:
                await pool.release(session, timeout=CONNECT_S)
                raise
            if self._waiting or self._pool is not pool:
                await pool.release(session, timeout=CONNECT_S)
            else:
                self._at_hand.append((time.monotonic(), session))
                if self._tidying is None or self._tidying.done():
                    self._tidying = asyncio.create_task(self._tidy(pool), name="callsheet-connections")

    async def _acquire(self, pool: asyncpg.Pool[Any]) -> Any:
        self._waiting += 1  # from now on released connections go to the pool, where this caller waits
        try:
            async with asyncio.timeout(CONNECT_S):  # the pool's own timeout makes a task of each use
                return await pool.acquire()
        finally:
            self._waiting -= 1

    def _take_at_hand(self) -> Any | None:
        while self._at_hand:
            _, session = self._at_hand.pop()
            with contextlib.suppress(asyncpg.InterfaceError):  # it has left the pool already
                if not session.is_closed():
                    return session
                session.terminate()
        return None

    async def _tidy(self, pool: asyncpg.Pool[Any]) -> None:
        """Return connections unused for a second to the pool, which closes them in time."""
        while self._at_hand:
            await asyncio.sleep(AT_HAND_S)
            while self._at_hand and self._at_hand[0][0] < time.monotonic() - AT_HAND_S:
                with contextlib.suppress(*NO_CONNECTION):
                    await pool.release(self._at_hand.popleft()[1], timeout=CONNECT_S)


async def _again_on_deadlock(once: Callable[[], Awaitable[T]]) -> T:
    """Run `once` again after a deadlock: the server undid everything before it reported the deadlock."""
    for tries in range(1, TRIES):
        try:
            return await once()
        except RETRYABLE:
            await asyncio.sleep(0.002 * 2**tries)
    try:
        return await once()
    except RETRYABLE as error:
        raise StoreUnavailable(f"PostgreSQL found {TRIES} deadlocks in a row ({error}); try again") from error


class Target(NamedTuple):
    """How to reach the database. `direct_dsn` is for LISTEN; None behind a transaction pooler."""

    dsn: str
    direct_dsn: str | None
    is_pooled: bool = False
    pool_size: int = 5

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Parse `postgresql://…`; our options are `pgbouncer=true`, with it `direct_url=…`, and `pool_size=…`.

        Raises UnknownStore.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        is_pooled = options.pop("pgbouncer", "").lower() in TRUE
        direct = options.pop("direct_url", None)
        size = options.pop("pool_size", "5")
        if parts.scheme not in ("postgresql", "postgres"):
            raise UnknownStore(f"{parts.scheme!r} is not PostgreSQL; use postgresql://user@host:5432/database")
        if not size.isdigit() or int(size) < 1:
            raise UnknownStore(f"pool_size={size!r} is not a number of connections; use 1 or more")
        dsn = parts._replace(query=urlencode(options)).geturl()
        return cls(dsn, direct or (None if is_pooled else dsn), is_pooled, int(size))
