"""A job passes on to a worker with its task: what it costs, how long the pauses are, when patience ends."""

from __future__ import annotations

import json

from callsheet.kernel import commands
from callsheet.kernel.apply import after_claim, after_settlement
from callsheet.kernel.contracts import CONTRACTS
from callsheet.kernel.handing_on import hand_on
from callsheet.kernel.job import Job, Outcome, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from tests.kernel.jobs import NOW, a_job

TEN_MINUTES = 600_000


def on(job: Job, patience_ms: int = TEN_MINUTES) -> Settlement:
    return hand_on(job, patience_ms=patience_ms, rand=1.0)


def next_attempt(job: Job, settlement: Settlement) -> Job:
    return after_claim(after_settlement(job, settlement, NOW), worker_id="w2", now=NOW, lease_ms=30_000, start=True)


def test_pauses_grow_and_ten_minutes_are_tried_in_all() -> None:
    job, pauses = a_job(max_attempts=1), list[int]()
    while (settlement := on(job)).outcome is Outcome.RELEASED:
        pauses.append(settlement.delay_ms)
        job = next_attempt(job, settlement)
        assert job.attempt_count == 1, "of the one that is allowed"
    assert pauses[:6] == [1_000, 2_000, 4_000, 8_000, 15_000, 15_000]
    assert TEN_MINUTES <= sum(pauses) < TEN_MINUTES + 15_000
    assert settlement.status is Status.DEAD_LETTER
    error = json.loads(settlement.error or "")
    assert error["code"] == "unknown_task"
    assert f"within {sum(pauses) // 1000} s" in error["message"]


def test_every_contract_lets_a_job_be_handed_on() -> None:
    for contract in CONTRACTS:
        assert on(a_job(contract=contract)).status is Status.QUEUED, contract


def test_outages_and_hand_overs_are_counted_apart() -> None:
    job = a_job(max_attempts=1)
    for _ in range(3):
        job = next_attempt(job, on(job))
        job = next_attempt(job, commands.wait(job, JobError("away"), waits_for="storage", rand=1.0))
    details = json.loads(job.error or "")["details"]
    assert (details["handed_on"], details["handed_on_ms"]) == (3, 7_000)
    assert (details["waits"], details["waited_ms"]) == (3, 7_000)
    assert on(job, patience_ms=7_000).status is Status.DEAD_LETTER


def test_a_failure_in_between_begins_anew_and_forged_counts_are_none() -> None:
    failed_job = a_job(error=JobError("x", details=json.dumps({"handed_on": 9, "handed_on_ms": 10**9})).json())
    assert on(failed_job).delay_ms == 1_000
    forgery = {"waits_for": "x", "handed_on": "9", "handed_on_ms": True, "waits": -1}
    assert on(a_job(error=JobError("x", details=json.dumps(forgery)).json())).delay_ms == 1_000


def test_a_job_that_is_to_be_canceled_is_not_handed_on() -> None:
    assert on(a_job(cancel_requested_at=NOW, cancel_reason="enough")).status is Status.CANCELED
