"""The names of events that are the system's own. This is the one list: no task, worker or route has another.

A task may name its own events as it likes (`token`, `frame.read`), but not with a word that a reader could take for
a move of the job: the events that moves write, and every contract's word for a status.
"""

from __future__ import annotations

from .contracts import CONTRACTS
from .errors import InvalidInput
from .job import Outcome, Status

TERMINAL_EVENTS = frozenset({"done", "error", "canceled"})
"""Types of events after which nothing more comes."""

MOVES = TERMINAL_EVENTS | {
    "queued", "running", "stage", "progress", "checkpoint", "refreshed", "retrying", "released", "lease_lost",
    "cancel_requested", "requeued", "waiting",
}  # fmt: skip
"""Types of events that a move writes, and nothing else may."""

WORDS_OF_MOVES = frozenset(
    {
        *Status,
        *Outcome,
        *(word.lower() for contract in CONTRACTS.values() for word in contract.words.values()),
        *("cancelled", "cancel", "complete", "completed", "success", "fail", "failure", "retry"),
    }
)
"""Words for statuses and ends: no event has them for a type, but a reader would believe one that had."""

OWN_EVENTS = MOVES | WORDS_OF_MOVES | {"log", "hello", "reset"}
"""Types that a task or a worker may not give to an event of its own."""


def check_own(event_type: str) -> None:
    """Raise InvalidInput for a type of event that a task or a worker may not use: others would take it for a fact.

    Capitals and the prefix of webhooks change nothing: `Job.Failed` is refused as `failed` is; `frame.done` is yours.
    """
    word = event_type.lower().removeprefix("job.")
    if word in OWN_EVENTS:
        raise InvalidInput(f"type: {event_type!r} is an event of the system's own; choose another name: 'my_{word}'")
