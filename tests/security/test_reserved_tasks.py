"""A task that belongs to a contract is created by that contract's route alone, and runs for its jobs alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callsheet import Callsheet, Context
from callsheet.app.builtin import add_builtin
from callsheet.engine import dead_letters
from callsheet.kernel.contracts import TASKS
from callsheet.kernel.job import Status
from callsheet.store.protocol import JobQuery
from tests.contracts.control_plane.remote import Remote
from tests.http.conftest import url  # noqa: F401 - a fixture
from tests.security.of_objects import JOB_OF_OWN, Place, placed
from tests.store_driver import new_job

EXPLOIT = {
    "source": "object:outputs/victim/x.wav",
    "output": "object:outputs/acme/x",
    "outputs": [{"key": "a.mp3", "format": "mp3"}],
}
ALL = JobQuery(limit=200)
ROUTES = {"/api/jobs": "aura", "/v1/jobs": "redis_gateway"}


@pytest.fixture
async def place(url: str, tmp_path: Path) -> AsyncIterator[Place]:  # noqa: F811
    async with placed(url, tmp_path) as place:
        yield place


def test_every_task_that_comes_along_is_its_contracts() -> None:
    app = Callsheet("sqlite:///:memory:")
    add_builtin(app)
    assert {name: definition.contract for name, definition in app.definitions.items()} == TASKS


async def test_a_route_creates_the_tasks_of_its_own_contract_alone(place: Place) -> None:
    """The second exploit among them: `transcode` by `/api/jobs`."""
    async with await place.live.key("acme") as acme:
        for path, contract in ROUTES.items():
            for task, owner in TASKS.items():
                payload = EXPLOIT if task == "transcode" else {}
                answer = await acme.post(path, json={"task": task, "payload": payload})
                if owner == contract:
                    assert answer.status_code == 202, (path, task, answer.text)
                elif path == "/v1/jobs":  # which knows its own tasks alone
                    assert answer.status_code == 422, (path, task)
                else:
                    assert (answer.status_code, answer.json()["code"]) == (403, "task_reserved"), (path, task)
                    assert "POST /" in answer.json()["detail"]
        assert (await acme.post("/api/jobs", json={"task": "resize", "payload": {}})).status_code == 202
    kinds = {(job.kind, job.contract) for job in (await place.live.engine.find(ALL)).jobs}
    assert all(TASKS.get(kind, contract) == contract for kind, contract in kinds)


async def test_a_worker_cannot_ask_for_a_task_whose_payload_its_route_checks(place: Place) -> None:
    worker = Remote(place.live)
    for task, contract in TASKS.items():
        await place.live.engine.enqueue([new_job(requester_id="acme", queue=task, contract="control_plane")])
        claim = await worker.claim(task)
        follow = {"do": "complete", "follow_ups": [{"task": task, "payload": EXPLOIT, "queue": "after"}]}
        (answer,) = await worker.move((claim, follow))
        if contract in ("euterpe", "cortana"):
            assert (answer["ok"], answer["code"]) == (False, "task_reserved"), task
            assert (await place.live.engine.get(claim["job_id"])).status is Status.RUNNING
        else:
            assert answer["ok"], task
    jobs_after = [job for job in (await place.live.engine.find(ALL)).jobs if job.queue == "after"]
    assert jobs_after
    assert all(TASKS[job.kind] == job.contract for job in jobs_after)


async def test_a_job_of_another_contract_never_reaches_the_function(place: Place) -> None:
    """Such a job could come from an older release or a foreign producer."""
    ran: list[str] = []

    @place.app.task(contract="euterpe", name="mine")
    async def mine(ctx: Context) -> None:
        ran.append("async")

    @place.app.task(contract="euterpe")
    def plain() -> None:
        ran.append("thread")

    @place.app.task(contract="euterpe")
    async def simple() -> None:
        ran.append("simple")

    jobs = [
        new_job(kind=kind, contract=contract)
        for kind in ("mine", "plain", "simple")
        for contract in ("aura", "callsheet", "redis_gateway", "cortana", "control_plane")
    ]
    await place.live.engine.enqueue(jobs)
    await place.app.worker().run(burst=True)
    for job in jobs:
        ended_job = await place.live.engine.get(job.job_id)
        assert ended_job.status is Status.DEAD_LETTER
        assert "task_reserved" in (ended_job.error or "")
    assert ran == []
    replayed_job = await dead_letters.replay(place.live.engine, [(await place.live.engine.get(jobs[1].job_id)).claim])
    assert replayed_job.done == 1
    await place.app.worker().run(burst=True)
    assert ran == [], "a replay keeps the contract"
    for task in (mine, plain, simple):
        await task.enqueue()
    await place.app.worker().run(burst=True)
    assert sorted(ran) == ["async", "simple", "thread"], "trusted code makes jobs of the task's own contract"


async def test_a_task_of_ones_own_is_anybodys(place: Place) -> None:
    @place.app.task
    async def resize() -> int:
        return 1

    await place.live.engine.enqueue([new_job(job_id=JOB_OF_OWN, kind="resize", contract="aura", payload="{}")])
    await place.app.worker().run(burst=True)
    assert (await place.live.engine.get(JOB_OF_OWN)).status is Status.SUCCEEDED
