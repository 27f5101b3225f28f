"""Checks of a world after everything has settled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from callsheet.engine.silent_workers import AHEAD
from callsheet.kernel.events import TERMINAL_EVENTS
from callsheet.kernel.job import Attempt, Claim, Delivery, Job, Outcome, Status

from .process import MOST_FLIGHTS
from .seeding import EPOCH_S
from .tasks import STAGES, is_deliberate

if TYPE_CHECKING:
    from .journal import Execution
    from .world import World

POISONED = 1  # a job that kills its workers may do that once more than it has attempts: the first time it was ahead
LISTED_S = 1.0  # what has run for so long is listed as begun, where it was claimed ahead
ENDS = {
    Outcome.RETRIED: ("failed", "queued"),
    Outcome.FAILED: ("failed",),
    Outcome.DEAD_LETTERED: ("failed", "dead_letter"),
    Outcome.LEASE_LOST: ("queued", "failed", "dead_letter"),
    Outcome.RELEASED: ("queued",),
    Outcome.SUCCEEDED: ("succeeded",),
}
WORDS = {Status.SUCCEEDED: "succeeded", Status.FAILED: "failed", Status.DEAD_LETTER: "dead_letter"}


class Checks:
    """Looks at all jobs of a world; it collects violations."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._executions = world.journal.executions

    def run(self) -> None:
        """Run every check."""
        jobs = {job.job_id: job for job in self._world.jobs()}
        for query, answers in self._world.acknowledged.items():
            self._need(answers in jobs, f"{query} was acknowledged and is lost")
        for job in jobs.values():
            self._check_job(job)
        self._check_callbacks(jobs)
        for process in self._world.processes:
            self._need(
                process.most_flights <= MOST_FLIGHTS,
                f"{process.name} had {process.most_flights} batches on their way",
            )
        for trouble in self._world.loop.troubles:
            self._world.found(f"an error nobody handled: {trouble}")

    def _check_job(self, job: Job) -> None:
        attempts: list[Attempt] = self._world.store.do("attempts", job.job_id)
        if not self._need(job.status.terminal, f"{job.kind} {job.job_id} is stuck: {job}"):
            return
        self._check_events(job)
        counts = [attempt for attempt in attempts if attempt.outcome is not Outcome.RELEASED]
        self._need(len(counts) == job.attempt_count, f"{job.job_id} counts {job.attempt_count} attempts of {attempts}")
        if job.status is Status.SUCCEEDED:
            self._check_success(job)
        for attempt in attempts:
            self._check_attempt(job, attempt)
        if job.kind == "poison":
            deaths = sum(entry.job_id == job.job_id for entry in self._executions.values())
            self._need(deaths <= job.max_attempts + POISONED, f"{job.job_id} killed {deaths} workers")

    def _check_events(self, job: Job) -> None:
        events = self._events(job)
        self._need([e.seq for e in events] == list(range(1, job.event_seq + 1)), f"{job.job_id} has gaps in its events")
        ends = [event.seq for event in events if event.type in TERMINAL_EVENTS]
        self._need(ends == [job.event_seq], f"{job.job_id} has these ends among its events: {ends}")
        progress = [event.progress for event in events]
        self._need(progress == sorted(progress), f"the progress of {job.job_id} falls: {progress}")

    def _events(self, job: Job) -> list[Any]:
        return self._world.store.do("events", {job.job_id: 0}, 10_000)  # type: ignore[no-any-return]

    def _check_success(self, job: Job) -> None:
        entry = self._executions.get(job.claim)
        if not self._need(entry is not None, f"{job.job_id} succeeded without running") or entry is None:
            return
        self._need(entry.how == "returned", f"{job.job_id} succeeded, and its function {entry.how}")
        self._need(json.loads(job.result or "null") == entry.result(), f"{job.job_id} has the result {job.result}")
        words = [json.loads(event.data) for event in self._events(job) if event.type == "word"]
        mine = list(dict.fromkeys(word["number"] for word in words if word["claim"] == job.claim_version))
        self._need(mine == list(range(entry.words)), f"{job.job_id} said {entry.words} words, and kept {mine}")

    def _check_attempt(self, job: Job, attempt: Attempt) -> None:
        claim = Claim(job.job_id, attempt.claim_version)
        entry, outcome = self._executions.get(claim), attempt.outcome
        code = json.loads(attempt.error or "{}").get("code", "")
        if outcome in (Outcome.RETRIED, Outcome.FAILED, Outcome.DEAD_LETTERED):
            self._need(entry is not None and is_deliberate(job, code), f"{job.kind} {claim} failed with {code!r}")
        elif outcome is Outcome.LEASE_LOST:
            self._check_loss(claim, attempt, entry)
        elif outcome is Outcome.RELEASED and AHEAD in attempt.worker_id:
            self._check_early_loss(claim, entry)

    def _check_loss(self, claim: Claim, attempt: Attempt, entry: Execution | None) -> None:
        move = self._world.moves.claims[claim]
        if AHEAD in attempt.worker_id:
            is_listed = (attempt.worker_id, claim.job_id) in self._world.moves.listed
            self._need(entry is not None or is_listed, f"{claim} only waited in a worker, and was counted")
        ended_at = ((attempt.ended_at or 0) / 1000) - EPOCH_S  # the wall clock may have been set forward since
        has_cause = (
            self._is_unheard(claim, ended_at)
            or move.process.died_at <= ended_at
            or move.process.had_trouble(move.at, ended_at)
            or any(move.at <= jump <= ended_at for jump in self._world.jumps)
        )
        self._need(has_cause, f"{claim} of {move.process.name} was lost without a cause, made at {move.at:.3f}")

    def _is_unheard(self, claim: Claim, ended_at: float) -> bool:
        """Return whether a claim's answer was lost and its worker could not reconnect during the lease."""
        made = self._world.moves.claims[claim]
        if claim in made.process.heard or self._world.faults.only_answers_are_lost:
            return False
        confessed = [at for who, at in self._world.moves.confessed if who is made.process]
        return not any(made.at <= at <= ended_at for at in confessed)

    def _check_early_loss(self, claim: Claim, entry: Execution | None) -> None:
        made = self._world.moves.claims[claim]
        if entry is None or entry.how or made.process.had_trouble(entry.began_at, made.process.died_at):
            return
        ran_s = made.process.died_at - entry.began_at
        self._need(ran_s < LISTED_S, f"{claim} ran for {ran_s:.1f} s in a worker that died, and was not counted")

    def _check_callbacks(self, jobs: dict[str, Job]) -> None:
        rows = self._world.store.do("outbox_find", limit=10_000)
        known_names = {row.event_id: row for row in rows}
        for event_id, bodies in self._world.receiver.bodies.items():
            ours = {known_names[event_id].body.encode()} if event_id in known_names else set()
            self._need(bodies == ours, f"callback {event_id} was received as {bodies}, and is {ours}")
        for row in rows:
            self._need(row.status is Delivery.DELIVERED, f"callback {row.event_id} is {row.status}: {row.error}")
            self._need(row.event_id in self._world.receiver.accepted, f"callback {row.event_id} was never accepted")
            self._check_told(jobs[row.job_id], json.loads(row.body), row.event_id)
        for job in jobs.values():
            if job.kind == "told":
                last = f"evt_{job.job_id.replace('-', '')}_{job.claim_version}_{WORDS.get(job.status)}"
                self._need(last in known_names, f"the end of {job.job_id}, {job.status}, was not told")

    def _check_told(self, job: Job, body: dict[str, Any], event_id: str) -> None:
        """Check that every callback reports a real event."""
        version, word = int(event_id.split("_")[2]), body["status"]
        attempts = {a.claim_version: a.outcome for a in self._world.store.do("attempts", job.job_id)}
        if word in STAGES:
            happened = any(event.type == "stage" and event.step == word for event in self._events(job))
        elif word == "claimed":
            happened = version <= job.claim_version
        else:
            outcome = attempts.get(version)
            happened = outcome is not None and word in ENDS.get(outcome, ())
        self._need(happened, f"callback {event_id} tells of what did not happen")

    def _need(self, is_so: bool, otherwise: str) -> bool:  # noqa: FBT001 - a condition
        if not is_so:
            self._world.found(otherwise)
        return is_so
