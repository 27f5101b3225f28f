"""Builds outbox events for contracts, with an id and the sequence number of the job's event."""

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
    """Build the outbox event of a job's next state change, for the `outbox=` parameter of that command.

    `endpoint` is a registered endpoint's id, or a URL given in the job. `sequence` is the number of the job's next
    event, so that receivers can drop outdated events. Raises NotJson, and ValueError if `data` has a reserved member.
    """
    event_id = f"evt_{new_id().replace('-', '')}"
    ours = {"event_id": event_id, "type": type, "job_id": job.job_id, "sequence": job.event_seq + 1}
    if taken := OWN & data.keys():
        raise ValueError(f"{', '.join(sorted(taken))} cannot be given")
    return NewOutboxEvent(event_id, endpoint, encode({**ours, **data}))
