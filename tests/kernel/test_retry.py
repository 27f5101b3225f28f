from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.kernel import commands
from callsheet.kernel.contracts import POLICIES, read_policy, write_policy
from callsheet.kernel.errors import InvalidJob
from callsheet.kernel.job import Outcome, Status
from callsheet.kernel.retry import DEFAULT, OUTBOX, Backoff, JobError, RetryPolicy, Verdict
from tests.kernel.jobs import a_job

EUTERPE, CORTANA = POLICIES["euterpe"], POLICIES["cortana"]


def verdict(policy: RetryPolicy, code: str, **more: object) -> Verdict:
    return policy.decide(JobError(code), **{"attempt": 1, "refreshes": 0, "rand": 0.5} | more).verdict  # type: ignore[arg-type]


@pytest.mark.parametrize("code", ["423", "500", "502", "503", "504", "429"])
def test_euterpe_retries_these_codes(code: str) -> None:
    assert verdict(EUTERPE, code) is Verdict.RETRY


@pytest.mark.parametrize("code", ["401", "403"])
def test_euterpe_refreshes_credentials_until_that_budget_is_spent(code: str) -> None:
    assert verdict(EUTERPE, code) is Verdict.REFRESH
    assert verdict(EUTERPE, code, refreshes=EUTERPE.max_refreshes) is Verdict.FAIL


@pytest.mark.parametrize("code", ["400", "404", "410", "501", "whatever"])
def test_euterpe_fails_other_codes(code: str) -> None:
    assert verdict(EUTERPE, code) is Verdict.FAIL


@given(attempt=st.integers(1, 20), rand=st.floats(0, 1))
def test_a_429_waits_in_a_larger_bucket(attempt: int, rand: float) -> None:
    usual = EUTERPE.decide(JobError("503"), attempt=attempt, refreshes=0, rand=rand).delay_ms
    throttled = EUTERPE.decide(JobError("429"), attempt=attempt, refreshes=0, rand=rand).delay_ms
    assert throttled >= 2 * usual


@given(rand=st.floats(0, 1))
def test_cortana_waits_one_five_and_fifteen_minutes(rand: float) -> None:
    for n, seconds in enumerate((60, 300, 900), start=1):
        delay = CORTANA.backoff.delay_ms(n, rand)
        assert 0.8 * seconds * 1000 - 1 <= delay <= 1.2 * seconds * 1000 + 1
    assert CORTANA.backoff.delay_ms(1, 0.0) == 48_000
    assert CORTANA.backoff.delay_ms(3, 1.0) == 1_080_000


def test_cortana_runs_once_and_retries_three_times() -> None:
    job = a_job(contract="cortana", max_attempts=CORTANA.max_attempts)
    for attempt in (1, 2, 3):
        assert commands.fail(job._replace(attempt_count=attempt), JobError("x"), rand=0).status is Status.QUEUED
    assert commands.fail(job._replace(attempt_count=4), JobError("x"), rand=0).status is Status.DEAD_LETTER


@pytest.mark.parametrize(
    "code", ["invalid_payload", "missing_object", "constraint_violation", "unauthorized", "forbidden"]
)
def test_cortana_does_not_retry_what_cannot_get_better(code: str) -> None:
    assert commands.fail(a_job(contract="cortana"), JobError(code), rand=0).status is Status.FAILED


@given(n=st.integers(1, 500), rand=st.floats(0, 1))
def test_a_backoff_stays_within_its_bounds(n: int, rand: float) -> None:
    backoff = Backoff(base_ms=100, factor=3, cap_ms=9_000, low=0.5, high=1.5)
    nominal = min(9_000, 100 * 3 ** min(n - 1, 64))
    assert nominal * 0.5 - 1 <= backoff.delay_ms(n, rand) <= nominal * 1.5 + 1


def test_the_error_says_itself_whether_to_retry() -> None:
    strict = RetryPolicy(retryable=frozenset({"a"}))
    assert strict.decide(JobError("b", retryable=True), attempt=1, refreshes=0, rand=0).verdict is Verdict.RETRY
    assert DEFAULT.decide(JobError("b", retryable=False), attempt=1, refreshes=0, rand=0).verdict is Verdict.FAIL


def test_the_counters_are_apart() -> None:
    job = a_job(contract="euterpe", attempt_count=5, max_attempts=5, refresh_count=2)
    assert commands.refresh(job).refreshed
    assert commands.fail(job, JobError("503"), rand=0).status is Status.DEAD_LETTER
    assert commands.fail(job._replace(attempt_count=1), JobError("503"), rand=0).status is Status.QUEUED
    assert OUTBOX.max_attempts != EUTERPE.max_attempts


def test_the_first_lost_lease_is_retried_at_once_and_the_next_later() -> None:
    delays = [commands.lose_lease(a_job(lease_losses=n, max_attempts=9), rand=1.0).delay_ms for n in (0, 1)]
    assert delays == [0, 5_000]


def test_a_lost_lease_of_a_job_to_be_cancelled_cancels_it() -> None:
    job = a_job(cancel_requested_at=5, cancel_reason="enough")
    settlement = commands.lose_lease(job, rand=0)
    assert (settlement.status, settlement.expired_only, settlement.cancel_reason) == (Status.CANCELED, True, "enough")
    assert commands.release(job).status is Status.CANCELED
    assert commands.retry(job, JobError("x"), delay_ms=1).status is Status.CANCELED


def test_a_silent_worker_does_not_hold_up_a_cancel() -> None:
    job = a_job()
    assert job.heartbeat_at is not None
    soon, late = job.heartbeat_at + 20_000, job.heartbeat_at + 20_001
    assert commands.request_cancel(job, now=soon, silent_after_ms=20_000).status is Status.RUNNING
    at_once = commands.request_cancel(job, now=late, silent_after_ms=20_000)
    assert (at_once.status, at_once.outcome) == (Status.CANCELED, Outcome.CANCELED)


@pytest.mark.parametrize(
    "policy",
    [
        DEFAULT,
        EUTERPE,
        CORTANA,
        RetryPolicy(max_attempts=7, backoff=Backoff(table_ms=(1, 2)), retryable=frozenset({"x"})),
    ],
)
def test_a_policy_survives_its_text(policy: RetryPolicy) -> None:
    assert read_policy(write_policy(policy)) == policy


@pytest.mark.parametrize(
    "text", ["nonsense", "{", "[]", '{"no_such_field":1}', '{"backoff":{"no":1}}', '{"backoff":3}']
)
def test_a_bad_policy_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob):
        read_policy(text)


def test_an_error_keeps_its_details() -> None:
    text = JobError("S3", "gone", retryable=False, details='{"key":"a"}').json()
    assert text == '{"code":"S3","message":"gone","retryable":false,"details":{"key":"a"}}'
