"""What people who look on ask for: ends by time, dead letters by kind, the load of workers; jobs counted per word."""

from __future__ import annotations

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import EndedCount, JobQuery, WorkerLoad
from tests.store_driver import T0, StoreDriver

SPAN = 10_000
BEGIN = T0 - T0 % SPAN


async def ends(driver: StoreDriver, since: int = 0, requester_id: str | None = None) -> set[EndedCount]:
    return set(await driver.store.ended_counts(since=since, span_ms=SPAN, requester_id=requester_id))


@pytest.mark.guarantee("S36")
async def test_endings_are_counted_by_span_kind_and_end(driver: StoreDriver) -> None:
    assert await ends(driver) == set()
    driver.later(BEGIN + SPAN - T0)  # to the beginning of a span
    for _ in range(2):
        await driver.done(await driver.running(kind="a", requester_id="me"))
    await driver.settle(commands.dead_letter(await driver.running(kind="b", requester_id="you"), JobError("broke")))
    await driver.settle(commands.cancel(await driver.get(await driver.add(kind="a", requester_id="you"))))
    await driver.add(kind="a")  # waits
    driver.later(SPAN)
    await driver.done(await driver.running(kind="z", queue="q", requester_id="me"))
    first, second = BEGIN + SPAN, BEGIN + 2 * SPAN
    later = EndedCount(second, "z", Status.SUCCEEDED, 1)
    mine = {EndedCount(first, "a", Status.SUCCEEDED, 2), later}
    yours = {EndedCount(first, "b", Status.DEAD_LETTER, 1), EndedCount(first, "a", Status.CANCELED, 1)}
    assert await ends(driver) == mine | yours
    assert await ends(driver, requester_id="me") == mine
    assert await ends(driver, requester_id="you") == yours
    assert await ends(driver, requester_id="") == set()
    assert await ends(driver, second) == {later}
    assert await ends(driver, second + 1) == set()


@pytest.mark.guarantee("S36")
async def test_a_job_that_was_brought_back_has_not_ended(driver: StoreDriver) -> None:
    job = await driver.running(kind="a")
    await driver.settle(commands.dead_letter(job, JobError("broke")))
    assert await driver.store.dead_letters() == {"a": 1}
    await driver.settle(commands.requeue(await driver.get(job.job_id)))
    assert await ends(driver) == set()
    assert await driver.store.dead_letters() == {}


@pytest.mark.guarantee("S36")
async def test_dead_letters_are_counted_by_kind_and_requester(driver: StoreDriver) -> None:
    for kind, requester in [("a", "me"), ("a", "you"), ("b", "me")]:
        await driver.settle(
            commands.dead_letter(await driver.running(kind=kind, requester_id=requester), JobError("broke"))
        )
    await driver.settle(
        commands.fail(await driver.running(kind="c", requester_id="me"), JobError("x", "", False), rand=0)
    )
    await driver.done(await driver.running(kind="a", requester_id="me"))
    assert await driver.store.dead_letters() == {"a": 2, "b": 1}
    assert await driver.store.dead_letters("me") == {"a": 1, "b": 1}
    assert await driver.store.dead_letters("nobody") == {}


@pytest.mark.guarantee("S36")
async def test_the_load_of_workers_is_their_running_jobs(driver: StoreDriver) -> None:
    assert await driver.store.worker_loads() == []
    begun = driver.now
    await driver.add(requester_id="me")
    first = await driver.claim_one(worker="w2")
    await driver.add(requester_id="you")
    await driver.claim_one(worker="w1")
    driver.later(100)
    await driver.add(requester_id="me")
    await driver.claim_one(worker="w2")
    assert await driver.store.worker_loads() == [WorkerLoad("w1", 1, begun), WorkerLoad("w2", 2, driver.now)]
    assert await driver.store.worker_loads("you") == [WorkerLoad("w1", 1, begun)]
    driver.later(100)
    await driver.store.heartbeat([first.claim], lease_ms=30_000, now=driver.now)
    assert (await driver.store.worker_loads("me"))[0].heartbeat_at == driver.now
    await driver.done(first)
    assert [(load.worker_id, load.running) for load in await driver.store.worker_loads("me")] == [("w2", 1)]


@pytest.mark.guarantee("S20")
async def test_find_looks_for_a_text_in_what_a_job_says(driver: StoreDriver) -> None:
    by_payload = await driver.add(payload='{"title": "The HARBOUR at dawn, 50 %_off"}', requester_id="me")
    by_kind = await driver.add(kind="harbour.scan", requester_id="me")
    by_correlation = await driver.add(correlation_id="Order-harbour-7", requester_id="me")
    failed_job = await driver.running(requester_id="you", queue="q")
    await driver.settle(commands.dead_letter(failed_job, JobError("broke", "no harbour here")))

    async def ids(text: str, requester_id: str | None = None, **more: object) -> list[str]:
        page = await driver.store.find(JobQuery(requester_id, text=text, **more))  # type: ignore[arg-type]
        return [job.job_id for job in page.jobs]

    assert await ids("harBour") == [failed_job.job_id, by_correlation, by_kind, by_payload]
    assert await ids("harbour", "me") == [by_correlation, by_kind, by_payload]
    assert await ids("harbour", statuses=(Status.DEAD_LETTER,)) == [failed_job.job_id]
    assert await ids(by_kind.upper()) == [by_kind]
    assert await ids("%_off") == [by_payload]
    for nothing in ("harbour%", "'; --", '"]', "ünknown", "x" * 10_000, "\U0001f3ac", ".*"):
        assert await ids(nothing) == []
    page = await driver.store.find(JobQuery("me", text="harbour", limit=2))
    rest = await driver.store.find(JobQuery("me", text="harbour", limit=2, cursor=page.cursor))
    assert [job.job_id for job in (*page.jobs, *rest.jobs)] == [by_correlation, by_kind, by_payload]


@pytest.mark.guarantee("S20")
async def test_a_page_that_looks_at_few_jobs_goes_on_by_its_cursor(driver: StoreDriver) -> None:
    first = await driver.add(kind="rare")
    for _ in range(12):
        await driver.add(kind="often")
    last = await driver.add(kind="rare")
    results, cursor, pages = list[str](), None, 0
    while cursor is not None or not pages:
        page = await driver.store.find(JobQuery(kind="rare", scan_limit=5, cursor=cursor))
        results, cursor, pages = results + [job.job_id for job in page.jobs], page.cursor, pages + 1
        assert pages < 10
    assert results == [last, first]
    whole = await driver.store.find(JobQuery(limit=14, scan_limit=1_000))
    assert len(whole.jobs) == 14
    assert [job.job_id for job in (await driver.store.find(JobQuery(kind="rare", scan_limit=1_000))).jobs] == [
        last,
        first,
    ]
