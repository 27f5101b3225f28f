"""The store, and a simulated network to each node. A real store with an in-memory database.

A request travels, is done in one go at the store's place, and its answer travels back. A `Fate` decides each call's
transport. Who asked may be dead when the answer comes: then nobody hears it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from callsheet.kernel.errors import StoreUnavailable
from callsheet.store.hints import _Receiver
from callsheet.store.protocol import Hint
from callsheet.store.sqlite.connection import Db, Target, _attempt, connect
from callsheet.store.sqlite.maintenance import migrate
from callsheet.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from .faults import Fate
    from .process import Process
    from .world import World

T = TypeVar("T")
MEMORY = Target(":memory:")


@functools.cache
def _empty_database() -> bytes:
    db = connect(MEMORY)
    migrate(db)
    return db.serialize()


class Inline:
    """Stands for a thread of the store: runs each piece of work inline, writes in one transaction."""

    def __init__(self, db: Db, *, writes: bool) -> None:
        self.db, self._writes = db, writes

    async def run(self, work: Callable[[Db], T]) -> T:
        """Run the work and commit, or re-raise its error and roll back."""
        if self._writes:
            self.db.execute("BEGIN IMMEDIATE")
        value, error = _attempt(self.db, work)
        if self._writes:
            self.db.execute("COMMIT" if error is None else "ROLLBACK")
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]


class SharedStore(SqliteStore):
    """The single store of a world. Its verbs never suspend, so each runs atomically."""

    def __init__(self, spread: Callable[[Hint], None]) -> None:
        super().__init__(MEMORY)
        self.db: Db = connect(MEMORY)
        self.db.deserialize(_empty_database())
        self._writer = Inline(self.db, writes=True)  # type: ignore[assignment]
        self._reader = Inline(self.db, writes=False)  # type: ignore[assignment]
        self._hints.send = spread  # type: ignore[method-assign,assignment]

    def do(self, verb: str, *args: Any, **options: Any) -> Any:
        """Run a verb now; raises what it raises."""
        try:
            getattr(self, verb)(*args, **options).send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError(f"{verb} waited for something")


class Wire:
    """What one process sees of the store."""

    batch = 8  # small, so that a few jobs are several batches
    streams = False
    durability = "none"

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb.startswith("_"):
            raise AttributeError(verb)
        return functools.partial(self._call, verb)

    async def door(self, *_: Any) -> Any:
        """Every job passes through the store."""
        return self._world.store.do("door", "", ())

    async def hints(self) -> AsyncIterator[Hint]:
        """What the network brings of the store's hints."""
        receiver = _Receiver()
        self._process.receivers.append(receiver)
        while True:
            yield await receiver.take()

    async def _call(self, verb: str, *args: Any, **options: Any) -> Any:
        loop = self._world.loop
        answer = loop.create_future()
        fate = self._world.faults.fate(self._process, verb, args)
        is_flight = verb == "settle" and any(settlement.event is not None for settlement in args[0])
        self._process.asking(is_flight)
        call = functools.partial(self._arrive, answer, fate, verb, args, options)
        loop.call_later(fate.there_s, call, context=Context())
        try:
            return await answer
        finally:
            self._process.heard_back(is_flight)

    def _arrive(self, answer: asyncio.Future[Any], fate: Fate, verb: str, args: Any, options: Any) -> None:
        """Deliver the request to the store, unless the connection is cut."""
        if fate.refusal is not None or self._process.is_cut or (answer.cancelled() and fate.is_dropped_with_caller):
            self._answer(answer, fate, verb, None, fate.refusal or StoreUnavailable("no way to the store"))
            return
        value, error = self._world.do(self._process, verb, args, options)
        if fate.again_s is not None:
            self._world.faults.counts["again"] += 1
            again = functools.partial(self._world.do, self._process, verb, args, options, is_repeated=True)
            self._world.loop.call_later(fate.again_s, again, context=Context())
        if fate.loses_answer:
            self._world.faults.counts["answer lost"] += 1
            value, error = None, StoreUnavailable("the connection broke before the answer came")
        self._answer(answer, fate, verb, value, error)

    def _answer(self, answer: asyncio.Future[Any], fate: Fate, verb: str, value: Any, error: Exception | None) -> None:
        back = functools.partial(self._resolve, answer, verb, value, error)
        self._world.loop.call_later(fate.back_s, back, context=self._process.context)

    def _resolve(self, answer: asyncio.Future[Any], verb: str, value: Any, error: Exception | None) -> None:
        """Deliver the answer; a cut connection delays it, then breaks."""
        if self._process.is_cut and error is None:
            value, error = None, StoreUnavailable("the connection was reset")
        if self._process.is_cut and self._process.is_silent:
            broken_job = functools.partial(self._resolve, answer, verb, value, error)
            self._world.loop.call_later(0.1, broken_job, context=self._process.context)
        elif answer.done():
            return
        elif error is not None:
            answer.set_exception(error)
        else:
            if verb == "claim":
                self._process.hears(value)
            answer.set_result(value)
