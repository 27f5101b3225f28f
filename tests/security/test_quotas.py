"""Item 8: one tenant cannot take what others need: queued and running jobs, bytes, streams, requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from callsheet.engine.operations import Operations
from callsheet.engine.quotas import DEFAULTS, NO_LIMITS, Quotas
from callsheet.engine.stored import Stored
from callsheet.http.keys import Principal
from callsheet.http.limits import Limits, Rates
from callsheet.http.problems import Problem
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.http.live import Live, problem
from tests.running_worker import until
from tests.security.site_quotas import JOB, everything, store_url


@pytest.fixture(params=stores.THREE)
def url(request: pytest.FixtureRequest) -> str:
    return store_url(request.param)


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with everything(url, quota={"queued": 5}) as live:
        yield live


async def posted(client: httpx2.AsyncClient, count: int) -> list[httpx2.Response]:
    """Post `count` jobs concurrently."""
    return list(await asyncio.gather(*(client.post("/v1/jobs", json=JOB) for _ in range(count))))


def codes(answers: list[httpx2.Response]) -> dict[int, int]:
    by_name: dict[int, int] = {}
    for answer in answers:
        by_name[answer.status_code] = by_name.get(answer.status_code, 0) + 1
    return by_name


async def test_a_tenant_that_fills_its_quota_leaves_the_others_theirs(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one batch: the operator's first message is in transit until every other request waits."""
    acme, other, enqueue = await live.key("acme"), await live.key("other"), live.engine.enqueue
    has_begun = asyncio.Event()

    async def enqueue_when_all_wait(*args: Any, **options: Any) -> Any:
        has_begun.set()
        monkeypatch.setattr(live.engine, "enqueue", enqueue)
        await until(lambda: len(live.state.batcher._waiting) == 25)
        return await enqueue(*args, **options)

    async with acme, other:
        monkeypatch.setattr(live.engine, "enqueue", enqueue_when_all_wait)
        first = asyncio.create_task(live.client.post("/v1/jobs", json=JOB))
        await has_begun.wait()
        mine, theirs = await asyncio.gather(posted(acme, 20), posted(other, 5))
        assert (await first).status_code == 202
        assert codes(mine) == {202: 5, 429: 15}
        assert codes(theirs) == {202: 5}
        refusal = next(answer for answer in mine if answer.status_code == 429)
        body = problem(refusal, 429, "quota_exceeded")
        assert (body["quota"], body["limit"], body["used"]) == ("queued", 5, 5)
        assert int(refusal.headers["retry-after"]) >= 1
        assert "acme" not in body["detail"]
        await live.engine.claim(ClaimRequest("w", limit=2))  # the operator's, and one of a tenant
        assert codes(await posted(acme, 2) + await posted(other, 1)) == {202: 1, 429: 2}
        assert (await live.client.post("/v1/jobs", json=JOB)).status_code == 202  # an operator's own


async def test_a_replayed_request_is_answered_although_the_quota_is_used_up(live: Live) -> None:
    async with await live.key("acme") as acme:
        key = {"Idempotency-Key": "once"}
        first = await acme.post("/v1/jobs", json=JOB, headers=key)
        await posted(acme, 4)
        again = await acme.post("/v1/jobs", json=JOB, headers=key)
        assert (again.status_code, again.json()["job_id"]) == (202, first.json()["job_id"])
        problem(await acme.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "two"}), 429, "quota_exceeded")


async def test_a_quota_holds_for_two_servers_together(live: Live, url: str) -> None:
    async with (
        everything(url, empty=False, quota={"queued": 5}) as second,
        await live.key("acme") as one,
        httpx2.AsyncClient(base_url=second.url, headers=one.headers, timeout=60) as two,
    ):
        both = await asyncio.gather(posted(one, 10), posted(two, 10))
    assert codes([*both[0], *both[1]]) == {202: 5, 429: 15}
    assert await live.engine.store.queued_of(["acme"], most=99) == [5]


async def test_an_operator_sets_the_quotas_of_one_tenant(live: Live) -> None:
    async with await live.key("acme") as acme, await live.key("other") as other:
        answer = await live.client.put("/v1/quotas/acme", json={"queued": 2, "bytes": 0})
        assert (answer.status_code, answer.json()["own"]) == (200, {"queued": 2, "bytes": 0})
        assert codes(await posted(acme, 3)) == {202: 2, 429: 1}
        body = (await acme.get("/v1/quotas")).json()["quotas"]
        assert [one["tenant"] for one in body] == ["acme"]
        assert body[0]["limits"] == {
            "queued": 2,
            "running": None,
            "bytes": None,
            "streams": 400,
            "rate": 2000,
            "uploads": 1000,
        }
        assert body[0]["used"] == {"queued": 2, "running": 0, "bytes": 0, "streams": 0, "rate": None, "uploads": 0}
        assert body[0]["scope"]["rate"] == "per server process"
        for attempt in (
            acme.put("/v1/quotas/acme", json={"queued": 99}),
            acme.delete("/v1/quotas/acme"),
            other.get("/v1/quotas", params={"tenant": "acme"}),
        ):
            problem(await attempt, 403, "forbidden")
        assert (await live.client.delete("/v1/quotas/acme")).status_code == 204
        assert codes(await posted(acme, 3)) == {202: 3}
        everyone = (await live.client.get("/v1/quotas")).json()["quotas"]
        assert [one["tenant"] for one in everyone] == ["", "acme", "other"]
        one = (await live.client.get("/v1/quotas", params={"tenant": "acme"})).json()["quotas"]
        assert [one["tenant"] for one in one] == ["acme"]


async def test_operators_jobs_have_a_quota_once_one_is_set(live: Live) -> None:
    assert codes(await posted(live.client, 7)) == {202: 7}
    await live.client.put("/v1/quotas/~", json={"queued": 8})
    assert codes(await posted(live.client, 3)) == {202: 1, 429: 2}


async def test_a_tenant_runs_no_more_jobs_than_it_may(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"running": 2})
    async with await live.key("acme") as acme, await live.key("other") as other:
        assert codes(await posted(acme, 4) + await posted(other, 3)) == {202: 7}
        jobs = await live.engine.claim(ClaimRequest("w", limit=50, lease_ms=600_000))
        assert sorted(job.requester_id for job in jobs) == ["acme", "acme", "other", "other", "other"]
        assert (await acme.get("/v1/quotas")).json()["quotas"][0]["used"]["running"] == 2
        assert await live.engine.claim(ClaimRequest("w", limit=50)) == []
        await live.done(next(job for job in jobs if job.requester_id == "acme"))
        assert len(await live.engine.claim(ClaimRequest("w", limit=50))) == 1


async def test_replays_do_not_pass_the_quota(live: Live) -> None:
    """Jobs that end badly are many in the end: replayed together they must not overfill a queue."""
    await live.client.put("/v1/quotas/acme", json={"queued": 3})
    async with await live.key("acme") as acme:
        for _ in range(5):
            await live.fail(await live.running(acme))
        job = (await acme.get("/v1/dead-letters", params={"status": "both"})).json()["dead_letters"]
        assert len(job) == 5
        assert codes(await posted(acme, 2)) == {202: 2}
        first = await acme.post(f"/v1/dead-letters/{job[0]['job_id']}/replay")
        assert first.status_code == 202, first.text
        problem(await acme.post(f"/v1/dead-letters/{job[1]['job_id']}/replay"), 429, "quota_exceeded")
        many = await acme.post("/v1/dead-letters/replay", json={"status": "both"})
        assert many.status_code == 202, many.text
        operations = Operations(live.engine, live.state.quotas)
        assert await operations.sweep() == 0
        assert await live.engine.store.queued_of(["acme"], most=99) == [3]
        body = (await acme.get(f"/v1/operations/{many.json()['operation_id']}")).json()
        assert (body["status"], body["done"]) == ("running", 0)


async def test_a_dead_letter_of_a_tenant_with_slots_comes_back_into_them(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"running": 1})
    async with await live.key("acme") as acme:
        job = await live.running(acme)
        await live.fail(job)
        again = await acme.post(f"/v1/dead-letters/{job.job_id}/replay")
        assert again.status_code == 202, again.text
        await posted(acme, 2)
        assert len(await live.engine.claim(ClaimRequest("w", limit=9, lease_ms=600_000))) == 1


@pytest.mark.parametrize("bad", [{"queued": -1}, {"queued": "5"}, {"queued": 1.5}, {"jobs": 1}, {"rate": 2**60}, [1]])
async def test_what_is_no_quota_is_refused(live: Live, bad: object) -> None:
    assert (await live.client.put("/v1/quotas/acme", json=bad)).status_code == 422
    assert (await live.client.get("/v1/quotas", params={"tenant": "acme"})).json()["quotas"][0]["own"] == {}


async def begun(client: httpx2.AsyncClient, size: int) -> httpx2.Response:
    return await client.post("/v1/uploads", json={"name": "a.bin", "size": size})


async def test_stored_bytes_are_counted_by_tenant_and_given_back(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"bytes": 1_000})
    async with await live.key("acme") as acme, await live.key("other") as other:
        first = await begun(acme, 600)
        assert first.status_code == 201
        body = problem(await begun(acme, 600), 429, "quota_exceeded")
        assert (body["quota"], body["limit"], body["used"]) == ("bytes", 1_000, 600)
        assert (await begun(other, 600)).status_code == 201
        (part,) = first.json()["todo"]
        response = await acme.put(part["url"], content=b"x" * 600, headers=part["headers"])
        assert response.status_code < 300
        assert (await acme.post(f"/v1/uploads/{first.json()['upload_id']}/complete")).status_code == 200
        problem(await begun(acme, 401), 429, "quota_exceeded")
        second = await begun(acme, 400)
        assert second.status_code == 201
        upload = f"/v1/uploads/{second.json()['upload_id']}"
        assert (await acme.delete(upload)).status_code == 204
        assert (await acme.delete(upload)).status_code == 404  # and is not given back twice
        assert (await acme.get("/v1/quotas")).json()["quotas"][0]["used"]["bytes"] == 600


async def test_many_uploads_at_once_do_not_pass_the_quota(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"bytes": 1_000})
    async with await live.key("acme") as acme:
        answers = await asyncio.gather(*(begun(acme, 300) for _ in range(10)))
        assert codes(list(answers)) == {201: 3, 429: 7}
        assert await live.state.quotas.stored_bytes("acme") == 900


async def open_uploads(client: httpx2.AsyncClient) -> int:
    return int((await client.get("/v1/quotas")).json()["quotas"][0]["used"]["uploads"])


async def test_open_uploads_are_counted_by_tenant_and_given_back(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"uploads": 2})
    async with await live.key("acme") as acme, await live.key("other") as other:
        first, second = await begun(acme, 3), await begun(acme, 3)
        assert (first.status_code, second.status_code) == (201, 201)
        refusal = await begun(acme, 3)
        body = problem(refusal, 429, "quota_exceeded")
        assert (body["quota"], body["limit"], body["used"]) == ("uploads", 2, 2)
        assert refusal.headers["retry-after"]
        assert await live.state.quotas.stored_bytes("acme") == 6, "what was refused is not counted"
        assert (await begun(other, 3)).status_code == 201
        (part,) = first.json()["todo"]
        assert (await acme.put(part["url"], content=b"abc", headers=part["headers"])).status_code < 300
        for _ in range(2):  # a second time gives nothing back
            assert (await acme.post(f"/v1/uploads/{first.json()['upload_id']}/complete")).status_code == 200
        assert await open_uploads(acme) == 1
        assert (await begun(acme, 3)).status_code == 201
        problem(await begun(acme, 3), 429, "quota_exceeded")
        assert (await acme.delete(f"/v1/uploads/{second.json()['upload_id']}")).status_code == 204
        assert (await begun(acme, 3)).status_code == 201
        assert await open_uploads(acme) == 2


async def test_many_beginnings_at_once_do_not_pass_the_quota_of_uploads(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"uploads": 3})
    async with await live.key("acme") as acme:
        answers = await asyncio.gather(*(begun(acme, 1) for _ in range(10)))
        assert codes(list(answers)) == {201: 3, 429: 7}
        assert await open_uploads(acme) == 3


async def test_uploads_that_a_crash_left_counted_are_counted_anew(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"uploads": 3})
    await live.state.quotas.bytes.keep("acme", Stored({}, open_uploads=3))
    async with await live.key("acme") as acme:
        assert (await begun(acme, 1)).status_code == 201
        assert await open_uploads(acme) == 1


async def test_a_file_that_is_just_beginning_is_not_counted_out_of_the_quota(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"bytes": 1_000})
    await live.state.quotas.charge("acme", 900)  # and its upload is not written down yet
    async with await live.key("acme") as acme:
        problem(await begun(acme, 300), 429, "quota_exceeded")
        assert await live.state.quotas.stored_bytes("acme") == 900


async def test_files_that_an_operator_deleted_are_not_counted_any_more(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"bytes": 1_000})
    await live.state.quotas.add("acme", 5_000)  # of objects that are gone from the storage
    async with await live.key("acme") as acme:
        assert (await begun(acme, 700)).status_code == 201
        assert await live.state.quotas.stored_bytes("acme") == 700


async def test_streams_are_counted_by_tenant_too() -> None:
    async with everything(stores.fresh_url("sqlite"), quota={"streams": 2}) as live:
        keys = [await live.key("acme") for _ in range(3)]
        async with await live.key("other") as other, keys[0], keys[1], keys[2]:
            job, theirs = await live.job(keys[0]), await live.job(other)
            async with keys[0].stream("GET", f"/v1/jobs/{job}/events"), keys[1].stream("GET", f"/v1/jobs/{job}/events"):
                async with keys[2].stream("GET", f"/v1/jobs/{job}/events") as third:
                    assert third.status_code == 429
                    await third.aread()
                body = problem(third, 429, "quota_exceeded")
                assert (body["quota"], body["limit"], body["used"]) == ("streams", 2, 2)
                async with other.stream("GET", f"/v1/jobs/{theirs}/events") as open_one:
                    assert open_one.status_code == 200


def test_many_keys_of_a_tenant_share_its_rate() -> None:
    rates, quota = Rates(100), NO_LIMITS._replace(rate=10)

    def somebody(tenant: str, n: int) -> Principal:
        return Principal(f"{tenant}{n}", tenant, frozenset({"jobs:read"}))

    def taken(tenant: str) -> int:
        pass_count = 0
        for n in range(100):
            with contextlib.suppress(Problem):
                rates.check(somebody(tenant, n), 0.0, quota)
                pass_count += 1
        return pass_count

    assert (taken("acme"), taken("other"), taken("")) == (20, 20, 100)
    with pytest.raises(Problem) as excinfo:
        rates.check(somebody("acme", 1), 0.0, quota)
    assert (excinfo.value.code, excinfo.value.more["quota"]) == ("quota_exceeded", "rate")
    assert int(excinfo.value.headers["Retry-After"]) >= 1


def test_by_default_no_tenant_can_fill_a_queue() -> None:
    assert 0 < (DEFAULTS.queued or 0) < Limits().queue_depth
    assert Limits().quota == Limits().share == DEFAULTS
    assert [Limits(queue_depth=depth).share.queued for depth in (3, 10, 1_000, 0)] == [1, 2, 200, 20_000]
    assert Limits(queue_depth=10, quota=DEFAULTS._replace(queued=0)).share.queued == 0


async def test_in_a_short_queue_there_is_room_for_others_too(url: str) -> None:
    async with (
        everything(url, limits={"queue_depth": 5}) as live,
        await live.key("acme") as acme,
        await live.key("other") as other,
    ):
        assert codes(await posted(acme, 20)) == {202: 1, 429: 19}
        assert codes(await posted(other, 1)) == {202: 1}


async def test_a_quota_set_elsewhere_is_seen_after_a_refresh(live: Live) -> None:
    await Quotas(live.engine.store).set("acme", {"queued": 1})
    await live.state.quotas.refresh(now=True)
    async with await live.key("acme") as acme:
        assert codes(await posted(acme, 2)) == {202: 1, 429: 1}


async def test_the_first_requests_of_a_server_are_held_to_what_was_set(live: Live) -> None:
    """Concurrent requests at a process' start: each waits until the quotas are loaded."""
    await Quotas(live.engine.store).set("acme", {"queued": 1})
    fresh = Quotas(live.engine.store, DEFAULTS)

    async def first() -> int | None:
        await fresh.refresh()
        return fresh.limits_of("acme").queued

    assert await asyncio.gather(*(first() for _ in range(20))) == [1] * 20


async def test_nobody_guesses_known_keys_out_of_memory(live: Live) -> None:
    keys = live.state.keys
    assert keys is not None
    text = await live.text("acme")
    assert await keys.principal(text) is not None
    keys._unknown._most = 10
    for n in range(50):
        assert await keys.principal(f"guess {n}") is None
    assert (len(keys._unknown), len(keys._principals)) == (10, 1)
