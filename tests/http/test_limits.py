"""Limits of one client, and their effect on others: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import math

import pytest

from callsheet.http.buckets import BURST_S, Buckets, RecentCache
from callsheet.http.keys import Principal
from callsheet.http.limits import Limits, Rates, Streams
from callsheet.http.problems import Problem
from tests import stores
from tests.http.conftest import postgres_url
from tests.http.live import Live, problem, serving

JOB = {"task": "chat", "payload": {}}


def somebody(key_id: str = "k", *scopes: str, rate: float | None = None) -> Principal:
    return Principal(key_id, "a", frozenset(scopes), rate)


def taken(rates: Rates, who: Principal, now: float, most: int = 10_000) -> int:
    """Return the number of requests admitted at one moment."""
    count = 0
    with contextlib.suppress(Problem):
        while count < most:
            rates.check(who, now)
            count += 1
    return count


def test_a_key_may_send_its_rate_and_a_burst() -> None:
    rates = Rates(10)
    assert taken(rates, somebody(), 100.0) == 10 * BURST_S
    assert taken(rates, somebody(), 100.05) == 0
    assert taken(rates, somebody(), 100.55) == 5
    assert taken(rates, somebody(), 1000.0) == 10 * BURST_S  # no more than a burst is saved up


def test_the_time_to_wait_is_told_and_true() -> None:
    rates = Rates(0.25)
    taken(rates, somebody(), 0.0)
    with pytest.raises(Problem) as excinfo:
        rates.check(somebody(), 0.0)
    wait_s = int(excinfo.value.headers["Retry-After"])
    assert (excinfo.value.status, excinfo.value.code, wait_s) == (429, "too_many_requests", 4)
    rates.check(somebody(), float(wait_s))


def test_each_key_has_its_own_rate_and_admins_have_none() -> None:
    rates = Rates(10)
    assert taken(rates, somebody("slow", rate=1), 0.0) == 1 * BURST_S
    assert taken(rates, somebody("other"), 0.0) == 10 * BURST_S
    assert taken(rates, somebody("admin", "admin"), 0.0) == 10_000


def test_a_rate_below_one_lets_some_through() -> None:
    rates = Rates(0.1)
    count = sum(taken(rates, somebody(), float(t)) for t in range(0, 1000, 10))
    assert 90 <= count <= 110


def test_many_names_do_not_fill_the_memory_and_reset_nobody() -> None:
    buckets = Buckets(100)
    for _ in range(20):
        assert buckets.take("debtor", 10, 0.0) == 0
    assert buckets.take("debtor", 10, 0.0) == 1
    pass_count = sum(buckets.take(f"n{n}", 10, 0.0) == 0 for n in range(1000))
    assert (pass_count, len(buckets)) == (99 + 20, 101)  # those without a bucket of their own share one
    assert buckets.take("debtor", 10, 0.0) == 1
    assert buckets.take("debtor", 10, 1.0) == 0


def test_full_buckets_make_room_for_new_ones() -> None:
    buckets = Buckets(100)
    for n in range(1000):
        assert buckets.take(f"n{n}", 10, float(n)) == 0
    assert len(buckets) <= 100
    slow = Buckets(100)
    assert slow.take("slow", 0.01, 0.0) == 0
    for n in range(1000):
        assert slow.take(f"n{n}", 10, n / 20) == 0
    assert slow.take("slow", 0.01, 50.0) == 50


def test_what_is_kept_of_late_is_the_last() -> None:
    recent: RecentCache[int] = RecentCache(10)
    for n in range(100):
        recent.put(str(n), n)
    assert (len(recent), recent.get("89"), recent.get("90"), recent.get("99")) == (10, None, 90, 99)


def test_streams_are_counted_by_key_and_forgotten() -> None:
    streams = Streams(2)
    for _ in range(2):
        streams.enter(somebody())
    with pytest.raises(Problem) as excinfo:
        streams.enter(somebody())
    assert (excinfo.value.status, excinfo.value.code) == (429, "too_many_streams")
    assert int(excinfo.value.headers["Retry-After"]) >= 1
    streams.enter(somebody("other"))
    streams.leave(somebody())
    streams.enter(somebody())
    for who in ("k", "k", "other"):
        streams.leave(somebody(who))
    assert (streams.total, dict(streams._of_keys)) == (0, {})


async def test_a_key_over_its_rate_gets_429_and_others_do_not(small: Live) -> None:
    """One request every 15 minutes: the next is not in time, however slow the machine."""
    async with await small.key("a", rate=0.001) as busy, await small.key("a") as other:
        answers = [await busy.get("/v1/jobs") for _ in range(20)]
        refusals = [answer for answer in answers if answer.status_code == 429]
        assert len(refusals) == 19
        for answer in refusals:
            problem(answer, 429, "too_many_requests")
            assert int(answer.headers["retry-after"]) >= 1
        assert [(await other.get("/v1/jobs")).status_code for _ in range(20)] == [200] * 20


@pytest.fixture(params=stores.THREE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_full_queue_refuses_and_leaves_nothing(kind: str) -> None:
    url = postgres_url() if kind == "postgres" else stores.fresh_url(kind)
    async with serving(url, limits=Limits(queue_depth=3)) as live:
        await stores.empty({url: live.engine.store})
        jobs = [await live.job() for _ in range(3)]
        for headers in ({}, {"Idempotency-Key": "k"}):
            answer = await live.client.post("/v1/jobs", json=JOB, headers=headers)
            body = problem(answer, 429, "queue_full")
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert body["depth"] >= 3
            assert body["estimated_wait_s"] >= 0
            assert math.isfinite(body["estimated_wait_s"])
        assert {job["job_id"] for job in (await live.client.get("/v1/jobs")).json()["jobs"]} == set(jobs)
        assert await live.engine.store.idempotency_record("", "k") is None
        await live.client.post(f"/v1/jobs/{jobs[0]}/cancel")
        answer = await live.client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (202, None)
        again = await live.client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.content) == (202, answer.content)  # a replay needs no place


@pytest.mark.parametrize("is_keyed", [False, True])
async def test_many_at_once_get_the_places_that_there_are(kind: str, *, is_keyed: bool) -> None:
    url = postgres_url() if kind == "postgres" else stores.fresh_url(kind)
    async with serving(url, limits=Limits(queue_depth=10)) as live:
        await stores.empty({url: live.engine.store})
        headers = [{"Idempotency-Key": f"k{n}"} if is_keyed else {} for n in range(50)]
        answers = await asyncio.gather(*(live.client.post("/v1/jobs", json=JOB, headers=h) for h in headers))
        created_jobs = {answer.json()["job_id"] for answer in answers if answer.status_code == 202}
        assert {answer.status_code for answer in answers} == {202, 429}
        assert {job["job_id"] for job in (await live.client.get("/v1/jobs?limit=200")).json()["jobs"]} == created_jobs
        if kind == "postgres" and is_keyed:  # batches at one moment may pass together, each of one job
            assert 10 <= len(created_jobs) <= 30
        else:
            assert len(created_jobs) == 10


async def test_without_a_limit_a_queue_is_never_full(small: Live) -> None:
    async with serving(stores.fresh_url("sqlite"), limits=Limits(queue_depth=0)) as live:
        assert len({await live.job() for _ in range(20)}) == 20


async def test_a_refused_batch_gives_each_request_its_own_answer(small: Live) -> None:
    good = [small.client.post("/v1/jobs", json=JOB) for _ in range(20)]
    large = [small.client.post("/v1/jobs", json={**JOB, "payload": {"a": "x" * 210_000}}) for _ in range(3)]
    answers = await asyncio.gather(*good, *large)
    assert [answer.status_code for answer in answers] == [202] * 20 + [413] * 3
    assert len({answer.json()["job_id"] for answer in answers[:20]}) == 20


async def test_a_client_that_gives_up_waiting_harms_no_other(small: Live) -> None:
    impatient = [asyncio.create_task(small.client.post("/v1/jobs", json=JOB)) for _ in range(30)]
    await asyncio.sleep(0)
    for task in impatient[::2]:
        task.cancel()
    answers = await asyncio.gather(*impatient, return_exceptions=True)
    assert [answer.status_code for answer in answers if not isinstance(answer, BaseException)] == [202] * 15
    assert await small.job()
