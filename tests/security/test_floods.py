"""Requests that are cheap and leave something behind: no tenant can fill the store or the queue with them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from callsheet.app.sealing import VaultSealer
from callsheet.contracts.control_plane import follow_ups, moves, waiting
from callsheet.contracts.control_plane.claims import WAITING
from callsheet.engine import operations
from callsheet.http import limits
from callsheet.http.limits import WEEK_S, WorkerNames
from callsheet.http.worker_registry import SEEN
from callsheet.outbox import Endpoints
from callsheet.outbox.endpoints import MOST_ENDPOINTS, TooManyEndpoints
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring
from tests import stores
from tests.contracts.control_plane.remote import parked
from tests.http.live import Live, problem
from tests.running_worker import until
from tests.security.site_quotas import everything, store_url
from tests.security.test_bound_workers import Worker, add, enrolled, keyed

QUOTA = 10
FAN = [{"task": "next"}] * 4


@pytest.fixture(params=stores.THREE)
def url(request: pytest.FixtureRequest) -> str:
    return store_url(request.param)


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with everything(url, quota={"queued": QUOTA}, housekeeping=False) as live:
        yield live


async def held(live: Live, worker: Worker, count: int) -> list[dict[str, Any]]:
    """Jobs of `acme` that a worker holds."""
    for _ in range(count):
        await add(live, "acme")
    jobs = await worker.claim(max_jobs=count)
    return list(jobs.get("jobs") or [jobs])


async def queued(live: Live, tenant: str = "acme") -> int:
    (count,) = await live.engine.store.queued_of([tenant], most=999)
    return count


def ended(got: dict[str, Any], follow_ups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a success move with follow-ups."""
    return {name: got[name] for name in ("job_id", "attempt_id", "lease_token")} | {
        "do": "complete",
        "follow_ups": follow_ups,
    }


def count_when_all_are_here(live: Live, patch: pytest.MonkeyPatch, requests: int) -> None:
    """Delay counting until `count` requests have reached the check."""
    all_here, quotas, arrivals = asyncio.Event(), live.state.quotas, itertools.count(1)
    places_of, room = follow_ups.places_of, quotas.room

    def noting(*arguments: Any) -> Any:
        if next(arrivals) == requests:
            all_here.set()
        return places_of(*arguments)

    async def room_of(requester_id: str) -> int | None:
        await all_here.wait()
        return await room(requester_id)

    patch.setattr(moves, "places_of", noting)
    patch.setattr(quotas, "room", room_of)


@pytest.mark.parametrize("make", [lambda live: keyed(live, "acme"), lambda live: enrolled(live, tenants=["acme"])])
async def test_follow_ups_of_a_tenants_worker_stay_within_its_quota(
    live: Live, make: Callable[[Live], Awaitable[Worker]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit holds within one request, across concurrent requests, and on the dedicated route."""
    worker = await make(live)
    jobs = await held(live, worker, 10)
    answer = await worker.send("moves", moves=[ended(claim, FAN) for claim in jobs[:4]])
    body = [move.get("code", "ok") for move in answer.json()["answers"]]
    assert body == ["ok", "ok", "quota_exceeded", "quota_exceeded"]
    assert await queued(live) == 8
    with monkeypatch.context() as patch:
        count_when_all_are_here(live, patch, 4)
        many = await asyncio.gather(*(worker.move(claim, do="complete", follow_ups=FAN[:2]) for claim in jobs[4:8]))
    assert Counter(move.get("code", "ok") for move in many) == {"ok": 1, "quota_exceeded": 3}
    assert await queued(live) == QUOTA
    refusal = problem(await worker.say("complete", jobs[8], follow_ups=FAN), 429, "quota_exceeded")
    assert (refusal["quota"], refusal["limit"], refusal["used"]) == ("queued", QUOTA, QUOTA)
    assert (await live.engine.get(jobs[8]["job_id"])).status.value == "running"


async def test_one_job_may_follow_in_the_place_of_another(live: Live) -> None:
    """A running job must be able to end, and a chain of jobs to continue."""
    worker = await keyed(live, "acme")
    (job,) = await held(live, worker, 1)
    for _ in range(QUOTA):
        await add(live, "acme")
    assert (await worker.move(job, do="complete", follow_ups=FAN[:1]))["ok"]
    assert await queued(live) == QUOTA + 1


async def test_workers_of_operators_and_tenants_without_a_quota_create_what_they_like(live: Live) -> None:
    worker, free = await keyed(live, ""), await keyed(live, "globex")
    (job,) = await held(live, worker, 1)
    assert (await worker.move(job, do="complete", follow_ups=FAN * 5))["ok"]
    assert await queued(live) == 20
    await live.client.put("/v1/quotas/globex", json={"queued": 0})
    await add(live, "globex")
    assert (await free.move(await free.claim(), do="complete", follow_ups=FAN * 5))["ok"]
    assert await queued(live, "globex") == 20


def replay(client: httpx2.AsyncClient, **headers: str) -> Awaitable[httpx2.Response]:
    """Begin an operation."""
    return client.post("/v1/dead-letters/replay", json={"rate": 0.001}, headers=headers)


async def test_a_tenant_has_so_many_open_operations(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also applies to many simultaneous starts.

    A repeated request gets its earlier answer, and other tenants start theirs.
    """
    monkeypatch.setattr(operations, "MOST_OPEN", 5)
    async with await live.key("acme") as acme, await live.key("globex") as globex:
        first = await replay(acme, **{"Idempotency-Key": "a"})
        answers = await asyncio.gather(*(replay(acme) for _ in range(12)))
        assert Counter(answer.status_code for answer in answers) == {202: 4, 429: 8}
        body = problem(next(a for a in answers if a.status_code == 429), 429, "too_many_requests")
        assert "5 operations" in body["detail"]
        again = await replay(acme, **{"Idempotency-Key": "a"})
        assert (again.status_code, again.json()["operation_id"]) == (202, first.json()["operation_id"])
        assert (await replay(globex)).status_code == 202
        assert (await replay(live.client)).status_code == 202
        stop = f"/v1/operations/{first.json()['operation_id']}/stop"
        assert (await acme.post(stop)).is_success
        assert (await replay(acme)).status_code == 202


async def test_ended_operations_of_a_tenant_make_room_for_new_ones(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_OF_TENANT", 3)
    store = live.engine.store
    async with await live.key("acme") as acme, await live.key("globex") as globex:
        theirs = (await replay(globex)).json()["operation_id"]
        operations_made = []
        for _ in range(6):
            operations_made.append((await replay(acme)).json()["operation_id"])
            assert await operations.stop(store, operations_made[-1]) is not None
        documents = {document.id for document in await store.documents(operations.KIND)}
    assert documents == {theirs, *operations_made[-3:]}


async def test_operators_begin_what_they_like(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_OPEN", 1)
    for _ in range(3):
        assert (await replay(live.client)).status_code == 202
    assert len(await live.engine.store.documents(operations.KIND)) == 3


async def test_ever_new_names_of_a_tenants_workers_are_not_all_noted(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_NAMES", 3)
    token = await live.text("acme", scopes=["worker"])
    for n in range(6):
        assert (await Worker(live, token, f"w{n}").claim())["claimed"] is False
    other, operators = await keyed(live, "globex", name="w9"), await keyed(live, "", name="ours")
    mine = await enrolled(live, tenants=["acme"])
    for worker in (other, operators, mine):
        await worker.claim()
    notes = {document.id for document in await live.engine.store.documents(SEEN)}
    assert notes == {"w0", "w1", "w2", "w9", "ours", mine.name}


async def test_so_many_claims_and_heartbeats_of_a_tenants_workers_wait(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each long poll holds a connection for up to a minute.

    Long polls of other tenants and operators wait beside them.
    """
    monkeypatch.setattr(waiting, "MOST_BOUND", 2)
    async with contextlib.AsyncExitStack() as stack:
        token, other, ours = (
            await live.text("acme", scopes=["worker"]),
            await keyed(live, "globex"),
            await keyed(live, ""),
        )
        mine = [Worker(live, token, f"w{n}") for n in range(3)]
        waits = [asyncio.create_task(one.send("claim", streams=["none"], max_wait_ms=60_000)) for one in mine[:2]]
        stack.callback(lambda: [task.cancel() for task in waits])
        await parked(live, 2)
        refusal = await mine[2].send("claim", streams=["none"], max_wait_ms=60_000)
        problem(refusal, 429, "too_many_requests")
        assert refusal.headers["retry-after"] == "5"
        assert (await mine[2].claim("none"))["claimed"] is False, "who does not wait is answered"
        waits += [asyncio.create_task(one.send("claim", streams=["none"], max_wait_ms=60_000)) for one in (other, ours)]
        await parked(live, 4)
        (claim,) = await held(live, mine[0], 1)
        lease = [{"job_id": claim["job_id"], "lease_token": claim["lease_token"]}]
        place = WAITING.of(live.state)
        for count in (1, 2):
            waits.append(asyncio.create_task(mine[0].send("heartbeats", leases=lease, wait_ms=25_000)))
            await until(functools.partial(_has_beats, place, count))
        assert (await mine[0].send("heartbeats", leases=lease, wait_ms=25_000)).json()["leases"][0]["ok"]
        assert not any(task.done() for task in waits)


def _has_beats(place: waiting.Waiting, count: int) -> bool:
    return len(place._beats) == count


def test_a_name_makes_room_when_it_was_not_used_for_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_NAMES", 2)
    now = [0.0]
    names = WorkerNames(lambda: now[0])
    assert [names.has_room("acme", name) for name in ("a", "b", "c", "a")] == [True, True, False, True]
    now[0] = WEEK_S / 2
    assert names.has_room("acme", "a")
    now[0] = WEEK_S + 1
    assert [names.has_room("acme", name) for name in ("c", "b", "a")] == [True, False, True]


async def test_many_endpoints_at_once_are_no_more_than_a_tenant_may_have(url: str) -> None:
    store = await stores.open_store(url)
    try:
        endpoints = Endpoints(store, VaultSealer(LocalKeyring(first_keys())))
        result = await asyncio.gather(
            *(endpoints.create("flood", f"https://example.org/{n}") for n in range(MOST_ENDPOINTS + 20)),
            return_exceptions=True,
        )
        assert sum(isinstance(one, TooManyEndpoints) for one in result) == 20
        assert len(await endpoints.list("flood")) == MOST_ENDPOINTS
    finally:
        await stores.empty({url: store})
        await store.close()
