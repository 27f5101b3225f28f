"""What the control plane can do beyond the contract, as optional fields that an old worker ignores."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsheet.contracts.control_plane import files, hand_backs, logs, routes
from callsheet.contracts.control_plane import waiting as waiting_module
from callsheet.contracts.control_plane.claims import WAITING
from callsheet.contracts.control_plane.waiting import Waiting, Wish
from callsheet.engine import Housekeeping
from callsheet.engine.lanes import lane_name
from callsheet.kernel.job import Job, Outcome, Status
from callsheet.kernel.wire import decode
from callsheet.store.protocol import ClaimRequest
from tests.http.live import Live, serving

from .remote import Remote, add, parked


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with serving(url, routers=[routes.router, files.router]) as live:
        yield live


@pytest.fixture
def worker(live: Live) -> Remote:
    return Remote(live)


def fresh() -> str:
    return uuid.uuid4().hex


async def test_a_repeated_claim_answers_with_the_same_lease(live: Live, worker: Remote) -> None:
    for _ in range(3):
        await add(live)
    name = fresh()
    first = await worker.claim(claim_request_id=name, first=True)
    again = await worker.claim(claim_request_id=name)
    assert (again["job_id"], again["lease_token"], again["attempt_id"]) == (
        first["job_id"],
        first["lease_token"],
        first["attempt_id"],
    )
    other = await worker.claim(claim_request_id=fresh())
    assert other["job_id"] != first["job_id"]
    assert (await Remote(live, "w2").claim(claim_request_id=name))["job_id"] not in (first["job_id"], other["job_id"])
    assert (await worker.say("complete", again, result=1)).json()["ack"]


async def test_a_batch_is_repeated_whole(live: Live, worker: Remote) -> None:
    ids = [await add(live) for _ in range(5)]
    name = fresh()
    first = await worker.claim(claim_request_id=name, max_jobs=3)
    again = await worker.claim(claim_request_id=name, max_jobs=3)
    assert [job["job_id"] for job in first["jobs"]] == [job["job_id"] for job in again["jobs"]] == ids[:3]
    assert first["job_id"] == ids[0]
    rest = await worker.claim(max_jobs=10)
    assert [job["job_id"] for job in rest["jobs"]] == ids[3:]


async def test_moves_are_answered_one_by_one(live: Live, worker: Remote) -> None:
    ids = [await add(live) for _ in range(4)]
    jobs = (await worker.claim(max_jobs=4))["jobs"]
    answers = await worker.move(
        (jobs[0], {"do": "stage", "stage": "decoding"}),
        (jobs[0], {"do": "progress", "percent": 40, "message": "half way"}),
        (jobs[0], {"do": "complete", "result": {"n": 1}}),
        (jobs[0], {"do": "progress", "percent": 50}),
        (jobs[1], {"do": "fail", "error": {"code": "E"}, "retry_in_ms": 60_000}),
        ({**jobs[2], "lease_token": "wrong"}, {"do": "complete"}),
        (jobs[2], {"do": "progress"}),
        (jobs[2], {"do": "release", "delay_ms": 1000}),
        (jobs[3], {"do": "fail", "error": {"code": "E"}, "bury": True}),
    )
    assert [a.get("code") for a in answers] == [
        None,
        None,
        None,
        "lease_lost",
        None,
        "forbidden",
        "invalid_input",
        None,
        None,
    ]
    assert (answers[4]["requeued"], answers[8]["dlq"]) == (True, True)
    found = [await live.engine.get(job_id) for job_id in ids]
    assert [job.status for job in found] == [Status.SUCCEEDED, Status.QUEUED, Status.QUEUED, Status.DEAD_LETTER]
    assert [e.type for e in await live.engine.store.events({ids[0]: 0}, 100)] == [
        "queued",
        "running",
        "stage",
        "progress",
        "done",
    ]
    again = await worker.move((jobs[0], {"do": "complete"}), (jobs[1], {"do": "fail", "error": {"code": "E"}}))
    assert [(a["ok"], a["repeated"]) for a in again] == [(True, True)] * 2


async def test_a_refused_follow_up_harms_no_other_move(live: Live, worker: Remote) -> None:
    taken = await add(live, queue="other")
    ids = [await add(live, requester_id="acme") for _ in range(2)]
    one, two = (await worker.claim(max_jobs=2))["jobs"]
    answers = await worker.move(
        (one, {"do": "complete", "follow_ups": [{"task": "next", "job_id": taken}]}),
        (two, {"do": "complete", "follow_ups": [{"task": "next", "payload": {"a": 1}, "queue": "later"}]}),
    )
    assert [a.get("code") for a in answers] == ["duplicate_job", None]
    assert [(await live.engine.get(job_id)).status for job_id in ids] == [Status.RUNNING, Status.SUCCEEDED]
    follow_up = await worker.claim("later")
    assert (follow_up["task"], follow_up["payload"]) == ("next", {"a": 1})
    assert (await live.engine.get(follow_up["job_id"])).requester_id == "acme"  # its parent's, always


async def test_checkpoints_outlive_an_attempt(live: Live, worker: Remote) -> None:
    await add(live)
    first = await worker.claim()
    await worker.move((first, {"do": "checkpoint", "name": "parse", "data": {"rows": 3}}))
    (reserved,) = await worker.move((first, {"do": "checkpoint", "name": "~log:1", "data": 9}))
    assert reserved["code"] == "invalid_input"
    await worker.say("release", first)
    second = await worker.claim()
    known = (await worker.send("checkpoints", job_id=second["job_id"], lease_token=second["lease_token"])).json()
    assert known["checkpoints"] == {"parse": {"rows": 3}}
    late = await worker.send("checkpoints", job_id=first["job_id"], lease_token=first["lease_token"])
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


async def test_a_heartbeat_tells_stage_and_progress_and_log(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    claim = await worker.claim()
    beat = await worker.say("heartbeat", claim, stage="encoding", progress=10, log={"offset": 0, "text": "né\n"})
    assert (beat.json()["log_offset"], beat.json()["drain"]) == (4, False)
    job = await live.engine.get(job_id)
    assert (job.stage, job.progress) == ("encoding", 10.0)


async def test_a_waiting_heartbeat_hears_of_a_cancellation_at_once(
    live: Live, worker: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By news alone: their time is over in an hour."""
    news = Waiting.news
    monkeypatch.setattr(Waiting, "news", lambda waits, ids, wait_s, *of: news(waits, ids, wait_s + 3600, *of))
    await add(live)
    claim = await worker.claim()
    waiting = asyncio.create_task(worker.say("heartbeat", claim, wait_ms=20_000))
    while not (result := WAITING.get(live.state)) or not result._beats:
        await asyncio.sleep(0.005)
    assert not waiting.done()
    await live.engine.cancel(claim["job_id"], "enough")
    assert (await asyncio.wait_for(waiting, 60)).json()["cancel"]
    (ended_job,) = await worker.move((claim, {"do": "cancel"}))
    assert ended_job["ok"]
    job = await live.engine.get(claim["job_id"])
    assert (job.status, job.cancel_reason) == (Status.CANCELED, "enough")


async def test_many_leases_are_extended_in_one_request(live: Live, worker: Remote) -> None:
    for _ in range(3):
        await add(live)
    jobs = (await worker.claim(max_jobs=3))["jobs"]
    await worker.say("complete", jobs[1])
    await live.engine.cancel(jobs[2]["job_id"])
    proofs = [{"job_id": job["job_id"], "lease_token": job["lease_token"]} for job in jobs]
    stranger = {"job_id": jobs[0]["job_id"], "lease_token": "guess"}
    body = (await worker.send("heartbeats", leases=[*proofs, stranger])).json()
    assert [(le["ok"], le["cancel"], le.get("code")) for le in body["leases"]] == [
        (True, False, None),
        (False, False, "lease_lost"),
        (True, True, None),
        (False, False, "forbidden"),
    ]


async def test_a_silent_worker_does_not_hold_up_a_cancellation(live: Live, worker: Remote) -> None:
    await add(live)
    claim = await worker.claim()
    assert (await worker.say("heartbeat", claim)).json()["lease_expires_in_ms"] == 30_000
    now = await live.engine.store.now()
    silent_ms = 2 * claim["heartbeat_every_ms"] + 1
    assert (await live.engine.cancel(claim["job_id"], "now", now=now + silent_ms)).status is Status.CANCELED
    late = await worker.say("complete", claim, result=1)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


async def test_a_worker_that_falls_silent_after_a_cancellation_has_two_beats(live: Live, worker: Remote) -> None:
    await add(live)
    claim = await worker.claim()
    await worker.say("heartbeat", claim)
    await live.engine.cancel(claim["job_id"], "now")
    event = (await worker.say("heartbeat", claim)).json()
    assert (event["cancel"], event["lease_expires_in_ms"]) == (True, 2 * claim["heartbeat_every_ms"])
    job = await live.engine.get(claim["job_id"])
    ends_at = (job.heartbeat_at or 0) + 2 * claim["heartbeat_every_ms"]
    assert job.lease_expires_at == ends_at
    await Housekeeping(live.engine).sweep(now=ends_at)
    assert (await live.engine.get(claim["job_id"])).status is Status.RUNNING
    await Housekeeping(live.engine).sweep(now=ends_at + 1)
    assert (await live.engine.get(claim["job_id"])).status is Status.CANCELED
    late = await worker.say("complete", claim, result=1)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


async def test_a_claim_whose_answer_was_lost_leaves_no_attempt(live: Live, worker: Remote) -> None:
    await add(live, max_attempts=1)
    jobs = await worker.claim(claim_request_id=fresh(), first=True)  # nobody hears it
    job = await live.engine.get(jobs["job_id"])
    assert await Housekeeping(live.engine).reap(now=(job.lease_expires_at or 0) + 1) == 1
    back = await live.engine.get(jobs["job_id"])
    assert (back.status, back.held, back.attempt_count, back.lease_losses) == (Status.QUEUED, None, 0, 0)
    again = await Remote(live, "w2").claim()
    assert (again["job_id"], again["attempt"]) == (jobs["job_id"], 1)
    assert (await Remote(live, "w2").say("complete", again, result=1)).json()["ack"]


async def test_a_log_arrives_whole_however_its_pieces_travel(live: Live, worker: Remote) -> None:
    await add(live)
    claim = await worker.claim()
    text = "".join(f"line {n} ✓\n" for n in range(200))
    data, sent_bytes = text.encode(), 0
    pieces: list[tuple[int, str]] = []
    while sent_bytes < len(data):
        piece = data[sent_bytes : sent_bytes + 97].decode("utf-8", "ignore")
        pieces.append((sent_bytes, piece))
        sent_bytes += len(piece.encode())
    end = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    early = await worker.say("complete", claim, log=end)
    assert (early.status_code, early.json()["code"], early.json()["log_offset"]) == (409, "log_incomplete", 0)
    offset = 0
    while offset < len(data):
        piece_at = next(n for n, (at, _) in enumerate(pieces) if at == offset)
        chosen = pieces[piece_at : piece_at + 3]
        out_of_order = [chosen[-1], chosen[0], chosen[0], *chosen[1:]]  # out of order, doubled
        answers = await worker.move(
            *((claim, {"do": "log", "log": {"offset": at, "text": piece}}) for at, piece in out_of_order[:2])
        )
        offset = answers[-1]["log_offset"]
    assert (await worker.say("complete", claim, log=end)).json()["ack"]
    log_response = await live.client.get(f"/v1/jobs/{claim['job_id']}/log")
    assert log_response.content == data
    async with await live.key("stranger") as client:
        assert (await client.get(f"/v1/jobs/{claim['job_id']}/log")).status_code == 404


async def test_a_log_is_bounded(live: Live, worker: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LIMIT_BYTES", 10)
    await add(live)
    claim = await worker.claim()
    (log_answer,) = await worker.move((claim, {"do": "log", "log": {"offset": 0, "text": "12345678"}}))
    (full,) = await worker.move((claim, {"do": "log", "log": {"offset": 8, "text": "12345"}}))
    assert (log_answer["log_offset"], log_answer["log_full"], full["log_offset"], full["log_full"]) == (
        8,
        False,
        8,
        True,
    )
    assert (await worker.say("complete", claim, log={"bytes": 13, "sha256": "0" * 64})).json()["ack"]


async def test_a_worker_that_refused_a_job_is_not_offered_it_again(
    live: Live, worker: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_backs, "SET_ASIDE_MS", (0, 0))
    job_id = await add(live)
    claim = await worker.claim()
    assert (await worker.say("release", claim, reason="incapable")).json()["ok"]
    for _ in range(3):
        assert not (await worker.claim())["claimed"]
    other = await Remote(live, "w2").claim()
    assert (other["job_id"], other["attempt"]) == (job_id, 1)


async def test_labels_choose_the_jobs_that_a_worker_can_do(live: Live, worker: Remote) -> None:
    needy = await add(live, queue=lane_name("media", ["gpu", "av1"]))
    plain = await add(live, queue="media")
    assert (await worker.claim("media", labels=["gpu"]))["job_id"] == plain
    assert not (await worker.claim("media", labels=["gpu"]))["claimed"]
    parked_claim = asyncio.create_task(worker.claim("media", labels=["gpu", "av1", "cpu"], wait_ms=60_000))
    assert (await asyncio.wait_for(parked_claim, 60))["job_id"] == needy


async def test_a_parked_worker_is_woken_by_a_job_in_one_of_its_lanes(live: Live, worker: Remote) -> None:
    waiting = asyncio.create_task(worker.claim("media", labels=["gpu"], wait_ms=60_000))
    await parked(live, 1)
    job_id = await add(live, queue=lane_name("media", ["gpu"]))
    claim = await asyncio.wait_for(waiting, 60)
    assert (claim["job_id"], claim["stream"]) == (job_id, "media")


async def test_tenants_are_served_in_turn(url: str) -> None:
    async with serving(url, routers=[routes.router]) as live:
        live.engine.fair_queues = frozenset({"media"})
        for _ in range(30):
            await add(live, queue="media", requester_id="big")
        worker = Remote(live)
        for _ in range(5):
            await worker.claim("media")
        late = await add(live, queue="media", requester_id="small/tenant@x")
        job_ids = [(await worker.claim("media"))["job_id"] for _ in range(2)]
        assert late in job_ids  # thirty jobs of another tenant do not stand before it
        job = await live.engine.get(late)
        assert (job.requester_id, job.attempt_count) == ("small/tenant@x", 1)


async def test_old_workers_see_nothing_new(live: Live, worker: Remote) -> None:
    await add(live)
    claim = await worker.claim()
    assert "protocol" not in claim
    assert "jobs" not in claim
    assert (await worker.claim(protocol=2)) == {"claimed": False, "protocol": 2}
    refusal = await worker.send("claim", streams=["default"], protocol=99)
    assert (refusal.status_code, refusal.json()["code"], refusal.json()["min_version"]) == (426, "upgrade_required", 1)
    beat = await worker.say("heartbeat", claim, protocol=99)
    assert beat.json()["ok"]  # whoever has a job may finish it
    assert decode((await live.engine.get(claim["job_id"])).payload) == claim["payload"]


async def test_the_history_names_the_worker_and_its_outcome(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    claim: dict[str, Any] = await worker.claim()
    await worker.move((claim, {"do": "release"}))
    (attempt,) = await live.engine.store.attempts(job_id)
    assert (attempt.worker_id.partition("~")[0], attempt.outcome) == ("w1", Outcome.RELEASED)


async def test_a_thousand_who_wait_for_one_job_make_few_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "POLL_S", (3600.0, 3600.0))
    async with serving("sqlite::memory:", routers=[routes.router]) as live:
        waiting, claims_made = Waiting(live.engine), 0

        async def take() -> list[Job]:
            nonlocal claims_made
            claims_made += 1
            return await live.engine.claim(ClaimRequest("w"))

        async def alive() -> bool:
            return True

        ones = [
            asyncio.create_task(waiting.claim(Wish(frozenset({"default"})), 3600, alive, take)) for _ in range(1_000)
        ]
        while waiting.parked_count < 1_000:
            await asyncio.sleep(0.01)
        claims_made = 0
        await add(live)
        while not any(one.done() for one in ones):
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.1)
        assert claims_made <= 3
        waiting.let_go()
        assert sum(len(jobs) for jobs in await asyncio.gather(*ones)) == 1
