"""How a deliverer works. The defaults are the contract's, where it names any."""

from __future__ import annotations

from typing import NamedTuple

from .answers import Limits

MAX_BATCH = 25


class DeliveryOptions(NamedTuple):
    """`batch` events are held at once, `concurrency` of them under way.

    `per_requester` None: one less than there are slots while others wait, else all of them. `drain_s`: a stop waits so
    long for what is under way.
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
        """How many are held at once: a batch, or what the slots need if they are more."""
        return max(min(max(1, self.batch), MAX_BATCH), self.concurrency)
