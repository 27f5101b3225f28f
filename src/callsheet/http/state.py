"""State shared by all requests of one server process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from callsheet.engine.depths import Depths
from callsheet.engine.quotas import Quotas

from .audit import Audit
from .batcher import EnqueueBatcher
from .buckets import RecentCache
from .limits import FailedSignIns, Limits, Rates, Streams, WorkerNames
from .proxies import NOBODY
from .sessions import Sessions
from .worker_registry import WorkerRegistry

if TYPE_CHECKING:
    from starlette.requests import Request

    from callsheet.catalog.protocol import Catalog
    from callsheet.engine import Engine
    from callsheet.engine.operations import Operations
    from callsheet.net.guard import StorageRules
    from callsheet.objects import Objects
    from callsheet.outbox import Endpoints

    from .keys import ApiKeys, Principal
    from .sse import EventStream


T = TypeVar("T")


class ServerState:
    """The engine, caches and counters of one server process. `keys` None: every client is treated as an admin."""

    def __init__(self, engine: Engine, keys: ApiKeys | None, limits: Limits, job_ttl_s: int) -> None:
        self.engine = engine
        self.keys = keys
        self.sessions = Sessions(engine.store, keys)
        self.workers = WorkerRegistry(engine.store)
        self.objects: Objects | None = None
        self.catalog: Catalog | None = None
        self.limits = limits
        self.job_ttl_s = job_ttl_s
        self.rates = Rates(limits.rate)
        self.failed_sign_ins = FailedSignIns()
        self.proxies = NOBODY
        self.streams = Streams(limits.streams)
        self.audit = Audit(engine.store)
        self.workers.listeners.append(self.audit.heard_of)
        self.quotas = Quotas(engine.store, limits.share)
        self.batcher = EnqueueBatcher(engine, limits.queue_depth, self.quotas)
        self.recounted_tenants: RecentCache[bool] = RecentCache()  # those whose stored files were counted anew
        self.open: set[EventStream] = set()
        self.depths = Depths(lambda: engine)
        self.operations: Operations | None = None  # the runner of bulk operations, None if other processes run them
        self.endpoints: Endpoints | None = None  # webhook endpoints, None if this server has no webhooks
        self.storage_rules: StorageRules | None = None  # which storages requests may name; None: the webhooks' rules
        self.worker_names = WorkerNames()
        self.slots: dict[object, object] = {}  # values of `PerServer`
        self.on_stop: list[Callable[[], None]] = []
        self.stopping = asyncio.Event()
        self.reader_validity: RecentCache[bool] = RecentCache()  # by key and session of a stream's reader
        self.sessions.on_end.append(self.end_streams_of_session)
        if keys is not None:
            keys.on_revoke.append(self.end_streams_of_key)

    async def holds(self, who: Principal) -> bool:
        """Return whether the caller's key and session are still valid."""
        return self.keys is None or (await self.keys.holds(who) and await self.sessions.holds(who))

    def end_streams_of_key(self, key_id: str) -> None:
        """End all streams opened with a key."""
        for stream in [stream for stream in self.open if stream.who.key_id == key_id]:
            stream.end()

    def end_streams_of_session(self, session_id: str) -> None:
        """End all streams opened with a session."""
        for stream in [stream for stream in self.open if stream.who.session_id == session_id]:
            stream.end()

    def stop(self) -> None:
        """End all streams; their clients reconnect, to another process. Repeated calls are allowed."""
        self.stopping.set()
        for let_go in self.on_stop:
            let_go()
        for stream in list(self.open):
            stream.end()


class PerServer(Generic[T]):
    """A typed slot for what the routes of one module share: a value per server process, created on first use."""

    def __init__(self, create: Callable[[ServerState], T]) -> None:
        self._create = create

    def of(self, state: ServerState) -> T:
        """Return the server's value, created if the slot is empty."""
        if self not in state.slots:
            state.slots[self] = self._create(state)
        return cast("T", state.slots[self])

    def get(self, state: ServerState) -> T | None:
        """Return the server's value, None if the slot is empty."""
        return cast("T | None", state.slots.get(self))

    def put(self, state: ServerState, value: T) -> None:
        """Fill the server's slot."""
        state.slots[self] = value


def state_of(request: Request) -> ServerState:
    """Return the ServerState of the app that serves a request."""
    state: ServerState = request.app.state.server_state
    return state
