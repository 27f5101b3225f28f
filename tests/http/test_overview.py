"""Data for observers: the overview, a job's state, and the list's filters; each tenant sees only its own jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from callsheet.api import dead_letters, jobs, overview, workers
from callsheet.api.overview import SPAN_MS, SPANS, Throughput
from callsheet.contracts.redis_gateway import routes, streams
from callsheet.engine.ids import new_id
from callsheet.kernel import commands
from callsheet.kernel.job import Envelope, NewJob, Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, Settled, Store
from tests import stores
from tests.http.dead import dead
from tests.http.live import Live, problem, serving

ROUTERS = [routes.router, streams.router, overview.router, jobs.router, workers.router, dead_letters.router]


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with serving(url, routers=ROUTERS) as live:
        await stores.empty({url: live.engine.store})
        yield live


async def ask(client: httpx2.AsyncClient, path: str = "/v1/overview", **query: Any) -> Any:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def put(live: Live, **fields: Any) -> str:
    job_id = new_id()
    await live.engine.enqueue([NewJob(job_id, **{"kind": "resize", **fields})])
    return job_id


async def claim(live: Live, queue: str = "default", worker: str = "w~secret") -> Any:
    (job,) = await live.engine.claim(ClaimRequest(worker, (queue,), lease_ms=600_000))
    return job


async def test_the_overview_tells_what_waits_runs_and_ended(live: Live) -> None:
    await put(live, requester_id="acme")
    await live.done(await claim(live))
    await put(live, kind="scan", requester_id="other")
    await live.fail(await claim(live))
    await put(live, queue="gpu", requester_id="acme")
    running = await claim(live, "gpu", worker="w~the-hash-of-a-token")
    await put(live, queue="gpu", requester_id="acme")
    await put(live, queue="gpu", requester_id="other", delay_ms=3_600_000)
    await live.engine.store.pause("idle", paused=True)

    overview = await ask(live.client)
    assert (overview["all"], overview["partial"]) == (True, False)
    queues = {queue["queue"]: queue for queue in overview["queues"]}
    assert queues.keys() == {"gpu", "idle"}
    assert {name: queues["gpu"][name] for name in ("ready", "held", "running", "paused")} == {
        "ready": 1, "held": 1, "running": 1, "paused": False,
    }  # fmt: skip
    assert queues["gpu"]["oldest_ms"] >= 0
    assert queues["idle"]["paused"]
    spans = overview["throughput"]["spans"]
    assert len(spans) == SPANS
    assert sum(span["succeeded"] for span in spans) == sum(span["dead_letter"] for span in spans) == 1
    kinds = {kind["kind"]: kind for kind in overview["kinds"]}
    assert (kinds["resize"]["succeeded"], kinds["scan"]["dead_letter"], kinds["scan"]["dead_letters"]) == (1, 1, 1)
    (worker,) = overview["workers"]
    assert (worker["worker_id"], worker["running"]) == ("w", 1)
    assert worker["last_seen_at"] == running.heartbeat_at

    mine = await ask(await live.key("acme"))
    assert mine["all"] is False
    (queue,) = [queue for queue in mine["queues"] if queue["queue"] == "gpu"]
    assert (queue["ready"], queue["held"], queue["running"]) == (1, 0, 1)
    assert [kind["kind"] for kind in mine["kinds"]] == ["resize"]
    theirs = await ask(await live.key("other"))
    (queue,) = [queue for queue in theirs["queues"] if queue["queue"] == "gpu"]
    assert (queue["ready"], queue["held"], queue["running"]) == (0, 1, 0)
    assert theirs["workers"] == []
    assert (await ask(await live.key("nobody")))["kinds"] == []


async def test_a_key_without_the_scope_is_refused(live: Live) -> None:
    client = await live.key("a", scopes=["worker"])
    problem(await client.get("/v1/overview"), 403, "forbidden")
    problem(await live.bare().get("/v1/overview"), 401, "unauthorized")


async def test_a_workers_sign_of_life_is_told_to_admins(live: Live) -> None:
    await live.state.workers.record_seen("gpu-1", ("cuda",), "1.2", 3)
    (worker,) = (await ask(live.client))["workers"]
    assert (worker["worker_id"], worker["running"], worker["labels"], worker["version"]) == (
        "gpu-1",
        0,
        ["cuda"],
        "1.2",
    )
    assert (await ask(await live.key("a")))["workers"] == []


class Ends:
    """A store that counts its calls."""

    def __init__(self, store: Store) -> None:
        self._store, self.since = store, list[int]()
        self.clock = 0

    async def now(self) -> int:
        return self.clock

    async def ended_counts(self, *, since: int, span_ms: int, requester_id: str | None = None) -> Any:
        self.since.append(since)
        return await self._store.ended_counts(since=since, span_ms=span_ms, requester_id=requester_id)


async def test_the_window_reads_what_is_new_and_keeps_the_rest(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "FRESH_S", -1.0)
    store = Ends(live.engine.store)
    window = Throughput(store)  # type: ignore[arg-type]
    start = store.clock = await live.engine.store.now()

    async def end() -> None:
        job_id = await put(live)
        job = await claim(live)
        assert job.job_id == job_id
        assert await live.engine.store.settle([commands.succeed(job)], now=store.clock) == [Settled.APPLIED]

    await end()
    first = await window.window(None)
    assert sum(jobs for _, counts in first.spans for jobs in counts.values()) == 1
    store.clock += 60_000
    await end()
    second = await window.window(None)
    assert sum(jobs for _, counts in second.spans for jobs in counts.values()) == 2
    assert second.kinds == {"resize": {Status.SUCCEEDED: 2}}
    assert len(second.spans) == SPANS
    assert store.since[0] < start - 800_000
    assert store.since[1] >= start - 2 * SPAN_MS  # not the whole quarter of an hour again
    store.clock += SPANS * SPAN_MS
    assert sum(jobs for _, counts in (await window.window(None)).spans for jobs in counts.values()) == 0


async def test_the_list_filters_by_all_that_it_names(live: Live) -> None:
    harbour = await put(live, payload='{"title": "The Harbour"}', requester_id="acme", kind="compose", contract="aura")
    await put(live, requester_id="other", queue="gpu")

    async def ids(client: httpx2.AsyncClient, **query: Any) -> list[str]:
        return [job["job_id"] for job in (await ask(client, "/v1/jobs", **query))["jobs"]]

    admin, mine, other = live.client, await live.key("acme"), await live.key("other")
    assert await ids(admin, text="harbour") == [harbour]
    assert await ids(mine, text="HARBOUR") == [harbour]
    assert await ids(other, text="harbour") == []
    assert await ids(admin, requester="acme") == [harbour]
    assert await ids(mine, requester="acme") == [harbour]
    assert await ids(other, requester="acme") == []
    assert await ids(admin, contract="aura") == [harbour]
    created_jobs = (await ask(admin, f"/v1/jobs/{harbour}"))["created_ts"]
    assert await ids(admin, created_from=created_jobs, created_to=created_jobs + 1, text="harbour") == [harbour]
    assert await ids(admin, created_to=created_jobs, text="harbour") == []
    (job,) = (await ask(admin, "/v1/jobs", text="harbour", brief=True))["jobs"]
    assert (job["partial"], job["payload"], job["requester_id"], job["state"]) == (True, None, "acme", "queued")
    for wrong in ({"text": "x" * 201}, {"created_from": "yesterday"}, {"text": "\x00"}):
        problem(await live.client.get("/v1/jobs", params=wrong), 422, "validation_failed")


async def test_a_jobs_state_says_what_can_be_done(live: Live) -> None:
    job_id = await put(live, requester_id="acme", contract="euterpe")

    async def state() -> Any:
        return await ask(live.client, f"/v1/jobs/{job_id}/state")

    first = await state()
    assert (first["status"], first["word"], first["stages"]) == (
        "queued",
        "queued",
        ["fetching", "processing", "uploading"],
    )
    assert (first["can_cancel"], first["can_retry"], first["lease"]) == (False, False, None)  # euterpe cannot cancel
    job = await claim(live)
    assert (await state())["lease"]["worker_id"] == "w"
    await live.engine.settle([commands.dead_letter(job, JobError("broke", "it broke"))])
    last = await state()
    assert last["status"] == "dead_letter"
    assert last["error_class"]
    assert last["advice"]

    held = await put(live, delay_ms=3_600_000)
    job_state = await ask(live.client, f"/v1/jobs/{held}/state")
    assert (job_state["waits"], job_state["can_cancel"]) == ("delay", True)
    await live.engine.store.pause("stopped", paused=True)
    waiting = await put(live, queue="stopped")
    assert (await ask(live.client, f"/v1/jobs/{waiting}/state"))["waits"] == "paused"
    phased_job = await put(live, contract="aura", kind="compose")
    assert (await ask(live.client, f"/v1/jobs/{phased_job}/state"))["stages"][0] == "plan"
    problem(await (await live.key("other")).get(f"/v1/jobs/{job_id}/state"), 404, "job_not_found")


async def test_a_dead_letter_of_our_own_contract_can_be_retried(live: Live) -> None:
    job_id = await put(live)
    await live.fail(await claim(live))
    assert (await ask(live.client, f"/v1/jobs/{job_id}/state"))["can_retry"]


async def test_can_retry_is_what_a_replay_answers(live: Live) -> None:
    """A dead transcode comes back as a copy, unless that would not know the limit of its concurrency key."""
    envelope = Envelope(1, "YQ==", "YQ==", "kek", 1)
    own = await dead(live, "503", contract="euterpe")
    theirs = await dead(live, "503", contract="euterpe", credentials=envelope)
    keyed_id = await dead(live, "503", contract="euterpe", concurrency_key="k", concurrency_limit=5)
    left = await dead(live, "no", contract="euterpe", max_attempts=2, retryable=False, credentials=envelope)
    for job_id, expected in ((own, True), (theirs, True), (keyed_id, False), (left, True)):
        assert (await ask(live.client, f"/v1/jobs/{job_id}/state"))["can_retry"] is expected
        answer = await live.client.post(f"/v1/dead-letters/{job_id}/replay")
        assert answer.status_code == (202 if expected else 409), answer.text
