"""Which worker id, queues and tenants a worker is bound to. Lease checks and follow-up jobs are judged here.

A worker with an API key is bound to the key's tenant. Admin keys, keys with the scope `worker:all` and keys without a
tenant belong to operators and are bound to no tenant. An enrolled worker is bound as its enrolment says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request

from callsheet.http.auth import check
from callsheet.http.problems import Problem
from callsheet.http.state import ServerState
from callsheet.kernel.lane import is_lane_of_another, lane_of

if TYPE_CHECKING:
    from callsheet.http.keys import Principal
    from callsheet.kernel.job import Job

EVERY_TENANT = "worker:all"


class Holder(NamedTuple):
    """A worker as the holder of leases. None as `queues` or `tenants` means all."""

    worker_id: str
    queues: frozenset[str] | None = None
    tenants: frozenset[str] | None = None
    is_enrolled: bool = False

    def may_have(self, job: Job) -> bool:
        """Return True if the worker's tenants include the job's tenant and its queues include the job's queue."""
        return (self.tenants is None or job.requester_id in self.tenants) and self._serves(job.queue)

    def check_queue(self, queue: str, parent: Job) -> None:
        """Raise Problem `forbidden` unless `queue` is one of the worker's queues or the queue of the parent job."""
        if not self._serves(queue) and lane_of(queue).queue != lane_of(parent.queue).queue:
            queues = ", ".join(sorted(self.queues or ()))
            message = f"follow_ups: this worker makes no jobs in the queue {queue!r}; it is enrolled for {queues}"
            raise Problem("forbidden", message, ok=False)

    def _serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues or lane_of(queue).queue in self.queues


class WorkerIdentity(NamedTuple):
    """The worker behind a request's credentials. `worker_id` None: a plain API key, which may use any worker name."""

    worker_id: str | None = None
    queues: frozenset[str] | None = None
    tenants: frozenset[str] | None = None
    draining: bool = False

    @classmethod
    def of(cls, who: Principal) -> WorkerIdentity:
        """Return the worker identity of an authenticated principal."""
        if who.worker_id is not None:
            return cls(who.worker_id, who.queues, who.tenants, who.draining)
        every = who.admin or not who.requester_id or EVERY_TENANT in who.scopes
        return cls(tenants=None if every else frozenset({who.requester_id}))

    def holder(self, worker_id: str) -> Holder:
        """Return the lease holder `asked`; raises Problem `forbidden` if an enrolled worker gives another id."""
        if self.worker_id not in (None, worker_id):
            raise Problem("forbidden", f"this token is of worker {self.worker_id}; send that as worker_id", ok=False)
        return Holder(worker_id, self.queues, self.tenants, self.worker_id is not None)

    def check_streams(self, streams: Sequence[str]) -> tuple[str, ...]:
        """Return the streams in their order; raises Problem `forbidden` for a stream outside the worker's binding."""
        foreign = [stream for stream in streams if self.queues is not None and stream not in self.queues]
        if foreign:
            queues = ", ".join(sorted(self.queues or ()))
            message = f"streams: this worker is not enrolled for {', '.join(foreign)}; it is for {queues}"
            raise Problem("forbidden", message, ok=False)
        others = [
            s for s in streams if self.tenants is not None and all(is_lane_of_another(s, t) for t in self.tenants)
        ]
        if others:
            message = (
                f"streams: {', '.join(others)} holds jobs of another tenant; this worker is bound to {self.bound_to}"
            )
            raise Problem("forbidden", message, ok=False)
        return tuple(streams)

    @property
    def bound_to(self) -> str:
        """Return the worker's tenants as text for error messages."""
        return "all tenants" if self.tenants is None else ", ".join(sorted(self.tenants))


async def worker_of(request: Request) -> WorkerIdentity:
    """Return the authenticated worker of a request; raises Problem as `check` does, and `worker_revoked`."""
    return WorkerIdentity.of(await check(request, "worker"))


async def seen(
    state: ServerState, worker: Holder, labels: Sequence[str] = (), version: str = "", running: int = 0
) -> None:
    """Record a worker's sign of life, with at most one store write per worker in ten seconds.

    An API key may use any worker name, but never updates an enrolled worker's record, and a tenant's key may create a
    limited number of names only.
    """
    if worker.is_enrolled:
        await state.workers.record_seen(worker.worker_id, labels, version, running)
        return
    if not all(state.worker_names.has_room(tenant, worker.worker_id) for tenant in worker.tenants or ()):
        return
    if not await state.workers.is_enrolled(worker.worker_id):
        await state.workers.record_seen(worker.worker_id, labels, version, running)
