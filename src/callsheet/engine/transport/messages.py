"""Messages of the transport: what names a stay of a job in its queue, and whether a message still stands for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.intake import IS_UUID
from callsheet.kernel.job import Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from callsheet.kernel.job import Job
    from callsheet.kernel.settlement import Settlement


class Place(NamedTuple):
    """Where the message of a claimed job is pending: the stream's key and the message's id."""

    stream: str
    message_id: str


class Message(NamedTuple):
    """One entry of a stream; `job_id` is empty when nobody can make sense of it."""

    message_id: str
    job_id: str = ""
    enqueue_id: str = ""


def enqueue_id_of(job_id: str, claim_version: int) -> str:
    """The name of a stay in the queue: of the one after that claim, 0 when there was none."""
    return f"{job_id}.{claim_version}"


def enqueue_id_of_claimed(job: Job) -> str:
    """The stay that ended with the present claim of a running job."""
    return enqueue_id_of(job.job_id, job.claim_version - 1)


def ended_stay(settlement: Settlement) -> str | None:
    """The stay whose message nobody needs after a move; None when the job goes on, or had no stay."""
    if settlement.status is Status.RUNNING or settlement.from_status.terminal:
        return None
    began = settlement.claim_version - (settlement.from_status is Status.RUNNING)
    return enqueue_id_of(settlement.job_id, began)


def message_of(message_id: str, fields: Mapping[str, str]) -> Message:
    """An entry, read with mistrust: anybody can write to a stream."""
    job_id, enqueue_id = fields.get("job_id", ""), fields.get("enqueue_id", "")
    number = enqueue_id.removeprefix(f"{job_id}.")
    known = IS_UUID(job_id) and number.isascii() and number.isdecimal()
    return Message(message_id, job_id, enqueue_id) if known else Message(message_id)


def is_live(message: Message, queue: str, job: Job | None) -> bool:
    """True while the job waits in this queue, or runs, under the message's stay."""
    if job is None or job.queue != queue or job.status.terminal:
        return False
    return message.enqueue_id == (
        enqueue_id_of_claimed(job) if job.status is Status.RUNNING else enqueue_id_of(job.job_id, job.claim_version)
    )
