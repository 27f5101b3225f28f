"""Relay and audit: publish missing messages of ready jobs, and remove messages without a purpose.

Any number of processes may run this. Redis gives each turn of a chore to one process, so that the cost does not grow
with the number of processes: at most `RELAY` ready jobs a second, and `AUDIT` messages of each stream.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import StoreError
from callsheet.store.protocol import Hint, ReadyJob, Store
from callsheet.store.tasks import wait

from .messages import Judge, Message, enqueue_id_of, message_of
from .sender import BATCH, Kind

if TYPE_CHECKING:
    from callsheet.store.hints import Hints

    from .wire import Wire

log = logging.getLogger("callsheet.transport")
RELAY = 2_000
AUDIT = 100
AUDIT_STREAMS = 20
FORGET_MS = 3_600_000
START = "0-0"


class Pace(NamedTuple):
    """The intervals of the chores, and the age of an abandoned message or process."""

    relay_s: float = 1.0
    audit_s: float = 5.0
    idle_ms: int = 60_000


class Maintenance:
    """The chores of one process; each turn continues from the last position in the line and in each stream."""

    def __init__(self, wire: Wire, store: Store, judge: Judge, hints: Hints, pace: Pace) -> None:
        self._wire = wire
        self._store = store
        self._judge = judge
        self._hints = hints
        self._pace = pace
        self._line: str | None = None
        self._pending: dict[str, str] = {}  # cursors of XAUTOCLAIM, by queue
        self._positions: dict[str, str] = {}
        self._queues_to_audit: list[str] = []
        self._forget_cursor = "0"

    async def run(self) -> None:
        """Run the chores until cancelled, at jittered times."""
        clock = asyncio.get_running_loop().time
        audit_at = 0.0
        while not self._wire.stopping.is_set():
            await wait(self._wire.stopping, self._pace.relay_s * random.uniform(0.75, 1.25))  # noqa: S311 - jitter
            try:
                if await self._my_turn("relay", self._pace.relay_s):
                    await self.relay()
                if clock() >= audit_at:
                    audit_at = clock() + self._pace.audit_s
                    if await self._my_turn("audit", self._pace.audit_s):
                        await self.audit()
            except StoreError as error:
                log.debug("the transport's chores wait: %s", error)
            except Exception:
                log.exception("a chore of the transport failed; the next turn tries again")

    async def relay(self) -> int:
        """Publish ready jobs that lack a message, from the end of the last turn; return the number of messages."""
        count = seen = 0
        while seen < RELAY:
            page = await self._store.ready_jobs(BATCH, cursor=self._line)
            self._line = page.cursor
            seen += BATCH
            count += await self._publish(page.jobs)
            if page.cursor is None:
                break
        return count

    async def _publish(self, jobs: Sequence[ReadyJob]) -> int:
        steps = [(Kind.PUBLISH, enqueue_id_of(job.job_id, job.claim_version), job.job_id, job.queue) for job in jobs]
        if not steps:
            return 0
        answers = await self._wire.run("carry", *[text for step in steps for text in step])
        messages = [
            (job.queue, Message(message_id, job.job_id, step[1]))
            for job, step, message_id in zip(jobs, steps, answers, strict=True)
            if message_id
        ]
        # A job may have been claimed and ended by now, with its acknowledgement before the message.
        for queue, group in groupby(messages, key=lambda entry: entry[0]):
            await self._judge.ask(queue, [message for _, message in group])
        return len(messages)

    async def audit(self) -> None:
        """Check abandoned messages of some streams, and remove consumers that are gone."""
        if not self._queues_to_audit:
            self._queues_to_audit = sorted(await self._wire.queues())
        queues, self._queues_to_audit = self._queues_to_audit[:AUDIT_STREAMS], self._queues_to_audit[AUDIT_STREAMS:]
        for queue in queues:
            waits = await self._judge.ask(queue, await self._reclaim(queue))
            waits |= await self._judge.ask(queue, await self._left_alone(queue))
            if waits:
                self._hints.send(Hint(frozenset({queue})))
            await self._wire.run("tidy", queue, FORGET_MS)
        self._forget_cursor = await self._wire.run("forget", self._forget_cursor)

    async def _reclaim(self, queue: str) -> list[Message]:
        """Return pending messages whose consumers abandoned them; this process owns the messages now."""
        cursor = self._pending.get(queue, START)
        cursor, *entries = await self._wire.run("reclaim", queue, self._pace.idle_ms, cursor, AUDIT)
        self._pending[queue] = cursor
        return [message_of(i, dict(zip(fields[::2], fields[1::2], strict=False))) for i, *fields in entries]

    async def _left_alone(self, queue: str) -> list[Message]:
        """Return the next messages of a stream, delivered or not, that are older than the idle limit."""
        messages = await self._wire.old(queue, self._positions.get(queue, START), AUDIT)
        latest_ms = await self._wire.now() - self._pace.idle_ms
        old = [message for message in messages if int(message.message_id.partition("-")[0]) <= latest_ms]
        self._positions[queue] = old[-1].message_id if len(old) == AUDIT else START
        return old

    async def _my_turn(self, chore: str, turn_s: float) -> bool:
        return bool(await self._wire.run("turn", chore, max(1, round(turn_s * 700)), self._pace.idle_ms))
