"""Rules about each job: acknowledged, ended once, events in order, attempts spent by its own errors alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.storm.checker import rule
from tests.storm.history import Fact, History

ENDS = {"succeeded": "done", "failed": "error", "dead_letter": "error", "canceled": "canceled"}
LAST = frozenset(ENDS.values())
OWN_FAULT = frozenset({"retried", "failed", "dead_lettered"})


@rule("G1 an acknowledged job is never lost")
def acknowledged(history: History) -> Iterator[str]:
    """Every acknowledged job exists, has ended, and has a permitted outcome."""
    for job_id, request in history.made.items():
        job = history.jobs.get(job_id)
        if job is None:
            yield f"job {job_id} ({request['key']}) was acknowledged and is not there"
        elif job["status"] not in request["expects"]:
            error = (job["error"] or "")[:200]
            yield f"job {job_id} ({request['key']}) is {job['status']}, not {'/'.join(request['expects'])}: {error}"


@rule("G1 every job comes to its end")
def ended(history: History) -> Iterator[str]:
    """No job is left open, and no wait at the end was given up."""
    for job in history.jobs.values():
        if job["status"] not in ENDS:
            yield f"job {job['job_id']} ({job['kind']}) is {job['status']} at the end"
    for fact in history.of("stuck"):
        yield f"{fact['left']} {fact['what']} did not come to their end"


@rule("G2 exactly one committed outcome")
def one_outcome(history: History) -> Iterator[str]:
    """Each job has one end event, one successful attempt under its last claim, and that attempt's result."""
    for job_id, job in history.jobs.items():
        last = [event["type"] for event in history.events.get(job_id, []) if event["type"] in LAST]
        if last != [ENDS.get(job["status"], "")]:
            yield f"job {job_id} is {job['status']} and has the last events {last}"
        winners = [one for one in history.attempts.get(job_id, []) if one["outcome"] == "succeeded"]
        if len(winners) != (job["status"] == "succeeded"):
            yield f"job {job_id} is {job['status']} with {len(winners)} attempts that succeeded"
        elif winners:
            yield from _result_of(job, winners[0], history)


def _result_of(job: Fact, won: Fact, history: History) -> Iterator[str]:
    result = json.loads(job["result"] or "null")
    claim = result.get("claim") if isinstance(result, dict) else None
    if claim != won["claim_version"]:
        yield f"job {job['job_id']}: the result is of claim {claim}, the success of claim {won['claim_version']}"
    if won["claim_version"] != job["claim_version"]:
        yield f"job {job['job_id']} succeeded by claim {won['claim_version']}, which was lost to {job['claim_version']}"
    if "returned" not in history.executions.get((job["job_id"], won["claim_version"]), {}):
        yield f"job {job['job_id']} succeeded by claim {won['claim_version']}, whose function never returned"


@rule("G5 events without gaps and in order")
def events_in_order(history: History) -> Iterator[str]:
    """Events are numbered from 1 to the job's own count, begin with `queued`, and end with the end."""
    for job_id, job in history.jobs.items():
        events = history.events.get(job_id, [])
        seqs = [event["seq"] for event in events]
        if seqs != list(range(1, job["event_seq"] + 1)):
            yield f"job {job_id} counts {job['event_seq']} events and has {seqs}"
        elif events[0]["type"] != "queued" or events[-1]["type"] not in LAST:
            yield f"job {job_id} begins with {events[0]['type']} and ends with {events[-1]['type']}"


@rule("G6 progress and times never fall")
def never_fall(history: History) -> Iterator[str]:
    """Progress and times of a job's events, and the times of its record and attempts, are in order."""
    for job_id, job in history.jobs.items():
        for one, other in pairwise(history.events.get(job_id, [])):
            if other["progress"] < one["progress"] or other["ms"] < one["ms"]:
                yield f"job {job_id}: event {other['seq']} falls behind the one before ({one} → {other})"
        times = [job[name] for name in ("created_at", "started_at", "ended_at") if job[name] is not None]
        if times != sorted(times):
            yield f"job {job_id} was created, started and ended at {times}"
        for one in history.attempts.get(job_id, []):
            if one["ended_at"] is None or one["ended_at"] < one["started_at"]:
                yield f"job {job_id}: attempt {one['attempt']} began at {one['started_at']}, ended at {one['ended_at']}"
        if job["status"] == "succeeded" and job["progress"] != 100:
            yield f"job {job_id} succeeded at {job['progress']} %"


@rule("G9 an outage spends no attempt")
def attempts_spent(history: History) -> Iterator[str]:
    """An attempt that failed raised an error of its own, and none is counted that was handed back."""
    errors_raised = {(fact["job"], fact["claim"]) for fact in history.of("raised")}
    for job_id, job in history.jobs.items():
        attempts = history.attempts.get(job_id, [])
        for one in attempts:
            if one["outcome"] in OWN_FAULT and (job_id, one["claim_version"]) not in errors_raised:
                yield f"job {job_id}: attempt {one['attempt']} is {one['outcome']}, not by itself: {one['error']}"
        spent = sum(one["outcome"] != "released" for one in attempts)
        if job["attempt_count"] != spent:
            outcomes = [one["outcome"] for one in attempts]
            yield f"job {job_id} counts {job['attempt_count']} attempts and has {outcomes}"


@rule("one request, one job")
def asked_once(history: History) -> Iterator[str]:
    """A request that was repeated names one job, and no two jobs carry the mark of one request."""
    jobs_of_key: dict[str, set[str]] = {}
    for fact in history.of("acknowledged"):
        jobs_of_key.setdefault(fact["key"], set()).add(fact["job"])
    for key, some in jobs_of_key.items():
        if len(some) > 1:
            yield f"{key} was acknowledged as {sorted(some)}"
    marks = Counter(_mark(job) for job in history.jobs.values() if not _is_of_schedule(job))
    yield from (f"{count} jobs carry the mark {mark!r}" for mark, count in marks.items() if count > 1)


@rule("a canceled job stays canceled")
def canceled(history: History) -> Iterator[str]:
    """A job reported as canceled has this status."""
    for fact in history.of("canceled"):
        job = history.jobs.get(fact["job"])
        if fact["state"] == "canceled" and job is not None and job["status"] != "canceled":
            yield f"job {fact['job']} was told as canceled and is {job['status']}"


@rule("follow-ups come with the success")
def follow_ups(history: History) -> Iterator[str]:
    """Each successful tenth `count` job has one follow-up; other outcomes have none."""
    marks = Counter(_mark(job) for job in history.jobs.values() if job["kind"] == "follow")
    for job_id, job in history.jobs.items():
        if job["kind"] != "count":
            continue
        due_callbacks = int(job["status"] == "succeeded" and json.loads(job["payload"])["n"] % 10 == 0)
        if marks[f"after {job_id}"] != due_callbacks:
            yield f"job {job_id} is {job['status']} and has {marks[f'after {job_id}']} follow-ups, not {due_callbacks}"


@rule("a step that is done is not done again")
def steps(history: History) -> Iterator[str]:
    """No claim repeats a step stored by an earlier claim. A lost answer may duplicate its checkpoint."""
    claims: dict[str, set[int]] = {}
    for fact in history.of("stepped"):
        claims.setdefault(fact["job"], set()).add(fact["claim"])
    for job_id, some in claims.items():
        kept_rows = [_claim_at(history, job_id, event["ms"]) for event in _checkpoints(history, job_id)]
        if kept_rows and max(some) > min(kept_rows):
            yield f"job {job_id} kept its step in claim {min(kept_rows)} and did it again in claim {max(some)}"


def _checkpoints(history: History, job_id: str) -> list[Fact]:
    return [event for event in history.events.get(job_id, []) if event["type"] == "checkpoint"]


def _claim_at(history: History, job_id: str, ms: int) -> int:
    """Return the claim whose attempt was the last to begin before a moment of the store's clock."""
    began = [one for one in history.attempts.get(job_id, []) if one["started_at"] <= ms]
    return int(began[-1]["claim_version"]) if began else 0


def _mark(job: Fact) -> str:
    return str(json.loads(job["payload"])["mark"])


def _is_of_schedule(job: Fact) -> bool:
    return str(job["correlation_id"]).startswith("schedule:")
