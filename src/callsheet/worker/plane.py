"""What a worker needs of the place where its jobs are: an `Engine` in this process, or a server far away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from callsheet.kernel.errors import Refused

if TYPE_CHECKING:
    from callsheet.engine.resuming import Steps
    from callsheet.kernel.job import Claim, Job
    from callsheet.kernel.settlement import Settlement
    from callsheet.store.protocol import Beat, ClaimRequest, Settled


class PlaneStore(Protocol):
    """What a worker reads of a store."""

    @property
    def batch(self) -> int:
        """How many jobs are best claimed or settled at once."""
        ...


class Plane(Protocol):
    """Where jobs are claimed and settled."""

    @property
    def store(self) -> PlaneStore:
        """What can be read."""
        ...

    async def claim(self, request: ClaimRequest) -> list[Job]:
        """Take jobs for a worker."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Apply moves; raises PartlyRefused when some are refused for another reason than a lost claim."""
        ...

    async def steps(self, job: Job) -> Steps:
        """The steps that a held job may go on from, its own and those of the jobs that it resumes."""
        ...

    async def get(self, job_id: str) -> Job:
        """One job; raises JobNotFound."""
        ...


class Beats(Protocol):
    """What heartbeats need: a connection of their own."""

    async def open(self) -> object:
        """Connect."""
        ...

    async def heartbeat(self, claims: Sequence[Claim], *, lease_ms: int) -> list[Beat]:
        """Extend leases; the answers say which are lost and which are to be cancelled."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...


class PartlyRefused(Refused):
    """Of some settlements each has an answer of its own: what became of it, or why it was refused."""

    code = "partly_refused"

    def __init__(self, answers: Sequence[Settled | Exception]) -> None:
        super().__init__(f"{sum(isinstance(a, Exception) for a in answers)} of {len(answers)} moves were refused")
        self.answers = answers
