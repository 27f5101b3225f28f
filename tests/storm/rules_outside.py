"""Rules about outside observers and leftovers: callbacks, watchers, surprises, workspaces, processes, secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.storm.checker import rule
from tests.storm.history import Fact, History, grouped

TOLD_BY = {
    "succeeded": ("claimed", "succeeded"),
    "retried": ("claimed", "failed", "queued"),
    "lease_lost": ("claimed", "queued"),
    "released": ("claimed", "queued"),
    "failed": ("claimed", "failed"),
}
TERMINAL = frozenset({"succeeded", "dead_letter"})


@rule("G4 callbacks are those of the outcome")
def callbacks_of_the_outcome(history: History) -> Iterator[str]:
    """Every attempt's end is reported, and at most one callback reports a job's end."""
    for job_id, job in history.jobs.items():
        if job["contract"] != "euterpe":
            continue
        rows = history.callbacks.get(job_id, [])
        event_ids = {row["event_id"] for row in rows}
        for one in history.attempts.get(job_id, []):
            for word in TOLD_BY.get(one["outcome"], ()):
                if _event_id(job_id, one["claim_version"], word) not in event_ids:
                    yield f"job {job_id}: claim {one['claim_version']} is {one['outcome']}, and no callback says {word}"
        ends = [status for row in rows if (status := json.loads(row["body"])["status"]) in TERMINAL]
        if ends != [job["status"]]:
            yield f"job {job_id} is {job['status']}, its callbacks tell of the ends {ends}"


def _event_id(job_id: str, claim: int, word: str) -> str:
    return f"evt_{job_id.replace('-', '')}_{claim}_{word}"


@rule("callbacks arrive, signed, and are what was written")
def callbacks_arrive(history: History) -> Iterator[str]:
    """Each row of the outbox came at least once and was answered well; nothing else came; all was signed."""
    received = grouped(history.of("received"), "event")
    written_text = {row["event_id"]: row for rows in history.callbacks.values() for row in rows}
    for event_id, row in written_text.items():
        if not any(fact["status"] < 300 for fact in received.get(event_id, [])):
            yield f"{event_id} ({row['status']}) never arrived"
        elif row["status"] != "delivered":
            yield f"{event_id} arrived and is {row['status']}"
    for event_id, facts in received.items():
        yield from _wrong(event_id, facts, written_text.get(event_id))


def _wrong(event_id: str, facts: list[Fact], row: Fact | None) -> Iterator[str]:
    if row is None:
        yield f"{event_id} arrived and was never written"
    elif any(fact["body"] != row["body"] for fact in facts):
        yield f"{event_id} arrived with another body than was written"
    if not all(fact["verified"] for fact in facts):
        yield f"{event_id} arrived without a signature that fits"


@rule("watchers see every event once, in order")
def watchers(history: History) -> Iterator[str]:
    """A watcher's events over all connections equal the store's."""
    for fact in history.of("watched"):
        events = [[event["seq"], event["type"]] for event in history.events.get(fact["job"], [])]
        if [list(one) for one in fact["seen"]] != events:
            yield f"job {fact['job']} was watched by {fact['by']}: {fact['seen']}, not {events}"


@rule("no error but the ones that are documented")
def surprises(history: History) -> Iterator[str]:
    """Producers and watchers met nothing that is neither an answer nor an outage; objects are read as written."""
    for fact in history.of("surprise"):
        yield str(fact["what"])
    for fact in history.of("stored"):
        if not fact["same"]:
            yield f"job {fact['job']} read another object than it had written"


@rule("nothing is left behind")
def left(history: History) -> Iterator[str]:
    """No workspace or process is left, and no log contains a secret."""
    result = history.last("left")
    yield from (f"the workspace {name} was left behind" for name in result.get("workspaces", []))
    yield from (f"process {pid} was left behind" for pid in result.get("processes", []))
    yield from (f"a secret stands in the log {name} (G8)" for name in result.get("secrets", []))
