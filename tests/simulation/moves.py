"""A watch on every verb that the store does: conditions that must hold at every moment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.engine.silent_workers import BEGUN_JOBS, UNHEARD_CLAIMS
from callsheet.kernel.job import Claim, Job
from callsheet.store.protocol import Settled

from .parts import LEASE_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.kernel.settlement import Settlement

    from .process import Process
    from .world import World

NOTICE_S = 4.5  # a worker looks at its disk once a second, and a call may be on its way for some time
OVER_LIMIT = """SELECT concurrency_key, count(*) FROM inbox_jobs JOIN concurrency_limits USING (concurrency_key)
    WHERE status = 'running' GROUP BY concurrency_key HAVING count(*) > max_running"""


class Claimed(NamedTuple):
    """The owner and time of a claim."""

    process: Process
    at: float


class Moves:
    """Observes each verb before and after. `claims` lists every claim so far."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.claims: dict[Claim, Claimed] = {}
        self.listed: set[tuple[str, str]] = set()  # owners of claims ahead, with jobs that they listed as begun
        self.confessed: list[tuple[Process, float]] = []  # who wrote that answers to its claims were lost, and when

    def before(self, verb: str, args: Any) -> dict[str, Job]:
        """Return the current jobs of a settlement."""
        return self._jobs(args[0]) if verb == "settle" else {}

    def after(self, process: Process, verb: str, args: Any, before: dict[str, Job], value: Any) -> None:
        """Check the effects of a verb."""
        if verb == "settle":
            self._check_fences(args[0], value, before)
        elif verb == "claim":
            self._check_claim(process, value)
        elif verb == "put_document" and args[0].kind == BEGUN_JOBS:
            self.listed |= {(args[0].id, job_id) for job_id in json.loads(args[0].body)["jobs"]}
        elif verb == "put_document" and args[0].kind == UNHEARD_CLAIMS:
            self.confessed.append((process, self._world.loop.time()))
        elif verb == "heartbeat":
            for claim, beat in zip(args[0], value, strict=True):
                if beat.held:
                    self._world.leases[claim] = self._world.loop.time() + LEASE_S

    def _check_claim(self, process: Process, jobs: list[Job]) -> None:
        now = self._world.loop.time()
        for job in jobs:
            self._need(job.claim not in self.claims, f"claim {job.claim} was made twice")
            self.claims[job.claim] = Claimed(process, now)
            self._world.leases[job.claim] = now + LEASE_S
        full_s = 0.0 if process.full_since is None else now - process.full_since
        self._need(not jobs or full_s < NOTICE_S, f"{process.name} claims on a disk that is full for {full_s:.1f} s")
        over = self._world.store.db.execute(OVER_LIMIT).fetchall()
        self._need(not over, f"more than the limit run: {over}")

    def _check_fences(
        self, settlements: Sequence[Settlement], answers: Sequence[Settled], before: dict[str, Job]
    ) -> None:
        state = {job_id: (job.claim_version, job.status) for job_id, job in before.items()}
        for settlement, answer in zip(settlements, answers, strict=True):
            holds = state.get(settlement.job_id) == (settlement.claim_version, settlement.from_status)
            if answer is Settled.APPLIED:
                self._need(holds, f"a stale write took effect: {settlement}")
                state[settlement.job_id] = (settlement.claim_version, settlement.status)
        for job_id, job in self._jobs(settlements).items():
            old = before[job_id]
            self._need(state[job_id] == (job.claim_version, job.status), f"{job_id} moved though it was refused")
            self._need(job.progress >= old.progress, f"the progress of {job_id} fell")
            self._need(job.attempt_count <= job.max_attempts, f"{job_id} has more attempts than it may")
            self._need(not old.status.terminal or job == old, f"{job_id} changed after its end")

    def _jobs(self, settlements: Sequence[Settlement]) -> dict[str, Job]:
        ids = list({settlement.job_id: None for settlement in settlements})
        return {job.job_id: job for job in self._world.store.do("get", ids) if job is not None}

    def _need(self, is_so: bool, otherwise: str) -> None:  # noqa: FBT001 - a condition
        if not is_so:
            self._world.found(otherwise)
