"""A job waits for the end of an outage: what it costs, how long the pauses are, and when patience ends."""

from __future__ import annotations

import json

import pytest

from callsheet.kernel import commands
from callsheet.kernel.apply import after_claim, after_settlement
from callsheet.kernel.contracts import write_policy
from callsheet.kernel.job import Job, Outcome, Status
from callsheet.kernel.retry import JobError, RetryPolicy
from callsheet.kernel.settlement import Settlement
from tests.kernel.jobs import NOW, a_job

AWAY = JobError("objects_unavailable", "the storage cannot be reached")


def wait(job: Job) -> Settlement:
    return commands.wait(job, AWAY, waits_for="storage", rand=1.0)


def next_attempt(job: Job, settlement: Settlement) -> Job:
    """Return the job as the next worker would claim it."""
    return after_claim(after_settlement(job, settlement, NOW), worker_id="w2", now=NOW, lease_ms=30_000, start=True)


def test_a_wait_costs_no_attempt_and_says_what_is_away() -> None:
    job = a_job(max_attempts=1)
    settlement = wait(job)
    assert settlement.outcome is Outcome.RELEASED
    after = after_settlement(job, settlement, NOW)
    assert (after.status, after.attempt_count) == (Status.QUEUED, 0)
    assert settlement.event is not None
    assert settlement.event.type == "waiting"
    assert json.loads(settlement.event.data)["for"] == "storage"
    assert json.loads(after.error or "")["message"] == "waiting for storage: the storage cannot be reached"


def test_pauses_grow_to_a_minute_and_an_hour_is_waited_in_all() -> None:
    job, pauses = a_job(max_attempts=2), list[int]()
    while (settlement := wait(job)).outcome is Outcome.RELEASED:
        pauses.append(settlement.delay_ms)
        job = next_attempt(job, settlement)
    assert pauses[:7] == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]
    assert set(pauses[6:]) == {60_000}
    assert 3_600_000 <= sum(pauses) < 3_660_000
    assert settlement.outcome is Outcome.RETRIED, "then the outage is a failure of this attempt"
    job = next_attempt(job, settlement)
    assert job.attempt_count == 2
    assert wait(job).delay_ms == 1_000, "and the next attempt has an hour of its own"


def test_a_policy_says_how_long_is_waited() -> None:
    impatient = a_job(max_attempts=1, retry=write_policy(RetryPolicy(outage_ms=0)))
    assert wait(impatient).status is Status.DEAD_LETTER


def test_a_failure_in_between_is_not_taken_for_a_wait() -> None:
    job = a_job(error=JobError("x", details=json.dumps({"waits": 99, "waited_ms": 10**9})).json())
    assert wait(job).delay_ms == 1_000
    forgery = a_job(
        error=JobError("x", details=json.dumps({"waits_for": "x", "waits": "99", "waited_ms": None})).json()
    )
    assert wait(forgery).delay_ms == 1_000


@pytest.mark.parametrize("count", [-1, -(10**400), True, 1.5, "9"])
def test_a_wait_that_a_worker_made_up_makes_no_job_wait_for_ever(count: object) -> None:
    details = {"waits_for": "x", "waits": count, "waited_ms": count}
    body = a_job(error=JobError("x", details=json.dumps(details)).json())
    written_text = a_job(error=json.dumps({"code": "x", "message": "", "details": details}))  # by another program
    for job in (body, written_text):
        settlement = wait(job)
        waited = json.loads(settlement.error or "")["details"]["waited_ms"]
        assert (settlement.delay_ms >= 1_000, waited >= settlement.delay_ms) == (True, True)


def test_the_hour_of_a_wait_is_the_kernels_to_count() -> None:
    """A failure with foreign details starts a new hour, but not an unlimited one."""
    details = json.dumps({"waits_for": "x", "waits": 1, "waited_ms": -(10**15), "stack": "…"})
    assert json.loads(JobError("x", details=details).json())["details"] == {
        "waits": 1,
        "waited_ms": -(10**15),
        "stack": "…",
    }


def test_a_job_that_is_to_be_canceled_does_not_wait() -> None:
    job = a_job(cancel_requested_at=NOW, cancel_reason="enough")
    assert wait(job).status is Status.CANCELED


def test_what_the_other_side_asks_for_is_waited_for_but_an_hour_is_enough() -> None:
    def rest_ms(after_ms: int) -> int:
        return commands.wait(a_job(), AWAY, waits_for="storage", rand=1.0, after_ms=after_ms).delay_ms

    assert [rest_ms(n) for n in (0, 500, 120_000, 10**9)] == [1_000, 1_000, 120_000, 3_600_000]
