"""Bound means bound, both ways: a worker gets and makes jobs of its tenants, in its queues, and of nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet.api import workers
from callsheet.contracts.control_plane import enrolment, files, routes, waiting
from callsheet.http import worker_registry as known
from callsheet.kernel.errors import InvalidJob
from callsheet.kernel.job import Job, Status
from tests import stores
from tests.contracts.control_plane.remote import Answer, parked
from tests.http.conftest import postgres_url
from tests.http.live import Live, problem, serving
from tests.store_driver import new_job

ROUTERS = [routes.router, enrolment.router, workers.router, files.router, files.worker_router]
NAMES = ("job_id", "attempt_id", "lease_token", "stream", "message_id")


@pytest.fixture(params=stores.THREE)
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Live]:
    url = postgres_url() if request.param == "postgres" else stores.fresh_url(request.param)
    async with serving(url, routers=ROUTERS, objects_url=f"file://{tmp_path}/objects") as live:
        await stores.empty({url: live.engine.store})
        yield live


class Worker:
    """A worker with its own token or key."""

    def __init__(self, live: Live, token: str, name: str) -> None:
        self.name = name
        self._client, self._token = live.bare(), token

    async def send(self, verb: str, **body: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self._token}"}
        body = {"worker_id": self.name, **body}
        return await self._client.post(f"/internal/worker/{verb}", json=body, headers=headers)

    async def claim(self, *streams: str, **more: Any) -> Answer:
        answer = await self.send("claim", streams=list(streams or ("default",)), **more)
        assert answer.status_code == 200, answer.text
        body: Answer = answer.json()
        return body

    async def say(self, verb: str, claim: Answer, **more: Any) -> httpx2.Response:
        return await self.send(verb, **{name: claim[name] for name in NAMES}, **more)

    async def move(self, got: Answer, **move: Any) -> Answer:
        answer = await self.send("moves", moves=[{**{name: got[name] for name in NAMES[:3]}, **move}])
        assert answer.status_code == 200, answer.text
        (reply,) = answer.json()["answers"]
        return dict(reply)


async def enrolled(live: Live, **bounds: Any) -> Worker:
    enrolment = (await live.client.post("/v1/workers/enrolments", json=bounds)).json()["enrolment_token"]
    async with live.bare() as anybody:
        body = {"enrolment_token": enrolment, "worker_name": "w"}
        reply = (await anybody.post("/internal/worker/enroll", json=body)).json()
    return Worker(live, reply["worker_token"], reply["worker_id"])


async def keyed(live: Live, requester_id: str, *scopes: str, name: str = "mine") -> Worker:
    return Worker(live, await live.text(requester_id, scopes=list(scopes or ("worker",))), name)


async def add(live: Live, requester_id: str, **fields: Any) -> str:
    new = new_job(requester_id=requester_id, contract="control_plane", **fields)
    await live.engine.enqueue([new])
    return new.job_id


async def job(live: Live, job_id: str) -> Job:
    return await live.engine.get(job_id)


@pytest.mark.parametrize("fair", [(), ("default", "media")])
async def test_a_bound_worker_gets_exactly_its_tenants_jobs_in_order(live: Live, fair: tuple[str, ...]) -> None:
    live.engine.fair_queues = frozenset(fair)
    for _ in range(30):
        await add(live, "other")
    await add(live, "")
    first, second = await add(live, "acme"), await add(live, "acme")
    urgent, elsewhere = await add(live, "acme", priority=9), await add(live, "acme", queue="media")
    worker = await enrolled(live, tenants=["acme"])
    job_ids = [(await worker.claim("default", "media"))["job_id"] for _ in range(4)]
    assert job_ids == [urgent, first, second, elsewhere]
    nothing = await worker.claim("default", "media")
    assert nothing["claimed"] is False
    assert "acme" in nothing["note"], "it is not silent"


@pytest.mark.parametrize("fair", [(), ("default",)])
async def test_a_parked_bound_worker_is_woken_for_its_tenants_job(
    live: Live, monkeypatch: pytest.MonkeyPatch, fair: tuple[str, ...]
) -> None:
    monkeypatch.setattr(waiting, "POLL_S", (3_600.0, 3_600.0))  # hints alone wake
    live.engine.fair_queues = frozenset(fair)
    crew = {name: await enrolled(live, tenants=[name]) for name in ("other", "acme", "third")}
    claims = {name: asyncio.create_task(worker.claim(max_wait_ms=30_000)) for name, worker in crew.items()}
    await parked(live, 3)
    async with asyncio.timeout(60):
        for name in ("acme", "third", "other"):
            mine = await add(live, name)
            assert (await claims[name])["job_id"] == mine


async def test_who_may_have_all_jobs_is_woken_beside_the_bound_ones(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL_S", (3_600.0, 3_600.0))
    bounds, unbound = await enrolled(live, tenants=["acme"]), await keyed(live, "", name="any")
    claims = [asyncio.create_task(worker.claim(max_wait_ms=30_000)) for worker in (bounds, unbound)]
    await parked(live, 2)
    async with asyncio.timeout(60):
        theirs = await add(live, "other")
        assert (await claims[1])["job_id"] == theirs
        mine = await add(live, "acme")
        assert (await claims[0])["job_id"] == mine


async def test_a_tenants_worker_key_sees_its_own_tenant_alone(live: Live) -> None:
    theirs, mine = await add(live, "other"), await add(live, "acme")
    key = await keyed(live, "acme")
    assert (await key.claim())["job_id"] == mine
    assert (await key.claim())["claimed"] is False
    assert (await job(live, theirs)).status is Status.QUEUED


@pytest.mark.parametrize(
    ("requester_id", "scopes"), [("acme", ("worker:all",)), ("acme", ("admin",)), ("", ("worker",))]
)
async def test_all_tenants_is_an_explicit_grant(live: Live, requester_id: str, scopes: tuple[str, ...]) -> None:
    theirs = await add(live, "other")
    assert (await (await keyed(live, requester_id, *scopes)).claim())["job_id"] == theirs


async def test_a_lane_cannot_be_spelled_by_others(live: Live) -> None:
    for queue in ("default@acme", "default+gpu@acme", "default@%61cme", "x@acme@other", "default@"):
        for requester_id in ("other", ""):
            with pytest.raises(InvalidJob, match="queue"):
                await add(live, requester_id, queue=queue)
    assert await add(live, "acme", queue="default@acme")
    worker = await enrolled(live, tenants=["other"])
    for stream in ("default@acme", "default+gpu@acme"):
        problem(await worker.send("claim", streams=[stream]), 403, "forbidden")
    assert (await worker.claim())["claimed"] is False


FORGED = [
    ({"queue": "elsewhere"}, "forbidden"),
    ({"queue": "default@other"}, "invalid_job"),
    ({"queue": "media@other"}, "invalid_job"),
    ({"unique_key": "theirs"}, "forbidden"),
    ({"concurrency_key": "theirs", "concurrency_limit": 99}, "forbidden"),
    ({"depends_on": ["THEIRS"]}, "dependency_not_found"),
    ({"depends_on": ["01234567-89ab-7def-8123-456789abcdef"]}, "dependency_not_found"),
    ({"depends_on": ["no id"]}, "dependency_not_found"),
]


@pytest.mark.parametrize("door", ["moves", "complete"])
@pytest.mark.parametrize(("forged", "code"), FORGED)
async def test_what_a_worker_creates_is_its_parents_tenants_in_its_queues(
    live: Live, door: str, forged: Answer, code: str
) -> None:
    theirs = await add(live, "other", queue="elsewhere")
    await add(live, "acme")
    worker = await enrolled(live, tenants=["acme"], queues=["default", "media"])
    claim = await worker.claim()
    follow_up = {"task": "next", **forged}
    if "depends_on" in follow_up:
        follow_up["depends_on"] = [theirs if name == "THEIRS" else name for name in follow_up["depends_on"]]
    if door == "moves":
        answer = await worker.move(claim, do="complete", follow_ups=[follow_up])
    else:
        answer = (await worker.say("complete", claim, follow_ups=[follow_up])).json()
    assert (answer.get("ok", False), answer["code"]) == (False, code), answer
    assert (await job(live, claim["job_id"])).status is Status.RUNNING
    counts = await live.engine.store.counts()
    assert sum(sum(of.values()) for of in counts.values()) == 2, "nothing was made"


async def test_follow_ups_within_the_bounds_are_made(live: Live) -> None:
    mine = await add(live, "acme", queue="media")
    await add(live, "acme")
    worker = await enrolled(live, tenants=["acme"], queues=["default", "media"])
    claim = await worker.claim()
    first = new_job().job_id
    follow_ups = [
        {"task": "next", "queue": "media", "depends_on": [mine], "job_id": first},
        {"task": "next", "queue": "default+gpu", "depends_on": [first]},
        {"task": "next", "queue": "default@acme"},
    ]
    assert (await worker.move(claim, do="complete", follow_ups=follow_ups))["ok"]
    counts = await live.engine.store.counts()
    assert set(counts) == {"default", "media", "default+gpu", "default@acme"}
    assert (await job(live, first)).requester_id == "acme"


async def test_a_worker_may_fill_its_parents_own_queue(live: Live) -> None:
    live.engine.fair_queues = frozenset({"media"})
    await add(live, "acme", queue="media")
    worker = await enrolled(live, tenants=["acme"], queues=["media"])
    claim = await worker.claim("media")
    assert (await worker.move(claim, do="complete", follow_ups=[{"task": "next", "queue": claim["job"]["queue"]}]))[
        "ok"
    ]


async def test_a_worker_of_another_tenant_or_queue_touches_no_lease(live: Live) -> None:
    """The proof of a lease, in wrong hands: as for an unknown job."""
    await add(live, "acme")
    owner = await keyed(live, "", name="same")
    claim = await owner.claim()
    for stranger in (await keyed(live, "other", name="same"), await enrolled(live, tenants=["other"])):
        proof = {"job_id": claim["job_id"], "lease_token": claim["lease_token"]}
        doors: tuple[tuple[str, Answer], ...] = (
            ("heartbeat", {}),
            ("checkpoints", {}),
            ("uploads", {"name": "x"}),
            ("uploads/complete", {"name": "x", "upload_id": "u"}),
        )
        for verb, more in doors:
            problem(await stranger.send(verb, **proof, **more), 404, "job_not_found")
        ends: tuple[tuple[str, Answer], ...] = (("complete", {}), ("fail", {"error": {"code": "E"}}), ("release", {}))
        for verb, more in ends:
            problem(await stranger.say(verb, claim, **more), 404, "job_not_found")
        body = (await stranger.send("heartbeats", leases=[proof])).json()["leases"]
        assert [(one["ok"], one["code"]) for one in body] == [(False, "job_not_found")]
        for move in (
            {"do": "checkpoint", "name": "a", "data": 1},
            {"do": "log", "log": {"offset": 0, "text": "x"}},
            {"do": "progress", "percent": 5},
            {"do": "event", "type": "note"},
        ):
            assert (await stranger.move(claim, **move))["code"] == "job_not_found"
    assert (await job(live, claim["job_id"])).event_seq == 2
    assert (await owner.say("complete", claim)).status_code == 200


async def test_a_repeated_claim_tells_a_stranger_nothing(live: Live) -> None:
    await add(live, "acme")
    name = "0123456789abcdef"
    owner, stranger = await keyed(live, "acme", name="same"), await keyed(live, "other", name="same")
    assert (await owner.claim(claim_request_id=name))["claimed"] is True
    assert (await stranger.claim(claim_request_id=name))["claimed"] is False


async def test_a_key_leaves_no_sign_of_life_for_an_enrolled_worker(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "SEEN_S", 0.0)
    worker = await enrolled(live)
    await worker.claim(labels=["gpu"])
    spy = await keyed(live, "other", name=worker.name)
    await spy.claim(labels=["forged"])
    (entry,) = (await live.client.get("/v1/workers")).json()["workers"]
    assert entry["labels"] == ["gpu"]


async def test_a_tenants_job_is_given_behind_ten_thousand_of_others(live: Live) -> None:
    for _ in range(10):
        await live.engine.enqueue([new_job(requester_id="other") for _ in range(1_000)])
    mine = await add(live, "acme")
    worker = await enrolled(live, tenants=["acme"])
    assert (await worker.claim())["job_id"] == mine
    assert (await worker.claim())["claimed"] is False
    assert (await live.engine.backlog())["default"].ready == 10_000
