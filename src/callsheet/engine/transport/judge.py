"""Decide by the database which messages stand for a queued or running job; acknowledge and delete all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.job import Status

from .messages import Message, is_live

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.store.protocol import Store

    from .wire import Wire

LIVE, OVER, UNKNOWN = "live", "over", ""


class Judge:
    """Query the database about messages that Redis itself cannot confirm, or about all given messages on request."""

    def __init__(self, wire: Wire, store: Store) -> None:
        self._wire = wire
        self._store = store

    async def look(self, queue: str, messages: Sequence[Message]) -> None:
        """Handle new messages: delete garbage and duplicates, query the database about messages of other senders."""
        verdicts = [(UNKNOWN if message.job_id else OVER, message) for message in messages]
        unknown = set(await self._weigh(queue, verdicts))
        if unknown:
            await self.ask(queue, [message for message in messages if message.message_id in unknown])

    async def ask(self, queue: str, messages: Sequence[Message]) -> bool:
        """Query the database about each message; return whether one of the jobs is still queued."""
        if not messages:
            return False
        known = [message for message in messages if message.job_id]
        jobs = await self._store.get([message.job_id for message in known]) if known else []
        by_id = {job.job_id: job for job in jobs if job is not None}
        verdicts = [(LIVE if is_live(m, queue, by_id.get(m.job_id)) else OVER, m) for m in messages]
        await self._weigh(queue, verdicts)
        return any(v == LIVE and by_id[m.job_id].status is Status.QUEUED for v, m in verdicts)

    async def _weigh(self, queue: str, verdicts: Sequence[tuple[str, Message]]) -> list[str]:
        told = [text for verdict, m in verdicts for text in (verdict, m.message_id, m.enqueue_id)]
        unknown: list[str] = await self._wire.run("weigh", queue, *told)
        return unknown
