from __future__ import annotations

import random
from collections import Counter
from email.utils import formatdate

import pytest

from callsheet.kernel.job import Delivery, OutboxEvent
from callsheet.outbox.decide import Outcome, attempts_in, log_of, retry_after_ms, settlement_of, timing
from tests.store_driver import T0

DAY = 86_400_000


def event(attempts: int = 0, error: str | None = None) -> OutboxEvent:
    return OutboxEvent(
        "e", "j", "r", "https://h/", "{}", Delivery.DELIVERING, T0, attempts, "w", 1, T0, T0, T0, None, error
    )


def attempts_of(outcome: Outcome, most: int = 40) -> list[tuple[Delivery, int]]:
    """Return every attempt of an event with a constant outcome."""
    row = event()
    results: list[tuple[Delivery, int]] = []
    while len(results) < most:
        settlement = settlement_of(row, outcome, at_ms=T0, rand=1.0)
        results.append((settlement.status, settlement.delay_ms))
        if settlement.status is not Delivery.PENDING:
            break
        row = row._replace(attempt_count=row.attempt_count + 1, error=settlement.error)
    return results


def end_of(status: int) -> tuple[int, Delivery]:
    if 200 <= status < 300:
        return 1, Delivery.DELIVERED
    if status == 410:
        return 1, Delivery.DEAD_LETTER
    refusal = 300 <= status < 500 and status not in {408, 409, 423, 425, 429}
    return 3 if refusal else 20, Delivery.DEAD_LETTER


def test_every_status_has_its_end() -> None:
    results = {status: attempts_of(Outcome(status, took_ms=5)) for status in range(100, 600)}
    assert {s: (len(ends), ends[-1][0]) for s, ends in results.items()} == {s: end_of(s) for s in results}


@pytest.mark.parametrize("code", ["unreachable", "timeout", "bad_answer", "tls_failed"])
def test_no_answer_is_tried_again_for_three_days(code: str) -> None:
    ends = attempts_of(Outcome(0, code))
    delays = [delay for _, delay in ends[:-1]]
    assert (delays[0], delays[1], max(delays), len(ends)) == (5_000, 10_000, DAY, 20)
    assert 70 < sum(delays) / 2 / 3_600_000 < 72  # on average: the jitter halves them


def test_a_refusal_between_other_failures_begins_to_count_anew() -> None:
    row = event()
    for status in (404, 404, 503, 404, 404):
        settlement = settlement_of(row, Outcome(status, took_ms=1), at_ms=T0, rand=0.5)
        assert settlement.status is Delivery.PENDING
        row = row._replace(attempt_count=row.attempt_count + 1, error=settlement.error)
    dead = settlement_of(row, Outcome(404, took_ms=1), at_ms=T0, rand=0.5)
    assert (dead.status, log_of(dead.error)["reason"]) == (Delivery.DEAD_LETTER, "refused")
    replayed_job = row._replace(attempt_count=0, error=dead.error)
    assert settlement_of(replayed_job, Outcome(404, took_ms=1), at_ms=T0, rand=0.5).status is Delivery.PENDING


def test_retries_are_spread_without_a_peak() -> None:
    chance = random.Random(7)
    delays = [settlement_of(event(5), Outcome(503), at_ms=T0, rand=chance.random()).delay_ms for _ in range(10_000)]
    buckets = Counter(delay // 1000 for delay in delays)
    assert max(buckets.values()) <= 2 * len(delays) / 160


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("120", 120_000),
        (" 0 ", 0),
        ("999999999999999", DAY),
        (formatdate(T0 / 1000 + 60, usegmt=True), 60_000),
        (formatdate(T0 / 1000 - 60, usegmt=True), 0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("١٢", None),
    ],
)
def test_a_retry_after_is_read(text: str, expected: int | None) -> None:
    assert retry_after_ms(text, T0) == expected


def test_a_retry_after_makes_a_wait_longer_and_never_shorter() -> None:
    for wait, expected in ((60_000, 60_000), (1_000, 2_500), (2 * DAY, DAY)):
        settlement = settlement_of(event(), Outcome(429, retry_after_ms=wait), at_ms=T0, rand=0.5)
        assert settlement.delay_ms == expected


def test_the_log_keeps_little() -> None:
    row = event()
    for _ in range(30):
        error = settlement_of(row, Outcome(500, took_ms=6_000, response=b"\xff\x00" * 4000), at_ms=T0, rand=0).error
        row = row._replace(error=error)
    assert len(attempts_in(row.error)) == 20
    assert len(log_of(row.error)["response"]) <= 1024
    assert attempts_in(row.error)[0]["timing"] == "under_15s"
    assert "\x00" not in log_of(row.error)["response"]
    assert [timing(ms) for ms in (0, 999, 1_000, 5_000, 15_000, None)] == [
        "under_1s", "under_1s", "under_5s", "under_15s", "timeout", "timeout",
    ]  # fmt: skip


@pytest.mark.parametrize("text", [None, "", '"gone"', "[1]", "not json", '{"attempts": 5}', '{"attempts": [1]}'])
def test_a_log_of_another_making_does_no_harm(text: str | None) -> None:
    assert attempts_in(text) == []
    assert settlement_of(event(1, text), Outcome(500), at_ms=T0, rand=0).status is Delivery.PENDING
