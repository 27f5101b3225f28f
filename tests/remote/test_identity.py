"""Tokens of a remote worker: enrolment, rotation, a file for the next start, and their end."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from callsheet import Callsheet
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.job import Status
from callsheet.worker.remote import RemoteOptions, RemoteWorker, WorkerRefused
from callsheet.worker.remote.credentials import Credentials
from tests.http.live import Live

from .conftest import add, ended


@pytest.fixture
def app(app: Callsheet) -> Callsheet:
    @app.task
    async def one() -> int:
        return 1

    return app


async def invited(live: Live, **options: Any) -> str:
    answer = await live.client.post("/v1/workers/enrolments", json=options)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["enrolment_token"])


async def one_job(live: Live, app: Callsheet, options: RemoteOptions, **more: Any) -> RemoteWorker:
    """Run a worker until one job is done."""
    job_id, worker = await add(live, app, "one"), app.remote_worker(options, **more)
    async with asyncio.timeout(60):
        await worker.run(burst=True)
    assert (await live.engine.get(job_id)).status is Status.SUCCEEDED
    return worker


async def test_an_enrolment_token_becomes_a_worker_of_that_name(
    live: Live, app: Callsheet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = await invited(live)
    worker = await one_job(live, app, RemoteOptions(live.url, token, labels=("gpu",)))
    listing = (await live.client.get("/v1/workers")).json()["workers"]
    assert [(w["worker_id"], w["enrolled"], w["labels"]) for w in listing] == [(worker.worker_id, True, ["gpu"])]
    assert token not in caplog.text
    assert worker._credentials.token not in caplog.text
    with pytest.raises(WorkerRefused, match="used up"):
        await app.remote_worker(RemoteOptions(live.url, token)).run(burst=True)


async def test_a_token_file_serves_the_next_start(live: Live, app: Callsheet, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{await invited(live)}\n")
    options = RemoteOptions(live.url, token_file=file)
    first = await one_job(live, app, options)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = json.loads(file.read_text())
    assert kept["token"].startswith("cs_worker_")
    second = await one_job(live, app, options)
    assert first.worker_id == second.worker_id
    assert json.loads(file.read_text())["token"] != kept["token"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


async def test_processes_share_a_file_and_none_is_locked_out(live: Live, app: Callsheet, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(await invited(live))
    options = RemoteOptions(live.url, token_file=file, wait=0.3)
    ids = [await add(live, app, "one") for _ in range(20)]
    workers = [app.remote_worker(options, concurrency=1) for _ in range(6)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(worker.run(burst=True) for worker in workers))
    assert len({worker.worker_id for worker in workers}) == 1
    assert {(await live.engine.get(i)).status for i in ids} == {Status.SUCCEEDED}


async def test_a_token_is_rotated_at_three_quarters_of_its_life(
    live: Live, app: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await invited(live, token_life_s=10)
    taken_jobs: list[float] = []
    take = Credentials._take

    def quicker(self: Credentials, answer: dict[str, Any]) -> None:
        taken_jobs.append(answer["rotate_after_seconds"])
        take(self, {**answer, "rotate_after_seconds": 0.3})  # the server says 7.5 s

    monkeypatch.setattr(Credentials, "_take", quicker)
    worker = app.remote_worker(RemoteOptions(live.url, token, wait=0.2))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        while len(taken_jobs) < 4:
            await asyncio.sleep(0.01)
    job_id = await add(live, app, "one")
    await ended(live, job_id)
    worker.stop()
    await running
    assert set(taken_jobs) == {7.5}


async def test_a_revoked_worker_ends_and_tells_nothing_more(live: Live, app: Callsheet) -> None:
    @app.task(max_attempts=1)
    async def long() -> None:
        await asyncio.sleep(600)

    worker = app.remote_worker(RemoteOptions(live.url, await invited(live), wait=0.5), grace=1.0)
    running = asyncio.create_task(worker.run())
    job_id = await add(live, app, "long")
    async with asyncio.timeout(60):
        while not worker.runs:
            await asyncio.sleep(0.01)
        answer = await live.client.delete(f"/v1/workers/{worker.worker_id}")
        assert answer.status_code == 200, answer.text
        with pytest.raises(WorkerRefused, match="worker_revoked"):
            await running
    assert (await live.engine.get(job_id)).status is Status.RUNNING  # until its lease runs out


async def test_a_draining_worker_ends(live: Live, app: Callsheet) -> None:
    worker = app.remote_worker(RemoteOptions(live.url, await invited(live), wait=0.5))
    running = asyncio.create_task(worker.run())
    job_id = await add(live, app, "one")
    await ended(live, job_id)
    answer = await live.client.post(f"/v1/workers/{worker.worker_id}/drain")
    assert answer.status_code == 200, answer.text
    async with asyncio.timeout(60):
        await running
    assert worker.drained


async def test_a_worker_of_other_queues_is_told_so(live: Live, app: Callsheet) -> None:
    token = await invited(live, queues=["media"])
    with pytest.raises(WorkerRefused, match="not enrolled for default"):
        await app.remote_worker(RemoteOptions(live.url, token)).run(burst=True)


@pytest.mark.parametrize("text", ["", "two words", '{"token":', "caf\u00e9", '{"worker_id":"x"}'])
def test_a_file_without_a_token_is_told_without_its_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text, "utf-8")
    with pytest.raises(InvalidInput, match="holds no token") as excinfo:
        Credentials(RemoteOptions("https://x", token_file=file), "w")
    assert not text or text not in str(excinfo.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        Credentials(RemoteOptions("https://x", token_file=tmp_path / "none"), "w")


async def forget(live: Live, worker_id: str) -> None:
    """Delete the server's record of a worker."""
    assert await live.engine.store.delete_document("worker", worker_id[-10:])
    live.state.workers._principals.clear()  # what it believes for three seconds


async def test_a_worker_whose_file_is_gone_enrols_again(live: Live, app: Callsheet, tmp_path: Path) -> None:
    file = tmp_path / "token"
    options = RemoteOptions(live.url, await invited(live, uses=2), token_file=file)
    first = await one_job(live, app, options)
    again = await one_job(live, app, options)
    assert again.worker_id == first.worker_id  # the file is good
    file.unlink()
    second = await one_job(live, app, options)
    assert second.worker_id != first.worker_id
    assert json.loads(file.read_text())["worker_id"] == second.worker_id
    file.unlink()
    with pytest.raises(WorkerRefused, match="used up"):
        await app.remote_worker(options).run(burst=True)


async def test_a_worker_whose_token_is_not_known_any_more_enrols_again_when_it_starts(
    live: Live, app: Callsheet, tmp_path: Path
) -> None:
    options = RemoteOptions(live.url, await invited(live, uses=2), token_file=tmp_path / "token")
    first = await one_job(live, app, options)
    await forget(live, first.worker_id)
    assert (await one_job(live, app, options)).worker_id != first.worker_id


async def uses_left(live: Live) -> int:
    (enrolment,) = await live.engine.store.documents("enrolment")
    return int(json.loads(enrolment.body)["uses_left"])


async def test_a_worker_whose_token_is_not_known_any_more_enrols_again_while_it_runs_and_not_in_a_loop(
    live: Live, app: Callsheet, tmp_path: Path
) -> None:
    options = RemoteOptions(live.url, await invited(live, uses=9), token_file=tmp_path / "token", wait=0.2)
    worker = app.remote_worker(options)
    running = asyncio.create_task(worker.run())
    await ended(live, await add(live, app, "one"))
    first = worker.worker_id
    await forget(live, first)
    body = asyncio.create_task(ended(live, await add(live, app, "one")))
    await asyncio.wait({running, body}, return_when=asyncio.FIRST_COMPLETED)
    assert body.done(), running
    assert (worker.worker_id != first, await uses_left(live)) == (True, 7)
    await forget(live, worker.worker_id)  # so soon again: something else is wrong
    async with asyncio.timeout(60):
        while not running.done() and await uses_left(live) == 7:
            await asyncio.sleep(0.01)
    worker.stop(hard=True)
    assert await uses_left(live) == 7
    with pytest.raises(WorkerRefused, match="not known"):
        await running


async def test_a_worker_whose_token_was_copied_enrols_again(live: Live, app: Callsheet, tmp_path: Path) -> None:
    options = RemoteOptions(live.url, await invited(live, uses=2), token_file=tmp_path / "token")
    first = await one_job(live, app, options)
    now = await live.engine.store.now()
    await live.state.workers._change(first.worker_id, lambda body: body.update(revoked_at=now, token_reused_at=now))
    assert (await one_job(live, app, options)).worker_id != first.worker_id


async def test_a_worker_that_was_revoked_on_purpose_does_not_enrol_again(
    live: Live, app: Callsheet, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    options = RemoteOptions(live.url, await invited(live, uses=9), token_file=file)
    first = await one_job(live, app, options, worker_id="gpu1")
    now = await live.engine.store.now()
    await live.state.workers._change(first.worker_id, lambda body: body.update(revoked_at=now, token_reused_at=now))
    record = {"Authorization": f"Bearer {json.loads(file.read_text())['token']}"}
    for may_enrol in True, False:
        policy = await live.client.post("/internal/worker/token", headers=record)
        assert (policy.json()["code"], policy.json()["may_enrol"]) == ("worker_revoked", may_enrol)
        assert (await live.client.delete(f"/v1/workers/{first.worker_id}")).status_code == 200  # now it is on purpose
    with pytest.raises(WorkerRefused, match="worker_revoked"):
        await app.remote_worker(options, worker_id="gpu1").run(burst=True)
    file.unlink()
    with pytest.raises(WorkerRefused, match="worker_revoked"):
        await app.remote_worker(options, worker_id="gpu1").run(burst=True)
    await one_job(
        live, app, RemoteOptions(live.url, await invited(live)), worker_id="gpu1"
    )  # another invitation is another matter
    documents = [json.loads(one.body)["uses_left"] for one in await live.engine.store.documents("enrolment")]
    assert sorted(documents) == [0, 8]


def test_beside_a_file_only_an_enrolment_token_is_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="one token"):
        RemoteOptions("https://x", "cs_live_key", token_file=tmp_path / "token")
    with pytest.raises(InvalidInput, match="one token"):
        RemoteOptions("https://x")
