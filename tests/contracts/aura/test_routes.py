"""`/api/jobs` through a real server: the contract's words, times and refusals, on all three stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from callsheet.contracts.aura import routes
from callsheet.contracts.aura.folders import Cleanup, Folders, Hold
from callsheet.kernel import commands
from callsheet.kernel.job import Claim, Job, Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from tests.http.live import Live, serving
from tests.running_worker import until

from .conftest import running

Answer = dict[str, Any]


@pytest.fixture
async def live(url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    monkeypatch.setenv("CALLSHEET_MEDIA_ROOT", str(tmp_path / "media"))
    async with serving(url, routers=[routes.router]) as live:
        yield live


async def create(live: Live, **body: Any) -> Answer:
    answer = await live.client.post("/api/jobs", json={"payload": {"script": "# T"}, **body})
    assert answer.status_code == 202, answer.text
    found: Answer = answer.json()
    return found


async def claimed(live: Live, lease_ms: int = 60_000) -> Job:
    (job,) = await live.engine.claim(ClaimRequest("w", lease_ms=lease_ms))
    return job


async def shown(live: Live, job_id: str) -> Answer:
    body: Answer = (await live.client.get(f"/api/jobs/{job_id}")).json()
    return body


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_successful_job_has_its_times_in_order(live: Live) -> None:
    receipt = await create(live)
    new = await shown(live, receipt["jobId"])
    assert (new["status"], new["stage"], new["phase"], new["percent"]) == ("Queued", "Queued", "plan", 0)
    assert new["queuedUtc"] == new["createdUtc"]
    assert (new["startedUtc"], new["endedUtc"], new["canResume"]) == (None, None, False)
    job = await claimed(live)
    await live.engine.settle([commands.advance(job, "Voice"), commands.progress(job, 20)])
    running = await shown(live, receipt["jobId"])
    assert (running["status"], running["stage"], running["phase"], running["percent"]) == (
        "Running",
        "Voice",
        "tts",
        20,
    )
    await live.engine.settle([commands.succeed(job, '{"video":"x.mp4"}')])
    done_view = await shown(live, receipt["jobId"])
    assert (done_view["status"], done_view["phase"], done_view["percent"], done_view["output"]) == (
        "Done",
        "complete",
        100,
        {"video": "x.mp4"},
    )
    assert (
        at(done_view["createdUtc"])
        <= at(done_view["queuedUtc"])
        <= at(done_view["startedUtc"])
        <= at(done_view["completedUtc"])
    )
    assert (done_view["endedUtc"], done_view["canceledUtc"]) == (done_view["completedUtc"], None)
    assert done_view["correlationId"] == receipt["correlationId"]


async def test_a_failed_job_says_what_and_where(live: Live) -> None:
    receipt = await create(live)
    job = await claimed(live)
    await live.engine.settle([commands.advance(job, "Rendering")])
    await live.engine.settle([commands.dead_letter(job._replace(stage="Rendering"), JobError("oom", "no memory"))])
    failed = await shown(live, receipt["jobId"])
    assert (failed["status"], failed["completedUtc"]) == ("Failed", None)
    assert failed["errors"] == [{"code": "oom", "message": "no memory", "step": "Rendering", "retryable": None}]
    assert failed["failureDetails"]["code"] == "oom"
    assert at(failed["endedUtc"]) >= at(failed["startedUtc"])


async def test_between_attempts_a_job_is_running_and_not_at_the_stage_queued(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.retry(job, JobError("busy", "later"), delay_ms=10**7)])
    body = (await live.client.get(f"/api/jobs/{job.job_id}")).json()
    assert (body["status"], body["stage"], body["phase"]) == ("Running", "Initialization", "plan")


async def test_a_retry_is_not_seen_as_a_step_back(live: Live) -> None:
    receipt = await create(live)
    job = await claimed(live)
    await live.engine.settle([commands.progress(job, 30)])
    await live.engine.settle([commands.retry(job, JobError("slow", "later"), delay_ms=0)])
    waiting = await shown(live, receipt["jobId"])
    assert (waiting["status"], waiting["percent"]) == ("Running", 30)
    again = await claimed(live)
    await live.engine.settle([commands.progress(again, 10)])
    assert (await shown(live, receipt["jobId"]))["percent"] == 30


async def test_a_waiting_job_is_cancelled_at_once(live: Live) -> None:
    receipt = await create(live)
    answer = await live.client.post(f"/api/jobs/{receipt['jobId']}/cancel")
    assert (answer.status_code, answer.json()["cleanupScheduled"], answer.json()["status"]) == (202, True, "Canceled")
    job = await shown(live, receipt["jobId"])
    assert (job["endedUtc"], job["startedUtc"]) == (job["canceledUtc"], None)
    again = await live.client.post(f"/api/jobs/{receipt['jobId']}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "illegal_move")
    assert await shown(live, receipt["jobId"]) == job


async def test_a_running_job_is_told_and_its_folders_are_removed(live: Live) -> None:
    receipt = await create(live)
    job = await claimed(live)
    folders = Folders()
    for kind in ("temp", "proxy"):
        (folders.make(kind, job.job_id) / "part.bin").write_bytes(b"x")
    answer = await live.client.post(f"/api/jobs/{receipt['jobId']}/cancel", json={"reason": "not wanted"})
    assert answer.json()["status"] == "Running"
    assert (await shown(live, receipt["jobId"]))["cancelRequested"]
    assert folders.exists(job.job_id)  # the worker has not stopped yet
    await live.engine.settle([commands.cancel(job, "not wanted")])
    await until(lambda: not folders.exists(job.job_id))
    ended_job = await shown(live, receipt["jobId"])
    assert (ended_job["status"], ended_job["endedUtc"]) == ("Canceled", ended_job["canceledUtc"])
    assert at(ended_job["canceledUtc"]) >= at(ended_job["startedUtc"])


async def test_a_cancelled_job_is_resumed_by_a_new_one(live: Live) -> None:
    receipt = await create(live)
    early = await live.client.post(f"/api/jobs/{receipt['jobId']}/resume")
    assert (early.status_code, early.json()["code"]) == (409, "not_resumable")
    job = await claimed(live)
    for step in ("Script", "Voice"):
        await live.engine.settle([commands.checkpoint(job, step, f'{{"made":"{step}"}}')])
    await live.engine.settle([commands.cancel(job, "")])
    ended_job = await shown(live, receipt["jobId"])
    assert (ended_job["canResume"], ended_job["lastCompletedStep"]) == (True, "Voice")
    answers = [(await live.client.post(f"/api/jobs/{receipt['jobId']}/resume")).json() for _ in range(2)]
    assert answers[0] == answers[1]  # asked twice, resumed once
    assert (answers[0]["resumedFrom"], answers[0]["lastCompletedStep"]) == (receipt["jobId"], "Voice")
    assert await shown(live, receipt["jobId"]) == ended_job  # terminal is terminal
    new = await claimed(live)
    assert new.job_id == answers[0]["jobId"]
    assert new.payload == job.payload  # what was completed is no part of it
    taken = await live.engine.steps(new)
    assert taken.results == {"Script": '{"made":"Script"}', "Voice": '{"made":"Voice"}'}
    await live.engine.settle([commands.succeed(new)])
    after = (await live.client.post(f"/api/jobs/{receipt['jobId']}/resume")).json()
    assert (after["jobId"], after["status"]) == (new.job_id, "Done")  # still once
    response = await live.client.post(f"/api/jobs/{new.job_id}/resume")
    assert response.json()["code"] == "not_resumable"


async def test_jobs_are_listed_by_status_and_a_stranger_sees_none(live: Live) -> None:
    first, second = await create(live), await create(live)
    await live.client.post(f"/api/jobs/{first['jobId']}/cancel")
    page = (await live.client.get("/api/jobs", params={"status": "Queued"})).json()
    assert [job["jobId"] for job in page["jobs"]] == [second["jobId"]]
    async with await live.key("stranger") as client:
        assert (await client.get("/api/jobs")).json()["jobs"] == []
        for path in ("", "/events"):
            assert (await client.get(f"/api/jobs/{second['jobId']}{path}")).status_code == 404
        assert (await client.post(f"/api/jobs/{second['jobId']}/cancel")).status_code == 404
        assert (await client.post(f"/api/jobs/{second['jobId']}/resume")).status_code == 404


@pytest.mark.parametrize("job_id", ["..", "%2e%2e%2fetc", "no-uuid", "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"])
async def test_an_id_that_is_none_is_not_found(live: Live, job_id: str) -> None:
    for answer in (await live.client.get(f"/api/jobs/{job_id}"), await live.client.post(f"/api/jobs/{job_id}/cancel")):
        assert answer.status_code in (404, 405)


async def test_orphans_go_after_their_time_and_live_ones_stay(live: Live) -> None:
    await create(live)
    running = await claimed(live)
    gone = "01900000-0000-7000-8000-0000000000aa"
    folders = Folders()
    for kind in ("temp", "proxy"):
        for job_id in (running.job_id, gone):
            folders.make(kind, job_id)
    service = Cleanup(live.engine, folders)
    now = (folders.root / "temp" / gone).stat().st_mtime
    assert await service.sweep(now + 23 * 3600) == 0
    assert await service.sweep(now + 25 * 3600) == 1
    assert not (folders.root / "temp" / gone).exists()
    assert (folders.root / "proxy" / gone).exists()
    assert await service.sweep(now + 49 * 3600) == 1
    assert (folders.root / "temp" / running.job_id).exists()
    assert (await live.engine.get(running.job_id)).status is Status.RUNNING


async def test_a_sweep_leaves_what_an_attempt_holds_though_its_job_is_over(live: Live) -> None:
    job, folders = await create(live), Folders()
    hold = Hold(folders, Claim(job["jobId"], 1))
    temp, _ = hold.make()
    await live.engine.cancel(job["jobId"])
    service = Cleanup(live.engine, folders)
    assert await service.sweep(temp.stat().st_mtime + 99 * 3600) == 0
    assert temp.is_dir()
    hold.remove()
    assert not folders.exists(job["jobId"])
