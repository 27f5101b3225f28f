"""Simulated worker crashes: a store that drops a worker's claims at a point chosen by the test, like `kill -9`.

A dropped claim stays in the store with its lease, and the store ignores all later writes for this claim.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.job import Claim, Outcome
from callsheet.store.protocol import Hint, Settled
from callsheet.worker.run import ends

if TYPE_CHECKING:
    from callsheet.kernel.job import Job
    from callsheet.kernel.settlement import Settlement
    from callsheet.store.protocol import ClaimRequest

    from .clock import VirtualStore

START, WORK = "start", "work"
EVENT_OF = {"step": "checkpoint", "stage": "stage"}
POINTS = "'start', 'step:<name>', 'stage:<name>', 'progress', 'progress:<percent>' or 'work'"


class Crash(NamedTuple):
    """One simulated crash: in the next attempt of the task `kind`, after the point `after`."""

    kind: str
    after: str

    def check(self) -> None:
        """Raise InvalidInput for an unknown point."""
        word, colon, name = self.after.partition(":")
        plain = self.after in (START, WORK, "progress")
        percent = word == "progress" and name.replace(".", "", 1).isdigit()
        if not (plain or percent or (word in EVENT_OF and colon and name)):
            raise InvalidInput(f"no worker can die after {self.after!r}; there is {POINTS}")

    def passed_by(self, settlement: Settlement) -> bool:
        """Return whether the worker crashes after this write."""
        word, _, name = self.after.partition(":")
        event = settlement.event
        if event is None:
            return False
        if word == "progress":
            return event.type == "progress" and (settlement.progress or 0.0) >= float(name or 0)
        return event.type == EVENT_OF.get(word) and event.step == name


class MortalStore:
    """The store as the harness's worker uses it. `wanted_crashes` are planned, `missed_crashes` did not happen."""

    def __init__(self, store: VirtualStore) -> None:
        self._store = store
        self.wanted_crashes: list[Crash] = []
        self.missed_crashes: list[Crash] = []
        self.attempts_left = 0
        self._crash_of: dict[Claim, Crash] = {}
        self._dead: set[Claim] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        """Claim jobs within the attempts left; jobs with a crash at `start` are claimed but not returned."""
        limit = min(request.limit, self.attempts_left)
        jobs = await self._store.claim(request._replace(limit=limit), now=now) if limit > 0 else []
        self.attempts_left -= len(jobs)
        return [job for job in jobs if self._survives_start(job)]

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """Apply settlements up to a crash; later settlements of the crashed claim answer STALE, which stops the run."""
        answers = []
        for settlement in settlements:
            claim = Claim(settlement.job_id, settlement.claim_version)
            if claim in self._dead or self._dies_before(claim, settlement):
                answers.append(Settled.STALE)
                continue
            (answer,) = await self._store.settle([settlement], now=now)
            answers.append(Settled.STALE if self._dies_after(claim, settlement) else answer)
        return answers

    async def hints(self) -> AsyncIterator[Hint]:
        """Yield only hints about queues and cancellations: other hints cause heartbeats, which delay a worker's end."""
        async for hint in self._store.hints():
            own_hint = Hint(hint.queues, hint.jobs & self._store.cancelled_ids)
            if hint == Hint() or own_hint != Hint():
                yield own_hint

    def _survives_start(self, job: Job) -> bool:
        crash = next((crash for crash in self.wanted_crashes if crash.kind == job.kind), None)
        if crash is None:
            return True
        self.wanted_crashes.remove(crash)
        if crash.after == START:
            return False
        self._crash_of[job.claim] = crash
        return True

    def _dies_before(self, claim: Claim, settlement: Settlement) -> bool:
        crash = self._crash_of.get(claim)
        if crash is None or not ends(settlement):
            return False
        del self._crash_of[claim]
        if crash.after != WORK:
            later = settlement.outcome is Outcome.RELEASED  # it snoozed: its next attempt is meant
            (self.wanted_crashes if later else self.missed_crashes).append(crash)
            return False
        self._dead.add(claim)
        return True

    def _dies_after(self, claim: Claim, settlement: Settlement) -> bool:
        crash = self._crash_of.get(claim)
        if crash is None or not crash.passed_by(settlement):
            return False
        del self._crash_of[claim]
        self._dead.add(claim)
        return True
