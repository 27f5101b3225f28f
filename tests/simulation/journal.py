"""The executions of tasks: one entry per execution. The journal belongs to the simulation, so faults never touch it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from callsheet.engine.silent_workers import BEGUN_JOBS, is_ahead, needs_listing
from callsheet.kernel.job import Claim, Status

from .loop import NODE
from .process import Process

if TYPE_CHECKING:
    from callsheet.kernel.job import Job

    from .world import World

NOTICE_S = 4.0  # within this time after its lease a worker must have stopped the work


@dataclass(eq=False)
class Execution:
    """One call of a task's function. `how` it ended is empty while it runs, and for ever if its process died."""

    job_id: str
    kind: str
    claim_version: int
    number: int
    process: Process
    began_at: float
    ended_at: float = float("inf")
    how: str = ""
    words: int = 0

    @property
    def claim(self) -> Claim:
        """Return the claim of the execution."""
        return Claim(self.job_id, self.claim_version)

    def result(self) -> dict[str, Any]:
        """Return the function's result, which identifies the claim."""
        return {"claim": self.claim_version}


class Journal:
    """All executions of a world, with violations detected at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.executions: dict[Claim, Execution] = {}
        self._begun: Counter[str] = Counter()
        self._steps: dict[tuple[str, int], int] = {}

    def begin(self, job: Job, left_behind: str) -> Execution:
        """Enter an execution; the number counts the job's starts."""
        process = cast("Process", NODE.get())
        self._begun[job.job_id] += 1
        number = self._begun[job.job_id]
        entry = Execution(job.job_id, job.kind, job.claim_version, number, process, self._world.loop.time())
        self._world.loop.note(f"begin {job.kind} {number} of {job.job_id} by {process.name};")
        self._need(entry.claim not in self.executions, f"{job.kind} {job.job_id} ran twice under one claim")
        self._need(not left_behind, f"{job.job_id} sees a context variable of {left_behind}")
        self.executions[entry.claim] = entry
        self._check_parents(job)
        if is_ahead(job) and needs_listing(job):
            documents = self._world.store.do("documents", BEGUN_JOBS, job.worker_id)
            listing = bool(documents) and job.job_id in documents[0].body
            self._need(listing, f"{job.job_id} was lost early before, and begins without being listed")
        return entry

    def _check_parents(self, job: Job) -> None:
        wish = self._world.asked.get(job.job_id)
        parents = self._world.store.do("get", wish.depends_on) if wish is not None else []
        for parent in parents:
            ready = parent.status is Status.SUCCEEDED or (job.on_dependency_failure == "run" and parent.status.terminal)
            self._need(ready, f"{job.job_id} began before {parent.job_id}, which is {parent.status}")

    def end(self, entry: Execution) -> None:
        """The function has ended, in a process that lives."""
        if entry.process.is_alive:
            entry.ended_at = self._world.loop.time()
            self._world.loop.note(f"end {entry.how} of {entry.job_id};")

    def busy(self) -> list[Process]:
        """Return the processes that are at long work."""
        entries = [entry for entry in self.executions.values() if entry.kind == "long" and not entry.how]
        return list(dict.fromkeys(entry.process for entry in entries if entry.process.is_alive))

    def tick(self, entry: Execution) -> None:
        """Record progress: a violation long after the lease's end."""
        lease_until = self._world.leases.get(entry.claim, 0.0)
        until = max(lease_until, entry.process.thawed_at) + NOTICE_S
        now = self._world.loop.time()
        self._need(
            now <= until, f"{entry.process.name} works on {entry.job_id} {now - lease_until:.1f} s after its lease"
        )

    def step(self, entry: Execution, number: int, *, is_done: bool, result: Any) -> None:
        """A step begins: steps stored by an earlier claim must be present. A zombie need not see what came after it."""
        is_current = self._steps.get((entry.job_id, number), math.inf) <= entry.claim_version
        self._need(is_done or not is_current, f"step {number} of {entry.job_id} was kept and is gone")
        self._need(not is_done or result == number * number, f"step {number} of {entry.job_id} came back as {result}")

    def keep(self, entry: Execution, number: int) -> None:
        """A step was acknowledged."""
        self._steps.setdefault((entry.job_id, number), entry.claim_version)

    def kill(self, entry: Execution) -> None:
        """The work kills its own process."""
        self._world.kill(entry.process)

    def _need(self, is_so: bool, otherwise: str) -> None:  # noqa: FBT001 - a condition
        if not is_so:
            self._world.found(otherwise)
