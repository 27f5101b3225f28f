"""Options of a deliverer. Defaults follow the contract if specified there."""

from __future__ import annotations

from typing import NamedTuple

from callsheet.net.guarded_client import Limits

MAX_BATCH = 25


class DeliveryOptions(NamedTuple):
    """A deliverer holds up to `batch` claimed events and runs up to `concurrency` attempts.

    `per_requester` None limits a requester to all slots but one while other requesters wait, else to all slots.
    `drain_s` is the time that running attempts get at a stop.
    """

    batch: int = 10
    concurrency: int = 5
    per_endpoint: int = 4
    per_requester: int | None = None
    poll_ms: tuple[int, int] = (500, 1_500)
    lease_ms: int = 60_000
    drain_s: float = 1.5
    limits: Limits = Limits()

    @property
    def held(self) -> int:
        """Return the maximum of claimed events: the batch size (1 to 25), or `concurrency` if larger."""
        return max(min(max(1, self.batch), MAX_BATCH), self.concurrency)
