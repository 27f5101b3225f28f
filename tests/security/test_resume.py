"""The server reads a resumed job's state from the original job: no client, worker or producer says it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsheet import Callsheet, Context
from callsheet.contracts.aura.tasks import ObjectShelf, add_tasks
from callsheet.kernel import commands
from callsheet.kernel.errors import IllegalMove, InvalidInput, InvalidJob
from callsheet.kernel.job import RESUMED_FROM, Job, Status
from callsheet.kernel.retry import JobError
from callsheet.media.compose.artifacts import FolderShelf, fetch_all, place_in
from callsheet.media.compose.errors import InvalidStep
from callsheet.objects.memory import MemoryObjects
from callsheet.store.protocol import ClaimRequest
from callsheet.worker.signals import Fatal
from tests.contracts.control_plane.remote import Remote
from tests.http.conftest import url  # noqa: F401 - a fixture
from tests.running_worker import working
from tests.security.of_objects import JOB_OF_OTHER, JOB_OF_OWN, PIECES, Place, hostile_keys, placed
from tests.security.test_ownership_of_objects import bound
from tests.store_driver import new_job

SCRIPT = "---\nsize: 320x180\n---\n# The sea\n\n## Waves\n\nThe wind makes waves.\n"


@pytest.fixture
async def place(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:  # noqa: F811
    monkeypatch.setenv("CALLSHEET_MEDIA_ROOT", str(tmp_path / "media"))
    async with placed(url, tmp_path) as place:
        yield place


async def ended(place: Place, job_id: str) -> Job:
    """Wait for the job's end event; return the job."""
    async with asyncio.timeout(60):
        async for _ in place.live.engine.watch(job_id):
            pass
    return await place.live.engine.get(job_id)


async def test_a_payload_writes_no_file_of_this_machine(place: Place) -> None:
    """The first exploit: resume state in a payload put an upload at any path that the worker's user can write."""
    add_tasks(place.app)
    raw, target = await place.app.objects(), place.root / "owned.txt"
    await raw.put("uploads/acme/1/evil", b"evil")
    step = {"markdown": SCRIPT, "pictures": {}, "files": {str(target): "uploads/acme/1/evil"}}
    payload = {"script": SCRIPT, "resume": {"steps": {"Script": step}}}
    async with await place.live.key("acme") as acme, working(place.app):
        answer = await acme.post("/api/jobs", json={"task": "compose", "payload": payload})
        assert answer.status_code == 202, "the payload is the task's to judge"
        job = await ended(place, answer.json()["jobId"])
    assert not target.exists()
    assert job.status is not Status.SUCCEEDED
    assert "resume" in (job.error or ""), "it is an argument that compose does not have"
    assert json.loads(job.error or "")["code"] == "invalid_payload"


async def failed(place: Place, *steps: tuple[str, Any], requester_id: str = "acme", **fields: Any) -> Job:
    """A job that completed steps, and failed."""
    new = new_job(kind=fields.pop("kind", "work"), requester_id=requester_id, contract="aura", queue="q", **fields)
    await place.live.engine.enqueue([new])
    (job,) = await place.live.engine.claim(ClaimRequest("w", ("q",)))
    for name, value in steps:
        await place.live.engine.settle([commands.checkpoint(job, name, json.dumps(value))])
    await place.live.engine.settle([commands.dead_letter(job, JobError("broke", "it broke"))])
    return await place.live.engine.get(job.job_id)


async def test_a_users_own_task_is_resumed_and_its_steps_run_once(place: Place) -> None:
    ran: list[str] = []

    @place.app.task
    async def work(ctx: Context, n: int) -> int:
        async with ctx.step("first") as step:
            if not step.done:
                ran.append("first")
                step.result = n + 1
        ran.append("second")
        if ran.count("second") < 3:
            raise Fatal("not yet")
        assert await ctx.recall("first") == n + 1
        return int(step.result)

    async with await place.live.key("acme") as acme, working(place.app):
        body = (await acme.post("/api/jobs", json={"task": "work", "payload": {"n": 1}})).json()["jobId"]
        for _ in range(2):  # a resumed job that fails is resumed in its turn
            assert (await ended(place, body)).status in (Status.FAILED, Status.DEAD_LETTER)
            entry = (await acme.get(f"/api/jobs/{body}")).json()
            assert (entry["canResume"], entry["lastCompletedStep"]) == (True, "first")
            answer = await acme.post(f"/api/jobs/{body}/resume")
            assert (answer.status_code, answer.json()["resumedFrom"]) == (202, body), answer.text
            again = await acme.post(f"/api/jobs/{body}/resume")
            assert again.json()["jobId"] == answer.json()["jobId"], "asked twice, resumed once"
            body = answer.json()["jobId"]
        done_job = await ended(place, body)
    assert (done_job.status, done_job.result, done_job.payload) == (Status.SUCCEEDED, "2", '{"n":1}')
    assert ran == ["first", "second", "second", "second"]


async def test_only_what_can_be_resumed_says_so(place: Place) -> None:
    async with await place.live.key("acme") as acme:
        nothing = await failed(place)
        keyed = await failed(place, ("a", 1), concurrency_key="k")
        for job in (nothing, keyed):
            assert not (await acme.get(f"/api/jobs/{job.job_id}")).json()["canResume"]
            answer = await acme.post(f"/api/jobs/{job.job_id}/resume")
            assert (answer.status_code, answer.json()["code"]) == (409, "not_resumable")
    with pytest.raises(IllegalMove):
        await place.live.engine.resume(nothing.job_id)
    good = await failed(place, ("a", 1))
    assert (await place.live.engine.resume(good.job_id)).job_id == (await place.live.engine.resume(good.job_id)).job_id


async def test_a_resumed_job_takes_the_payload_as_it_was_however_long(place: Place) -> None:
    payload = json.dumps({"script": "x" * 190_000})
    job = await failed(place, ("a", "y" * 50_000), payload=payload)
    async with await place.live.key("acme") as acme:
        assert (await acme.post(f"/api/jobs/{job.job_id}/resume")).status_code == 202
    resumed_job = await place.live.engine.resume(job.job_id)
    assert resumed_job.payload == payload


@pytest.mark.parametrize("change", [{"requester_id": "other"}, {"kind": "another"}])
async def test_steps_of_another_tenant_or_task_are_never_taken_over(place: Place, change: dict[str, str]) -> None:
    """A foreign producer could write this: the record names a job, and is not believed."""
    theirs = await failed(place, ("secret", "theirs"), **change)
    new = new_job(kind="work", requester_id="acme", queue="q", resumed_from=theirs.job_id)
    await place.live.engine.enqueue([new])
    job = await place.live.engine.steps(await place.live.engine.get(new.job_id))
    assert job == ({}, (new.job_id,))


async def test_a_chain_that_leads_to_itself_ends(place: Place) -> None:
    first = new_job(kind="work", requester_id="acme", queue="q")
    second = new_job(kind="work", requester_id="acme", queue="q", resumed_from=first.job_id)
    await place.live.engine.enqueue([first, second])
    (job, _) = await place.live.engine.claim(ClaimRequest("w", ("q",), 2))
    await place.live.engine.settle([commands.checkpoint(job, RESUMED_FROM, json.dumps(second.job_id))])
    assert (await place.live.engine.steps(job)).jobs == (first.job_id, second.job_id)


async def test_no_body_of_a_request_can_name_the_job_to_resume(place: Place) -> None:
    theirs = await failed(place, ("secret", "theirs"), requester_id="other")
    async with await place.live.key("acme") as acme:
        for path, body in (("/api/jobs", {"task": "work"}), ("/v1/jobs", {"task": "chat", "payload": {}})):
            for name in ("resumed_from", "resumedFrom", "resume"):
                answer = await acme.post(path, json={**body, name: theirs.job_id})
                assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed"), (path, name)
        assert (await acme.post(f"/api/jobs/{theirs.job_id}/resume")).status_code == 404
    worker = Remote(place.live)
    await place.live.engine.enqueue([new_job(requester_id="acme", queue="q2", contract="control_plane")])
    claim = await worker.claim("q2")
    step = {"do": "checkpoint", "name": RESUMED_FROM, "data": theirs.job_id}
    (refusal,) = await worker.move((claim, step))
    assert not refusal["ok"]
    follow = {"task": "work", "resumed_from": theirs.job_id, "queue": "q3", "job_id": JOB_OF_OWN}
    (taken,) = await worker.move((claim, {"do": "complete", "follow_ups": [follow]}))
    assert taken["ok"], "an unknown field of a worker's is not looked at"
    assert (await place.live.engine.steps(await place.live.engine.get(JOB_OF_OWN))).jobs == (JOB_OF_OWN,)


async def test_a_worker_far_away_gets_the_steps_that_are_taken_over(place: Place) -> None:
    first = await failed(place, ("a", 1), ("~system", "secret"))
    resumed_job = await place.live.engine.resume(first.job_id)
    worker = Remote(place.live)
    claim = await worker.claim("q")
    assert claim["job_id"] == resumed_job.job_id
    answer = await worker.send("checkpoints", job_id=resumed_job.job_id, lease_token=claim["lease_token"])
    assert (answer.json()["checkpoints"], answer.json()["resumes"]) == ({"a": 1}, [first.job_id])


async def test_a_replayed_copy_of_a_dead_letter_goes_on_from_its_steps(place: Place) -> None:
    dead = await failed(place, ("a", 1))
    async with await place.live.key("acme") as acme:
        answer = await acme.post(f"/v1/dead-letters/{dead.job_id}/replay")
        copy = await place.live.engine.get(answer.json()["replay_job_id"])
        assert copy.contract == dead.contract
        assert (await place.live.engine.steps(copy)).results == {"a": "1"}


async def test_names_of_the_system_are_no_names_of_steps(place: Place) -> None:
    reports: list[str] = []

    @place.app.task
    async def work(ctx: Context) -> None:
        for use in (ctx.step, lambda name: ctx.keep(name, 1)):
            with pytest.raises(InvalidInput, match="do not begin with ~"):
                use("~artifacts")
        reports.append(str(await ctx.recall("~artifacts")))

    await work.enqueue()
    await place.app.worker().run(burst=True)
    assert reports == ["None"]


async def test_what_is_resumed_is_a_jobs_id(place: Place) -> None:
    for text in ("", "..", "no-id"):
        with pytest.raises(InvalidJob):
            await place.live.engine.enqueue([new_job(resumed_from=text)])


@given(name=st.one_of(hostile_keys, st.sampled_from(PIECES), st.text(max_size=20)))
@settings(max_examples=300, deadline=None)
def test_no_name_of_a_steps_file_leads_out_of_its_folder(name: str) -> None:
    folder = Path("/workspace/of/the/job")
    try:
        path = place_in(folder, name)
    except InvalidStep:
        return
    assert path.parent == folder
    assert path.name == name


def test_a_link_in_the_folder_is_no_file_of_a_step(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(InvalidStep):
        place_in(tmp_path, "link")


async def test_a_shelf_that_is_a_folder_gives_its_own_files_alone(tmp_path: Path) -> None:
    for folder in ("shelf", "there"):
        (tmp_path / folder).mkdir()
    (tmp_path / "secret").write_text("host")
    for name, key in (("a", "../secret"), ("a", str(tmp_path / "secret")), ("../a", "b")):
        with pytest.raises(InvalidStep):
            await fetch_all(FolderShelf(tmp_path / "shelf"), tmp_path / "there", {name: key})
    assert not list((tmp_path / "there").iterdir())


@given(key=hostile_keys)
@settings(max_examples=150, deadline=None)
def test_no_key_of_a_step_is_another_jobs(key: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    asyncio.run(_no_key(key, tmp_path_factory.mktemp("s")))


async def _no_key(key: str, folder: Path) -> None:
    raw = MemoryObjects()
    for strange in ("uploads/acme/1/a", f"jobs/{JOB_OF_OTHER}/steps/a.bin", f"jobs/{JOB_OF_OWN}/steps/a.bin"):
        await raw.put(strange, b"secret")
    shelf = ObjectShelf(bound(raw), ["0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b9"])
    for request in (key, f"jobs/{JOB_OF_OTHER}/steps/a.bin", f"jobs/{JOB_OF_OWN}/steps/a.bin", "uploads/acme/1/a"):
        with pytest.raises(InvalidStep):
            await shelf.fetch(request, folder / "a")
    assert not list(folder.iterdir())
    await ObjectShelf(bound(raw), ["0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b9", JOB_OF_OWN]).fetch(
        f"jobs/{JOB_OF_OWN}/steps/a.bin", folder / "a"
    )
    assert (folder / "a").read_bytes() == b"secret"


async def test_a_compose_that_is_resumed_takes_over_its_files(place: Place) -> None:
    """From a real job whose render was never reached, by its own server and worker."""
    add_tasks(place.app)
    async with await place.live.key("acme") as acme:
        made = await failed(
            place,
            ("Script", {"markdown": SCRIPT, "pictures": {}, "files": {}}),
            kind="compose",
            payload=json.dumps({"script": SCRIPT}),
        )
        body = (await acme.post(f"/api/jobs/{made.job_id}/resume")).json()
        async with working(place.app, queues=("q",)):
            job = await ended(place, body["jobId"])
    assert job.status is Status.SUCCEEDED, job.error
    assert json.loads(job.result or "")["ran"] == ["Voice", "Visuals"]


def test_compose_has_no_argument_for_resume_state() -> None:
    app = Callsheet("sqlite:///:memory:")
    add_tasks(app)
    with pytest.raises(InvalidJob):
        app.task_named("compose").definition.arguments('{"script":"# T","resume":{"steps":{}}}')
