"""Messages of the transport: the id of a period in the queue, and whether a message still stands for its period."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.job import Status
from callsheet.kernel.new_jobs import IS_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from callsheet.kernel.job import Job
    from callsheet.kernel.settlement import Settlement


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
    known = IS_UUID(job_id) and number.isascii() and number.isdecimal()
    return Message(message_id, job_id, enqueue_id) if known else Message(message_id)


def is_live(message: Message, queue: str, job: Job | None) -> bool:
    """Return whether the job is queued, or running, in this queue under the message's period."""
    if job is None or job.queue != queue or job.status.terminal:
        return False
    return message.enqueue_id == (
        enqueue_id_of_claimed(job) if job.status is Status.RUNNING else enqueue_id_of(job.job_id, job.claim_version)
    )
