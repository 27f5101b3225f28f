"""Messages of the transport: the id of a period in the queue, and whether a message still stands for its period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.job import Job, Status
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.kernel.settlement import Settlement

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

    from .wire import Wire


class Place(NamedTuple):
    """The location of a claimed job's pending message: the stream's key and the message's id."""

    stream: str
    message_id: str


class Message(NamedTuple):
    """A stream entry; `job_id` is empty if the entry makes no sense."""

    message_id: str
    job_id: str = ""
    enqueue_id: str = ""


def enqueue_id_of(job_id: str, claim_version: int) -> str:
    """Return the id of one period in the queue: `{job_id}.{claim_version}`, the version of the last claim, else 0."""
    return f"{job_id}.{claim_version}"


def enqueue_id_of_claimed(job: Job) -> str:
    """Return the id of the period that ended with the present claim of a running job."""
    return enqueue_id_of(job.job_id, job.claim_version - 1)


def ended_stay(settlement: Settlement) -> str | None:
    """Return the id of the period whose message a move makes useless; None if the job continues, or had no period."""
    if settlement.status is Status.RUNNING or settlement.from_status.terminal:
        return None
    began = settlement.claim_version - (settlement.from_status is Status.RUNNING)
    return enqueue_id_of(settlement.job_id, began)


def message_of(message_id: str, fields: Mapping[str, str]) -> Message:
    """Parse an entry with mistrust: any program can write to a stream."""
    job_id, enqueue_id = fields.get("job_id", ""), fields.get("enqueue_id", "")
    number = enqueue_id.removeprefix(f"{job_id}.")
    is_valid = IS_UUID(job_id) and number.isascii() and number.isdecimal()
    return Message(message_id, job_id, enqueue_id) if is_valid else Message(message_id)


def is_live(message: Message, queue: str, job: Job | None) -> bool:
    """Return whether the job is queued, or running, in this queue under the message's period."""
    if job is None or job.queue != queue or job.status.terminal:
        return False
    return message.enqueue_id == (
        enqueue_id_of_claimed(job) if job.status is Status.RUNNING else enqueue_id_of(job.job_id, job.claim_version)
    )


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
        valid_messages = [message for message in messages if message.job_id]
        jobs = await self._store.get([message.job_id for message in valid_messages]) if valid_messages else []
        by_id = {job.job_id: job for job in jobs if job is not None}
        verdicts = [(LIVE if is_live(m, queue, by_id.get(m.job_id)) else OVER, m) for m in messages]
        await self._weigh(queue, verdicts)
        return any(v == LIVE and by_id[m.job_id].status is Status.QUEUED for v, m in verdicts)

    async def _weigh(self, queue: str, verdicts: Sequence[tuple[str, Message]]) -> list[str]:
        arguments = [text for verdict, m in verdicts for text in (verdict, m.message_id, m.enqueue_id)]
        unknown: list[str] = await self._wire.run("weigh", queue, *arguments)
        return unknown
