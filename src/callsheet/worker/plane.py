"""The interfaces that a worker claims and settles jobs through: an `Engine` in this process, or a remote server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from callsheet.kernel.errors import Refused

if TYPE_CHECKING:
    from callsheet.engine.resuming import Steps
    from callsheet.kernel.job import Claim, Job
    from callsheet.kernel.settlement import Settlement
    from callsheet.store.protocol import ClaimRequest, HeartbeatResult, Settled


class SourceStore(Protocol):
    """The property of a store that workers read."""

    @property
    def batch(self) -> int:
        """The best number of jobs to claim or settle at once."""
        ...


class JobSource(Protocol):
    """The interface for claiming and settling jobs."""

    @property
    def store(self) -> SourceStore:
        """The store, for its batch size."""
        ...

    async def claim(self, request: ClaimRequest) -> list[Job]:
        """Claim jobs for a worker."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Apply settlements; raises PartlyRefused if some are refused for another reason than a lost claim."""
        ...

    async def steps(self, job: Job) -> Steps:
        """Return the completed steps of a claimed job and of the jobs that it resumes."""
        ...

    async def get(self, job_id: str) -> Job:
        """Return one job; raises JobNotFound."""
        ...


class Beats(Protocol):
    """The connection that heartbeats use."""

    async def open(self) -> object:
        """Open the connection."""
        ...

    async def heartbeat(self, claims: Sequence[Claim], *, lease_ms: int) -> list[HeartbeatResult]:
        """Extend leases; each answer tells whether the claim is still held and whether to cancel the job."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class PartlyRefused(Refused):
    """Raised if some settlements were refused; `answers` holds a result or an exception per settlement."""

    code = "partly_refused"

    def __init__(self, answers: Sequence[Settled | Exception]) -> None:
        super().__init__(f"{sum(isinstance(a, Exception) for a in answers)} of {len(answers)} moves were refused")
        self.answers = answers
