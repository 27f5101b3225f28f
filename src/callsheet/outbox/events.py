"""What a contract puts into the outbox: an event with its id and its place among the events of its job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from callsheet.engine.ids import new_id
from callsheet.kernel.job import NewOutboxEvent
from callsheet.kernel.wire import encode

if TYPE_CHECKING:
    from callsheet.kernel.job import Job

OWN = frozenset({"event_id", "type", "job_id", "sequence"})


def job_event(job: Job, endpoint: str, type: str, data: Mapping[str, Any]) -> NewOutboxEvent:
    """An event of a job's next move, for `outbox=` of the command that makes it.

    `endpoint` is a registered endpoint's id, or a URL that the job carries. `sequence` is the number of the move's own
    event, so that a receiver can drop what is older than what it has. Raises NotJson; `data` cannot name our members.
    """
    event_id = f"evt_{new_id().replace('-', '')}"
    ours = {"event_id": event_id, "type": type, "job_id": job.job_id, "sequence": job.event_seq + 1}
    if taken := OWN & data.keys():
        raise ValueError(f"{', '.join(sorted(taken))} cannot be given")
    return NewOutboxEvent(event_id, endpoint, encode({**ours, **data}))
