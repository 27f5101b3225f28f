"""The complete list of reserved event types: the system itself writes them, and tasks may not.

A task may name its own events freely (`token`, `frame.read`), but not with a word that a reader could mistake for a
move of the job: the event types of moves, and every contract's word for a status.
"""

from __future__ import annotations

from .contracts import CONTRACTS
from .errors import InvalidInput
from .job import Outcome, Status

TERMINAL_EVENTS = frozenset({"done", "error", "canceled"})
"""Event types that are the last event of a job."""

MOVES = TERMINAL_EVENTS | {
    "queued", "running", "stage", "progress", "checkpoint", "refreshed", "retrying", "released", "lease_lost",
    "cancel_requested", "requeued", "waiting",
}  # fmt: skip
"""Event types that moves write; tasks and workers may not use them."""

WORDS_OF_MOVES = frozenset(
    {
        *Status,
        *Outcome,
        *(word.lower() for contract in CONTRACTS.values() for word in contract.words.values()),
        *("cancelled", "cancel", "complete", "completed", "success", "fail", "failure", "retry"),
    }
)
"""Words for statuses and outcomes. No event has such a type; a reader would believe an event that had."""

OWN_EVENTS = MOVES | WORDS_OF_MOVES | {"log", "hello", "reset"}
"""Event types that a task or a worker may not use."""


def check_own(event_type: str) -> None:
    """Raise InvalidInput for a reserved event type: readers would mistake the task's event for a move of the job.

    Capitals and the webhook prefix are ignored: `Job.Failed` is refused like `failed`; `frame.done` is allowed.
    """
    word = event_type.lower().removeprefix("job.")
    if word in OWN_EVENTS:
        raise InvalidInput(f"type: {event_type!r} is an event of the system's own; choose another name: 'my_{word}'")
