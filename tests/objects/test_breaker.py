"""The storage's circuit breaker: failures in a row open it, one request at a time tries whether it is back."""

from __future__ import annotations

import pytest

from callsheet.objects.credentials import Credentials, HeldCredentials
from callsheet.objects.errors import ObjectNotFound, ObjectsUnavailable
from callsheet.objects.s3 import S3Objects
from callsheet.objects.s3_wire import Bucket
from callsheet.objects.storage_breaker import FAILURES, StorageBreaker, breaker_of

AWAY = ObjectsUnavailable("away")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(clock: Clock) -> StorageBreaker:
    breaker = StorageBreaker(clock)
    for _ in range(FAILURES):
        breaker.check("get x")
        breaker.note(AWAY)
    return breaker


def test_after_failures_in_a_row_requests_fail_at_once(opened: StorageBreaker) -> None:
    with pytest.raises(ObjectsUnavailable, match="5 times in a row, the next try is in 1 s"):
        opened.check("get x")


def test_one_request_tries_and_the_pause_doubles_to_a_minute(opened: StorageBreaker, clock: Clock) -> None:
    for pause_s in (1, 2, 4, 8, 16, 32, 60, 60):
        clock.now += pause_s - 0.5
        with pytest.raises(ObjectsUnavailable):
            opened.check("get x")
        clock.now += 0.5
        opened.check("get x")
        with pytest.raises(ObjectsUnavailable):
            opened.check("get x")
        opened.note(AWAY)


def test_requests_that_were_under_way_make_no_pause_longer(opened: StorageBreaker, clock: Clock) -> None:
    for _ in range(20):
        opened.note(AWAY)
    clock.now += 1
    opened.check("get x")


@pytest.mark.parametrize("answer", [None, ObjectNotFound("none")])
def test_any_answer_closes_it(opened: StorageBreaker, clock: Clock, answer: Exception | None) -> None:
    clock.now += 1
    opened.check("get x")
    opened.note(answer)
    for _ in range(FAILURES - 1):
        opened.note(AWAY)
    opened.check("get x")


def test_all_of_a_process_share_the_breaker_of_their_storage() -> None:
    assert breaker_of("http://a/bucket") is breaker_of("http://a/bucket")
    assert breaker_of("http://a/bucket") is not breaker_of("http://a/other")


async def test_a_storage_that_is_away_is_not_asked_while_its_breaker_is_open(opened: StorageBreaker) -> None:
    bucket = Bucket("media", "http://127.0.0.1:1", "us-east-1")
    async with S3Objects(bucket, HeldCredentials(Credentials("key", "a-secret")), breaker=opened) as objects:
        with pytest.raises(ObjectsUnavailable, match="times in a row"):
            await objects.head("x")
        with pytest.raises(ObjectsUnavailable, match="times in a row"):
            await objects.begin_multipart("x", part_bytes=5 << 20)
