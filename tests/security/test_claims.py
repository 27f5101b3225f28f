"""A claim never fails because of a payload: what is wrong with one job ends that job, and no worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callsheet import Callsheet
from callsheet.api import workers
from callsheet.cli.testkit.proxy import Answered, Asked, Fate, FaultProxy, problem
from callsheet.contracts.control_plane import enrolment, files, routes
from callsheet.kernel.callbacks import claim_callback
from callsheet.kernel.errors import StoreUnavailable
from callsheet.kernel.job import Job, Status
from callsheet.objects import ObjectsUnavailable, Signed
from callsheet.objects.memory import MemoryObjects
from callsheet.worker.remote import RemoteOptions
from tests import stores
from tests.contracts.control_plane.remote import Remote, add
from tests.http.conftest import postgres_url
from tests.http.live import Live, serving
from tests.kernel.jobs import a_job
from tests.store_driver import new_job

ROUTERS = [routes.router, enrolment.router, workers.router, files.router, files.worker_router]
DEEP = "[" * 600 + '"object:x"' + "]" * 600
POISON = {
    "a way up": '{"source":"object:uploads/acme/../x"}',
    "an empty key": '{"source":["object:"]}',
    "a NUL": '{"source":"object:uploads/\\u0000"}',
    "half a character": '{"source":"object:\\ud800"}',
    "too deep": DEEP,
    "too deep without objects": DEEP.replace("object:", ""),
}


@pytest.fixture(params=stores.THREE)
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Live]:
    url = postgres_url() if request.param == "postgres" else stores.fresh_url(request.param)
    async with serving(url, routers=ROUTERS, objects_url=f"file://{tmp_path}/objects") as live:
        await stores.empty({url: live.engine.store})
        yield live


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Live]:
    url = stores.fresh_url("sqlite")
    async with serving(url, routers=ROUTERS, objects_url=f"file://{tmp_path}/objects") as live:
        yield live


async def put(live: Live, *payloads: str, **fields: Any) -> list[str]:
    """Enqueue a tenant's jobs as a client could: payloads are validated on entry."""
    batch = [new_job(payload=payload, requester_id="acme", **fields) for payload in payloads]
    await live.engine.enqueue(batch)
    return [new.job_id for new in batch]


async def job(live: Live, job_id: str) -> Job:
    return await live.engine.get(job_id)


@pytest.mark.parametrize("name", POISON)
async def test_one_jobs_payload_ends_that_job_alone(live: Live, name: str) -> None:
    bad, good = await put(live, POISON[name], '{"n":1}')
    claim = await Remote(live).claim()
    if claim["job_id"] == bad:  # what can be told is told, and what it names is not signed
        assert claim["inputs"] == {}
        claim = await Remote(live).claim()
    else:
        ended_job = await job(live, bad)
        assert ended_job.status is Status.DEAD_LETTER
        assert json.loads(ended_job.error or "{}")["code"] == "payload_unusable"
    assert (claim["job_id"], claim["payload"]) == (good, {"n": 1})


async def test_a_reference_that_is_no_key_is_a_dead_letter_with_a_clear_code(live: Live) -> None:
    (bad,) = await put(live, POISON["a way up"])
    assert (await Remote(live).claim())["claimed"] is False
    ended_job = await job(live, bad)
    error = json.loads(ended_job.error or "{}")
    assert (ended_job.status, error["code"]) == (Status.DEAD_LETTER, "payload_unusable")
    assert "payload" in error["message"]


async def test_a_claim_looks_behind_a_whole_batch_of_bad_payloads(live: Live) -> None:
    bad = await put(live, *[POISON["a way up"]] * 12)
    (good,) = await put(live, '{"n":2}')
    claim = await Remote(live).claim(max_jobs=3)
    assert [one["job_id"] for one in claim["jobs"]] == [good]
    assert {(await job(live, job_id)).status for job_id in bad} == {Status.DEAD_LETTER}


async def test_in_a_batch_the_others_are_given(live: Live) -> None:
    first, bad, last = await put(live, "{}", POISON["a way up"], "{}")
    claim = await Remote(live).claim(max_jobs=3)
    assert [one["job_id"] for one in claim["jobs"]] == [first, last]
    assert (await job(live, bad)).status is Status.DEAD_LETTER


class Away(MemoryObjects):
    """An object store that cannot be reached."""

    async def sign_get(self, *_: Any, **__: Any) -> Signed:
        raise ObjectsUnavailable("away")


async def test_an_outage_of_the_object_store_ends_no_job(live: Live) -> None:
    (job_id,) = await put(live, '{"source":"object:uploads/acme/film.mp4"}')
    (other,) = await put(live, "{}")
    live.state.objects = Away()
    claim = await Remote(live).claim(max_jobs=5)
    assert [one["job_id"] for one in claim["jobs"]] == [other]
    back = await job(live, job_id)
    assert (back.status, back.attempt_count, back.lease_losses, back.error) == (Status.QUEUED, 0, 0, None)


async def test_a_store_that_is_away_is_not_the_jobs_fault(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    (job_id,) = await put(small, '{"source":"object:uploads/acme/film.mp4"}')

    async def away(*_: Any, **__: Any) -> Signed:
        raise StoreUnavailable("away")

    monkeypatch.setattr(small.state.objects, "sign_get", away)
    answer = await Remote(small).send("claim", streams=["default"])
    assert answer.status_code == 503
    assert (await job(small, job_id)).status is Status.RUNNING


async def test_a_repeated_claim_is_guarded_too(small: Live) -> None:
    worker, name = Remote(small), "0123456789abcdef"
    (job_id,) = await put(small, '{"source":"object:uploads/acme/film.mp4"}')
    assert (await worker.claim(claim_request_id=name))["job_id"] == job_id
    small.state.objects = Away()
    assert (await worker.claim(claim_request_id=name))["claimed"] is False
    assert (await job(small, job_id)).status is Status.QUEUED


@pytest.mark.parametrize("metadata", ['"' + "x" * 204_900 + '"', '{"a":"\\ud800"}'])
def test_metadata_that_cannot_be_written_stops_no_claim(metadata: str) -> None:
    payload = f'{{"status_webhook_url":"https://x.invalid/hook","metadata":{metadata}}}'
    callback = claim_callback(a_job(contract="euterpe", payload=payload))
    assert callback is not None
    assert json.loads(callback.body)["metadata"] == {}
    for odd in ('{"status_webhook_url":', '{"status_webhook_url":' + "[" * 5_000):
        assert claim_callback(a_job(contract="euterpe", payload=odd)) is None


def worker_app() -> tuple[Callsheet, asyncio.Queue[int]]:
    """An app whose task tells which jobs it ran."""
    app, runs = Callsheet("sqlite:////nowhere/at/all.db"), asyncio.Queue[int]()

    @app.task(name="resize")
    async def resize(n: int) -> int:
        runs.put_nowait(n)
        return n

    return app, runs


async def working(live: Live, app: Callsheet, done: asyncio.Queue[int], url: str = "") -> None:
    """Run a remote worker until it has done a job of `{"n": 1}`."""
    remote = RemoteOptions(url or live.url, await live.text(scopes=["worker"]), wait=2.0)
    worker = app.remote_worker(remote, grace=1.0, drain=1.0)
    run = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        response = asyncio.create_task(done.get())
        await asyncio.wait([run, response], return_when=asyncio.FIRST_COMPLETED)
        assert not run.done(), run.exception()
        assert response.result() == 1
        worker.stop(hard=True)
        await run


async def test_a_remote_worker_goes_on_behind_every_kind_of_poison(small: Live) -> None:
    app, runs = worker_app()
    bad = await put(small, *POISON.values(), "null", '"text"', '{"n":"\\ud800"}')
    await put(small, '{"n":1}')
    await working(small, app, runs)
    ends = [(await job(small, job_id)).status for job_id in bad]
    assert set(ends) <= {Status.DEAD_LETTER, Status.FAILED}


@pytest.mark.parametrize("status", [400, 404, 405, 409, 410, 413, 422])
async def test_a_remote_worker_survives_a_refused_claim(small: Live, status: int) -> None:
    app, runs = worker_app()
    await put(small, '{"n":1}')
    left = 2

    def fate(request: Asked) -> Fate:
        nonlocal left
        if request.verb == "claim" and left:
            left -= 1
            return Fate(instead=problem(status, "no"))
        return Fate()

    async with FaultProxy.before(small.url, fate) as proxy:
        await working(small, app, runs, proxy.url)
    assert left == 0


async def test_a_payload_that_a_worker_cannot_read_ends_its_job_alone(small: Live) -> None:
    app, runs = worker_app()
    bad, good = await put(small, '{"n":0}', '{"n":1}')

    def odd(answer: dict[str, Any]) -> dict[str, Any]:
        jobs = [{**one, "payload": "\ud800"} if one["job_id"] == bad else one for one in answer.get("jobs", [])]
        return {**answer, "jobs": jobs} if jobs else answer

    async with FaultProxy.before(
        small.url, lambda request: Fate(change=odd) if request.verb == "claim" else Fate()
    ) as proxy:
        await working(small, app, runs, proxy.url)
    assert (await job(small, bad)).status is Status.DEAD_LETTER
    assert (await job(small, good)).job_id == good


async def test_a_heartbeat_that_is_refused_for_what_it_says_does_not_end_the_worker(small: Live) -> None:
    app, runs = Callsheet("sqlite:////nowhere/at/all.db"), asyncio.Queue[int]()
    is_refused = asyncio.Event()

    @app.task(name="resize")
    async def resize(n: int) -> int:
        await is_refused.wait()
        runs.put_nowait(n)
        return n

    def fate(request: Asked) -> Fate:
        if request.verb == "heartbeats" and not is_refused.is_set():
            is_refused.set()
            return Fate(instead=Answered(422, {"content-type": "text/html"}, b"<p>no"))
        return Fate()

    await put(small, '{"n":1}')
    async with FaultProxy.before(small.url, fate) as proxy:
        await working(small, app, runs, proxy.url)


async def test_a_local_worker_goes_on_behind_every_kind_of_poison() -> None:
    app, seen = Callsheet("sqlite::memory:"), list[int]()

    @app.task(name="resize")
    async def resize(n: int) -> int:
        seen.append(n)
        return n

    async with await app.engine() as engine:
        await engine.store.migrate()
        odd = [*POISON.values(), "null", '"text"', '{"n":"\\ud800"}', "{}"]
        batch = [new_job(payload=payload) for payload in odd]
        await engine.enqueue([*batch, new_job(payload='{"n":1}')])
        async with asyncio.timeout(60):
            await app.worker().run(burst=True)
        assert seen == [1]
        jobs = await engine.store.get([new.job_id for new in batch])
        assert {one.status for one in jobs if one is not None} <= {Status.FAILED, Status.DEAD_LETTER}


async def test_a_job_of_another_contract_ends_in_its_own_words(live: Live) -> None:
    ids = [
        await add(live, payload=POISON["a way up"], requester_id="acme"),
        *await put(live, POISON["a way up"], contract="euterpe"),
        *await put(live, POISON["a way up"], contract="aura"),
        *await put(live, POISON["a way up"], contract="cortana"),
        *await put(live, POISON["a way up"], contract="redis_gateway"),
    ]
    assert (await Remote(live).claim())["claimed"] is False
    for job_id in ids:
        assert (await job(live, job_id)).status in (Status.DEAD_LETTER, Status.FAILED)
