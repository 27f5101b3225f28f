"""Workers far away, and everything in between that can break: answers, connections, servers, stores, clocks."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet import Callsheet
from callsheet.cli.testkit.proxy import Asked, Fate, FaultProxy
from callsheet.contracts.control_plane import routes
from callsheet.contracts.control_plane.claims import TERMS, Terms
from callsheet.engine import Engine
from callsheet.kernel import commands
from callsheet.kernel.errors import StoreError
from callsheet.kernel.job import Job, NewJob, Outcome, Status
from callsheet.worker.remote import RemoteOptions, caller
from tests import stores
from tests.contracts.control_plane.remote import Remote
from tests.faults.conftest import run_out
from tests.http.live import ADMIN, Live, serving
from tests.server_process import free_port
from tests.servers import PostgresServer
from tests.store_driver import new_job
from tests.time_limits import within

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
DROPS, JOBS, KILLS = (1_000, 600, 6) if DEEP else (60, 90, 2)
pytestmark = pytest.mark.timeout(900 if DEEP else 300)
ROOT = Path(__file__).parents[2]
KEY = "key-of-the-fault-tests"
LONG = Terms(250.0, 1.0, 250.0)  # shorter than clocks are wrong below; no worker that lives loses such a lease
NO_BACKOFF = '{"lost_lease_backoff":{"table_ms":[0]}}'


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    async with serving(stores.fresh_url("sqlite"), routers=[routes.router], housekeeping=True) as live:
        yield live


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(log: Path) -> Iterator[Start]:
    """Start `callsheet worker --url` as a program; keywords are environment variables."""
    processes: list[subprocess.Popen[bytes]] = []

    def one(url: str, *words: str, token: str = ADMIN, **variables: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "callsheet.cli", "worker", "tests.faults.remote_crew:app", "--url", url]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "REMOTE_LOG": str(log), **variables}
        options = ["--log-level", "error", "--claim-wait", "2s", *words]
        processes.append(subprocess.Popen([*command, *options], env={**environment, "CALLSHEET_TOKEN": token}))
        return processes[-1]

    yield one
    for process in processes:
        process.kill()
        process.wait()


async def add(engine: Engine, task: str, **fields: Any) -> str:
    arguments = fields.pop("arguments", {})
    new = new_job(task, payload=json.dumps(arguments), **fields)
    await engine.enqueue([new])
    return new.job_id


async def until(engine: Engine, job_id: str, fact: Callable[[Job], bool], within_s: float = 60.0) -> Job:
    async with asyncio.timeout(within_s):
        while not fact(job := await engine.get(job_id)):
            await asyncio.sleep(0.01)
    return job


async def succeeded(engine: Engine, jobs: int, within_s: float = 90.0) -> None:
    async with asyncio.timeout(within_s):
        while (await engine.store.counts()).get("default", {}).get(Status.SUCCEEDED, 0) < jobs:
            await asyncio.sleep(0.05)


def numbered(count: int) -> list[NewJob]:
    return [new_job("count", payload=f'{{"n":{n}}}', max_attempts=50, retry=NO_BACKOFF) for n in range(count)]


class Ran:
    """An app in this process that counts its executions."""

    def __init__(self) -> None:
        self.app = Callsheet("sqlite:////nowhere/at/all.db")
        self.times: Counter[int] = Counter()

        @self.app.task(max_attempts=50)
        async def count(n: int) -> int:
            self.times[n] += 1
            await asyncio.sleep(0.003 * (n % 3))
            return n


async def all_ended_once(engine: Engine, ids: list[str]) -> None:
    """Assert that each job has one committed outcome and one end event."""
    for job_id in ids:
        attempts = await engine.store.attempts(job_id)
        assert [a.outcome for a in attempts].count(Outcome.SUCCEEDED) == 1, attempts
    events = await engine.store.events(dict.fromkeys(ids, 0), 100_000)
    assert Counter(event.job_id for event in events if event.type == "done") == dict.fromkeys(ids, 1)


async def test_claims_whose_answers_are_lost_give_each_job_once(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A2: jobs claimed are jobs received, however many answers a network swallows."""
    monkeypatch.setattr(caller, "FIRST_PAUSE_S", 0.01)
    ran, lost = Ran(), Counter[str]()

    async def fate(request: Asked) -> Fate:
        name = request.said.get("claim_request_id", "")
        if request.verb == "claim" and not lost[name]:
            lost[name] += 1
            return Fate(cut=True)
        return Fate()

    jobs = numbered(DROPS)
    await live.engine.enqueue(jobs)
    async with FaultProxy.before(live.url, fate) as proxy:
        worker = ran.app.remote_worker(RemoteOptions(proxy.url, ADMIN, wait=1.0), concurrency=1, prefetch=0)
        running = asyncio.create_task(worker.run())
        await succeeded(live.engine, DROPS, 600 if DEEP else 60)
        worker.stop()
        await running
        claimed = {
            job["job_id"] for one in proxy.passed if one.asked.verb == "claim" for job in _jobs(one.answered.said)
        }
    assert sum(lost.values()) >= DROPS
    assert claimed == {job.job_id for job in jobs}
    assert ran.times == dict.fromkeys(range(DROPS), 1)
    stored_jobs = [job for job in await live.engine.store.get([job.job_id for job in jobs]) if job is not None]
    assert {(job.attempt_count, job.lease_losses, job.claim_version) for job in stored_jobs} == {(1, 0, 1)}


def _jobs(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return answer.get("jobs") or ([answer] if answer.get("claimed") else [])


async def test_a_claim_that_fell_into_a_hole_is_given_up_in_time_and_its_job_runs_once(live: Live) -> None:
    """A22: total poll timeout is the server's wait and 5 s."""
    ran, claims = Ran(), list[float]()

    def fate(request: Asked) -> Fate:
        if request.verb != "claim":
            return Fate()
        claims.append(time.monotonic())
        return Fate(hole=len(claims) == 1)

    (job,) = numbered(1)
    await live.engine.enqueue([job])
    async with FaultProxy.before(live.url, fate) as proxy:
        worker = ran.app.remote_worker(RemoteOptions(proxy.url, ADMIN, wait=0.5))
        running = asyncio.create_task(worker.run())
        ended_job = await until(live.engine, job.job_id, lambda job: job.status.terminal)
        worker.stop()
        await running
    assert claims[1] - claims[0] <= within(0.5 + 6)
    assert (ended_job.status, ended_job.attempt_count, ran.times[0]) == (Status.SUCCEEDED, 1, 1)


async def test_ends_that_are_doubled_and_out_of_order_change_nothing(live: Live) -> None:
    worker = Remote(live)
    job_id = await add(live.engine, "count", retry='{"backoff":{"table_ms":[0]}}', max_attempts=3)
    first = await worker.claim()
    await worker.say("fail", first, error={"code": "E"})
    second = await worker.claim()
    assert second["job_id"] == job_id
    late: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("fail", first, {"error": {"code": "E"}}),
        ("complete", first, {"result": "old"}),
        ("release", first, {}),
    ]
    now = [("complete", second, {"result": "new"})] * 8
    messages = late * 4 + now
    random.shuffle(messages)
    answers = await asyncio.gather(*(worker.say(verb, claim, **more) for verb, claim, more in messages))
    report_counts = Counter(
        (verb, claim["attempt_id"], a.status_code) for (verb, claim, _), a in zip(messages, answers, strict=True)
    )
    assert report_counts == {
        ("complete", second["attempt_id"], 200): 8,
        ("fail", first["attempt_id"], 200): 4,  # the same outcome again
        ("complete", first["attempt_id"], 409): 4,
        ("release", first["attempt_id"], 409): 4,
    }
    job = await live.engine.get(job_id)
    assert (job.status, job.result, job.attempt_count) == (Status.SUCCEEDED, '"new"', 2)
    await all_ended_once(live.engine, [job_id])


async def test_an_end_after_the_lease_was_lost_is_refused_with_the_present_attempt(live: Live) -> None:
    worker, other = Remote(live), Remote(live, "w2")
    job_id = await add(live.engine, "count", retry=NO_BACKOFF)
    first = await worker.claim()
    job = await live.engine.get(job_id)
    await live.engine.settle([commands.lose_lease(job, rand=0.0)._replace(expired_only=False)])
    await other.claim()
    for verb, more in (("complete", {"result": 1}), ("fail", {"error": {"code": "x"}}), ("release", {})):
        answer = await worker.say(verb, first, **more)
        assert (answer.status_code, answer.json()["code"], answer.json()["current_attempt"]) == (409, "lease_lost", 2)
    assert (await live.engine.get(job_id)).status is Status.RUNNING


async def test_a_killed_worker_is_replaced_when_its_lease_runs_out(live: Live, start: Start, log: Path) -> None:
    TERMS.put(live.state, LONG)
    job_id = await add(live.engine, "slow", arguments={"seconds": 1.0}, retry=NO_BACKOFF, max_attempts=5)
    start(live.url), start(live.url)
    held = await until(live.engine, job_id, lambda job: job.progress > 0)
    busy = int(log.read_text().split()[1])
    os.kill(busy, 9)
    await run_out(live.engine, held)
    await until(live.engine, job_id, lambda job: job.claim_version == 2, within(3))
    job = await until(live.engine, job_id, lambda job: job.status.terminal)
    assert (job.status, job.lease_losses, job.attempt_count) == (Status.SUCCEEDED, 1, 2)


async def test_a_job_that_kills_its_workers_ends_as_a_dead_letter_after_three(
    live: Live, start: Start, log: Path
) -> None:
    """A12: the crew is free for other jobs."""
    TERMS.put(live.state, LONG)
    poison = await add(live.engine, "poison", retry=NO_BACKOFF, max_attempts=3)
    start(live.url, "--processes", "2")
    for times in (1, 2, 3):
        await until(live.engine, poison, lambda _, times=times: log.read_text().count("poison") == times)  # type: ignore[misc]
        await run_out(live.engine, await live.engine.get(poison))
    job = await live.engine.get(poison)
    assert (job.status, job.lease_losses) == (Status.DEAD_LETTER, 3)
    assert "worker_lost" in (job.error or "")
    assert log.read_text().count("poison") == 3
    other = await add(live.engine, "count", arguments={"n": 1})
    assert (await until(live.engine, other, lambda job: job.status.terminal)).status is Status.SUCCEEDED


async def test_the_clock_of_a_workers_machine_does_not_matter(live: Live, start: Start) -> None:
    TERMS.put(live.state, LONG)
    jobs = {}
    for skew_s in (-300, 300):
        queue = f"skew{skew_s}"
        jobs[skew_s] = await add(live.engine, "slow", arguments={"seconds": 3.5}, max_attempts=1, queue=queue)
        start(live.url, "--queues", queue, REMOTE_SKEW_S=str(skew_s))
    for skew_s, job_id in jobs.items():
        job = await until(live.engine, job_id, lambda job: job.status.terminal)
        assert (job.status, job.lease_losses, job.attempt_count) == (Status.SUCCEEDED, 0, 1), job.error
        assert abs(float(job.result or 0) - time.time() - skew_s) < 100  # its clock was wrong indeed
        assert abs((job.ended_at or 0) / 1000 - time.time()) < 100  # and nobody asked it


class Plane:
    """Runs `callsheet serve` as a process that tests can kill and restart."""

    def __init__(self, url: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._store = url
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """One at a time, and never beside another: the port is fixed, and unrelated processes stay alive."""
        async with self._starting:
            self.kill()
            await self._start()

    async def _start(self) -> None:
        words = ["-m", "callsheet.cli", "serve", "--port", str(self.port), "--log-level", "error"]
        variables = {"PYTHONPATH": str(ROOT / "src"), "CALLSHEET_API_KEY": KEY, "CALLSHEET_DATABASE_URL": self._store}
        program = [sys.executable, *words]
        self._process = await asyncio.to_thread(subprocess.Popen, program, env={**os.environ, **variables})
        async with asyncio.timeout(60), httpx2.AsyncClient() as client:
            while self._process.poll() is None:  # who kills it meanwhile starts the next
                try:
                    if (await client.get(f"{self.url}/healthz")).is_success:
                        return
                except httpx2.TransportError:
                    await asyncio.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


async def test_servers_killed_amid_claims_and_completions_lose_nothing() -> None:
    url = stores.fresh_url("sqlite")
    engine = Engine.from_url(url)
    await engine.store.migrate()
    plane, ran, jobs = Plane(url), Ran(), numbered(JOBS)
    moments = {"claim": random.randrange(2, 5), "moves": random.randrange(2, 5)}
    killed_texts: list[str] = []

    async def fate(request: Asked) -> Fate:
        """The server dies while it works on this request, or with its answer unsent."""
        due = moments.get(request.verb)
        if due is None or len(killed_texts) >= KILLS:
            return Fate()
        moments[request.verb] -= 1
        if due > 0:
            return Fate()
        moments[request.verb] = random.randrange(2, 5)
        killed_texts.append(request.verb)
        asyncio.get_running_loop().call_later(random.choice((0.0, 0.001, 0.003, 0.01)), plane.kill)
        again.append(asyncio.create_task(_again(plane)))
        return Fate(cut=True)

    again: list[asyncio.Task[None]] = []
    try:
        await plane.start()
        async with engine, FaultProxy.before(plane.url, fate) as proxy:
            await engine.enqueue(jobs)
            worker = ran.app.remote_worker(RemoteOptions(proxy.url, KEY, wait=1.0), concurrency=4, prefetch=0)
            running = asyncio.create_task(worker.run())
            await succeeded(engine, JOBS, 600 if DEEP else 100)
            worker.stop()
            await running
            await asyncio.gather(*again)
            assert len(killed_texts) == KILLS
            stored_jobs = {
                job.job_id: job for job in await engine.store.get([j.job_id for j in jobs]) if job is not None
            }
            for n, job in enumerate(jobs):
                assert 1 <= ran.times[n] <= 1 + stored_jobs[job.job_id].lease_losses
            await all_ended_once(engine, [job.job_id for job in jobs])
    finally:
        plane.kill()


async def _again(plane: Plane) -> None:
    await asyncio.sleep(0.1)
    await plane.start()


async def test_a_restart_of_postgresql_loses_nothing() -> None:
    server = PostgresServer.start(settings={"shared_buffers": "32MB"})
    try:
        ran, jobs = Ran(), numbered(JOBS)
        async with serving(server.create_database(), routers=[routes.router], housekeeping=True) as live:
            await live.engine.enqueue(jobs)
            worker = ran.app.remote_worker(RemoteOptions(live.url, ADMIN, wait=1.0), concurrency=4, prefetch=0)
            running = asyncio.create_task(worker.run())
            await succeeded(live.engine, JOBS // 4)
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.start_again)
            await _patiently(live.engine)
            await succeeded(live.engine, JOBS, 100)
            worker.stop()
            await running
            assert set(ran.times) == set(range(JOBS))
            await all_ended_once(live.engine, [job.job_id for job in jobs])
    finally:
        server.stop()


async def _patiently(engine: Engine) -> None:
    """Retry until the store answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                await engine.store.now()
            except StoreError:
                await asyncio.sleep(0.1)
            else:
                return
