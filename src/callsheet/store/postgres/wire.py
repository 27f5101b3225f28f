"""Wake-ups between processes: one direct connection that listens and notifies at once, then pauses for 10 ms.

Notices stay off the write path, because NOTIFY takes a lock that all committing sessions share. Without LISTEN
(PgBouncer, a lost connection) receivers get a hint for anything every 250 ms.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from typing import Any

from callsheet.kernel.errors import StoreError
from callsheet.store.hints import ANY_JOB, Hints, merge
from callsheet.store.protocol import Hint
from callsheet.store.queries import Queries
from callsheet.store.tasks import end

from .connection import Session, Target, connect, edge

Q = Queries("callsheet.store.postgres")
CHANNEL = "callsheet"
COALESCE_S = 0.01
MANY_COALESCE_S = 0.05
HERE_FIRST_S = 0.003  # a worker in this process has begun its claim by then, and need not share the cores with a notice
MAX_BYTES = 7_000
MANY = 150  # names that fit into one notice; a longer list becomes "any"
KEEPALIVE_S = 5.0
POLL_S = 0.25
log = logging.getLogger("callsheet.postgres")


class Wire:
    """Hints of this process at once, hints of other processes through the database."""

    def __init__(self, target: Target) -> None:
        self.local = Hints()
        self._target = target
        self._name = uuid.uuid4().hex[:12]
        self._outgoing: Hint | None = None
        self._quiet_until = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start listening in the background, until `stop`; a second call has no effect."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="callsheet-hints")

    async def stop(self) -> None:
        """Stop listening. May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            await end(task)

    def send(self, hint: Hint) -> None:
        """Wake this process now and other processes soon."""
        self.start()
        self.local.send(hint)
        self._outgoing = hint if self._outgoing is None else merge(self._outgoing, hint)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._on_connect()
            except StoreError as error:
                log.debug("hints are polled for until PostgreSQL can be heard again: %s", error)
            except Exception:
                log.exception("hints are polled for; listening begins anew")
            self.local.send(Hint())
            await asyncio.sleep(POLL_S)

    async def _on_connect(self) -> None:
        """Listen and notify until the connection is lost; begins with a hint for anything, as notices may be lost."""
        listens = self._target.direct_dsn is not None
        session = await connect(self._target, self._target.direct_dsn, statements=10 if listens else 0)
        try:
            with edge():
                if listens:
                    await session.add_listener(CHANNEL, self._on_notice)
                session.add_termination_listener(lambda _: self._wake.set())
                self.local.send(Hint())
                while True:
                    await self._turn(session, KEEPALIVE_S if listens else POLL_S, listens=listens)
        finally:
            session.terminate()

    async def _turn(self, session: Session, patience_s: float, *, listens: bool) -> None:
        try:
            async with asyncio.timeout(patience_s):  # wait_for of Python 3.11 can swallow a cancellation
                await self._wake.wait()
        except TimeoutError:
            if listens:
                await session.execute(Q.keepalive, timeout=KEEPALIVE_S)
            else:
                self.local.send(Hint())
            return
        here_first_s = HERE_FIRST_S if self.local.has_receivers else 0.0
        await asyncio.sleep(max(here_first_s, self._quiet_until - time.monotonic()))
        self._wake.clear()
        hint, self._outgoing = self._outgoing or Hint(), None
        many = len(hint.jobs) > MANY or "*" in hint.jobs
        self._quiet_until = time.monotonic() + (MANY_COALESCE_S if many else COALESCE_S)
        await session.fetch(
            Q.notify, self._payload_of(Hint(hint.queues, ANY_JOB) if many else hint), timeout=KEEPALIVE_S
        )

    def _payload_of(self, hint: Hint) -> str:
        text = json.dumps([self._name, sorted(hint.queues), sorted(hint.jobs)], separators=(",", ":"))
        return text if len(text) < MAX_BYTES else json.dumps([self._name, [], []])

    def _on_notice(self, _session: Any, _pid: int, _channel: str, payload: Any) -> None:
        try:
            name, queues, jobs = json.loads(payload)
            hint = Hint(frozenset(queues), frozenset(jobs))
        except (ValueError, TypeError):
            name, hint = "", Hint()
        if name != self._name:
            self.local.send(hint)
