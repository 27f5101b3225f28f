"""`/v1/schedules`: made, read, paused, run at once and deleted, each tenant by itself."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from callsheet.api import schedules
from callsheet.engine.schedules import Schedule, declare_schedules, fire_due
from callsheet.engine.task_register import TaskRecord, register
from callsheet.kernel.job import Status
from tests.http.live import Live, problem

HOURLY: dict[str, Any] = {"task": "report", "payload": {"to": "ops"}, "cron": "0 * * * *", "unchecked": True}


async def made(live: Live, name: str = "hourly", client: Any = None, **fields: Any) -> dict[str, Any]:
    answer = await (client or live.client).put(f"/v1/schedules/{name}", json={**HOURLY, **fields})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_schedule_shows_its_next_runs_and_fires(live: Live) -> None:
    body = await made(live, timezone="Europe/Berlin")
    slots = body["next_runs"]
    assert len(slots) == 5
    assert {later - slot for slot, later in itertools.pairwise(slots)} == {3_600_000}
    assert await fire_due(live.engine.store, now=slots[0]) == 1
    after = (await live.client.get("/v1/schedules/hourly")).json()
    (run,) = after["last_runs"]
    assert (run["slot"], run["status"], after["runs"]) == (slots[0], "queued", 1)
    job = await live.engine.get(run["job_id"])
    assert (job.kind, job.payload) == ("report", '{"to":"ops"}')


async def test_a_schedule_takes_its_tasks_options_and_its_own(live: Live) -> None:
    await register(live.engine.store, [TaskRecord("report", queue="office", max_attempts=9)])
    body = await made(live, unchecked=False, priority=3, retry={"delays": ["1m"]}, every="10m", cron="")
    shown = (body["queue"], body["max_attempts"], body["priority"], body["every_ms"])
    assert shown == ("office", 2, 3, 600_000)


async def test_running_now_makes_a_job_beside_the_slots(live: Live) -> None:
    await made(live)
    answer = await live.client.post("/v1/schedules/hourly/run")
    job = await live.engine.get(answer.json()["job_id"])
    after = (await live.client.get("/v1/schedules/hourly")).json()
    assert (answer.status_code, job.status, after["last_runs"][0]["job_id"]) == (202, Status.QUEUED, job.job_id)


async def test_a_paused_schedule_has_no_next_runs(live: Live) -> None:
    first = (await made(live))["next_runs"][0]
    assert (await live.client.post("/v1/schedules/hourly/pause")).json()["next_runs"] == []
    assert await fire_due(live.engine.store, now=first) == 0
    assert len((await live.client.post("/v1/schedules/hourly/resume")).json()["next_runs"]) == 5


async def test_a_deleted_schedule_is_gone(live: Live) -> None:
    await made(live)
    assert (await live.client.delete("/v1/schedules/hourly")).status_code == 204
    problem(await live.client.get("/v1/schedules/hourly"), 404, "not_found")


async def test_tenants_have_names_of_their_own(live: Live) -> None:
    async with await live.key("acme") as acme, await live.key("rival") as rival:
        await made(live, client=acme, payload={"whose": "acme"})
        await made(live, client=rival, payload={"whose": "rival"})
        (own,) = (await acme.get("/v1/schedules")).json()["schedules"]
        assert (own["name"], own["payload"], own["requester_id"]) == ("hourly", {"whose": "acme"}, "acme")
        (job_id,) = [(await rival.post("/v1/schedules/hourly/run")).json()["job_id"]]
        assert (await live.engine.get(job_id)).requester_id == "rival"
    assert len((await live.client.get("/v1/schedules")).json()["schedules"]) == 2


async def test_a_schedule_makes_no_job_of_a_contract(live: Live) -> None:
    """Slots are enqueued without a route that would look: what a schedule may make is decided when it is put."""
    for task in ("transcode", "video.ocr", "compose"):
        problem(await live.client.put("/v1/schedules/a", json={**HOURLY, "task": task}), 403, "task_reserved")
    assert (await live.client.get("/v1/schedules")).json()["schedules"] == []


async def test_a_tenant_has_a_bound(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "MOST_OF_TENANT", 2)
    async with await small.key("acme") as acme:
        for name in ("a", "b", "a"):
            await made(small, name, acme)
        problem(await acme.put("/v1/schedules/c", json=HOURLY), 409, "document_conflict")


async def test_a_tenants_schedule_is_small(live: Live) -> None:
    """All schedules are read each second, by every process: large ones would be a load on everybody."""
    large = {**HOURLY, "payload": {"a": "x" * 9_000}}
    async with await live.key("acme") as acme:
        problem(await acme.put("/v1/schedules/a", json=large), 413, "payload_too_large")
        assert (await acme.get("/v1/schedules")).json()["schedules"] == []
    assert (await live.client.put("/v1/schedules/a", json=large)).status_code == 200


async def test_a_declared_schedule_can_be_paused_and_not_changed(live: Live) -> None:
    await declare_schedules(live.engine.store, {"shop": [Schedule("nightly", "0 3 * * *", "report")]})
    problem(await live.client.put("/v1/schedules/nightly", json=HOURLY), 409, "document_conflict")
    problem(await live.client.delete("/v1/schedules/nightly"), 409, "document_conflict")
    body = (await live.client.post("/v1/schedules/nightly/pause")).json()
    assert (body["source"], body["paused"]) == ("code", True)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": ""}, "cron"),
        ({"every": "10m"}, "cron"),
        ({"cron": "", "every": "0s"}, "every"),
        ({"cron": "", "every": "900w"}, "every"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timezone": "../../etc/passwd"}, "timezone"),
        ({"missed": "sometimes"}, "missed"),
        ({"most": 0}, "most"),
        ({"overlap": "explode"}, "overlap"),
        ({"delay": "10m"}, "delay"),
        ({"unique_key": "a"}, "unique_key"),
        ({"requester_id": "victim"}, "requester_id"),
        ({"contract": "control_plane", "task": "video.ocr"}, "video.ocr"),
    ],
)
async def test_a_wrong_schedule_is_refused_by_field(small: Live, fields: dict[str, Any], name: str) -> None:
    answer = await small.client.put("/v1/schedules/wrong", json={**HOURLY, **fields})
    assert answer.status_code in (403, 422), answer.text
    assert name in answer.json()["detail"]
    assert (await small.client.get("/v1/schedules")).json()["schedules"] == []
