"""Nobody reads or writes an object of somebody else: neither a payload, nor a task, on any store."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from callsheet import Callsheet, Context
from callsheet.app.transcoding import add_transcoding
from callsheet.contracts.aura.tasks import pictures_of
from callsheet.kernel import commands
from callsheet.kernel.job import Status
from callsheet.media.compose.errors import PictureRefused
from callsheet.objects import InvalidKey, ObjectNotOwned, Objects, OwnedObjects, Upload
from callsheet.objects.folders import folder_of, named_by
from callsheet.objects.keys import checked
from callsheet.objects.memory import MemoryObjects
from callsheet.objects.owned import Holder, Source, with_folders
from callsheet.objects.signing import Signer
from callsheet.store.protocol import ClaimRequest
from tests.http.conftest import url  # noqa: F401 - a fixture
from tests.outbox.sink import RULES
from tests.security.of_objects import JOB_OF_OTHER, JOB_OF_OWN, Place, hostile_keys, placed
from tests.store_driver import new_job

EMPTY = '{"source":"object:uploads/acme/a","output":"object:outputs/acme","outputs":[]}'
OWN_JOB = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b9"
STRANGE = (
    "uploads/other/1/a",
    "outputs/other/a",
    "uploads/acme2/a",
    f"jobs/{JOB_OF_OTHER}/1/a",
    "jobs/no-id/a",
    f"videos/original/{JOB_OF_OTHER}/master.mp4",
    "incoming/uploads/x/a",
    "a",
)
READABLE = ("uploads/acme/1/a", "outputs/acme/a", f"jobs/{OWN_JOB}/1/a", f"jobs/{JOB_OF_OWN}/steps/a", "shared/a")
WRITABLE = ("outputs/acme/a", f"jobs/{OWN_JOB}/1/a")


class Known:
    """The known owners of jobs and videos."""

    async def of_job(self, job_id: str) -> str | None:
        return {JOB_OF_OWN: "acme", JOB_OF_OTHER: "other"}.get(job_id)

    async def of_video(self, video_id: str) -> str | None:
        return await self.of_job(video_id)


def bound(raw: Objects, loop: asyncio.AbstractEventLoop | None = None) -> OwnedObjects:
    async def opens() -> Objects:
        return raw

    return OwnedObjects(Source(opens, Known(), loop or asyncio.get_running_loop()), Holder("acme", OWN_JOB))


def reads(objects: Objects, key: str, tmp_path: Path) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Each verb that reads a key."""

    async def listed() -> None:
        _ = [info async for info in objects.list(key)]

    async def streamed() -> None:
        _ = [piece async for piece in objects.stream(key)]

    return {
        "head": lambda: objects.head(key),
        "get": lambda: objects.get(key),
        "get_range": lambda: objects.get_range(key, 0, 1),
        "get_file": lambda: objects.get_file(key, tmp_path / "got"),
        "exists": lambda: objects.exists(key),
        "stream": streamed,
        "list": listed,
        "copy": lambda: objects.copy(key, "outputs/acme/copy"),
        "sign_get": lambda: objects.sign_get(key, 60),
        "open_reader": lambda: asyncio.to_thread(objects.open_reader, key),
    }


def writes(objects: Objects, key: str, tmp_path: Path) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Each verb that writes a key."""
    (tmp_path / "sent").write_bytes(b"x")
    upload = Upload(key, "0" * 32, 5, "")
    return {
        "put": lambda: objects.put(key, b"x"),
        "put_file": lambda: objects.put_file(key, tmp_path / "sent"),
        "copy to": lambda: objects.copy("uploads/acme/1/a", key),
        "delete": lambda: objects.delete("outputs/acme/b", key),
        "delete_prefix": lambda: objects.delete_prefix(key),
        "sign_put": lambda: objects.sign_put(key, 60),
        "begin_multipart": lambda: objects.begin_multipart(key, part_bytes=5),
        "sign_part": lambda: objects.sign_part(upload, 1, 60),
        "put_part": lambda: objects.put_part(upload, 1, b"x"),
        "list_parts": lambda: objects.list_parts(upload),
        "complete_multipart": lambda: objects.complete_multipart(upload),
        "abort_multipart": lambda: objects.abort_multipart(upload),
    }


@pytest.fixture
async def raw() -> MemoryObjects:
    raw = MemoryObjects(Signer(b"s" * 32))
    for key in {*READABLE, *WRITABLE, *STRANGE}:
        await raw.put(key, b"as it was")
    return raw


async def test_every_verb_refuses_what_is_a_strangers(raw: MemoryObjects, tmp_path: Path) -> None:
    objects = bound(raw)
    for key in STRANGE:
        verbs = {**writes(objects, key, tmp_path), **reads(objects, key, tmp_path)}
        for name, verb in verbs.items():
            with pytest.raises(ObjectNotOwned, match="name one below"):
                await verb()
            assert name, key
    for key in STRANGE:
        assert await raw.get(key) == b"as it was"
    abstract = Objects.__abstractmethods__ - {"close"}
    calls = {*reads(objects, "a", tmp_path), *writes(objects, "a", tmp_path)}
    assert abstract <= calls, "a verb of the face is not among those that are tried"


async def test_every_verb_takes_what_is_its_own(raw: MemoryObjects, tmp_path: Path) -> None:
    objects = bound(raw)
    for key in READABLE:
        for verb in reads(objects, key, tmp_path).values():
            await verb()
    for key in WRITABLE:
        assert (await objects.put(key, b"new")).key == key
        assert objects.may_write(key)
    for key in set(READABLE) - set(WRITABLE):
        with pytest.raises(ObjectNotOwned):
            await objects.put(key, b"new")
    assert [info.key async for info in objects.list("outputs/acme/")]


async def test_the_storage_itself_is_not_to_be_had_from_what_is_bound(raw: MemoryObjects) -> None:
    objects = bound(raw)
    public = [getattr(objects, name) for name in dir(objects) if not name.startswith("_")]
    assert raw not in public
    await objects.close()
    assert await raw.exists("a"), "what belongs to the app is not closed by a task"
    with pytest.raises(ObjectNotOwned):
        _ = [info async for info in objects.list()]


async def test_a_contract_may_add_what_it_has_looked_at(raw: MemoryObjects) -> None:
    objects = with_folders(bound(raw), ["frames/1"], readable=["thumbs/1"])
    await objects.put("frames/1/a", b"x")
    for refusal in ("thumbs/1/a", "frames/10/a"):
        with pytest.raises(ObjectNotOwned):
            await objects.put(refusal, b"x")


@given(key=hostile_keys)
@settings(max_examples=400, deadline=None)
def test_no_text_reads_or_writes_what_is_a_strangers(key: str) -> None:
    asyncio.run(_no_text_reads_or_writes(key))


async def _no_text_reads_or_writes(key: str) -> None:
    objects = bound(MemoryObjects(Signer(b"s" * 32)))
    try:
        checked(key)
    except InvalidKey:
        with pytest.raises(InvalidKey):
            await objects.may_read(key)
        with pytest.raises(InvalidKey):
            objects.may_write(key)
        return
    may_read, may_write = await objects.may_read(key), objects.may_write(key)
    first, *rest = key.split("/")
    assert not {"..", "."} & set(key.split("/"))
    own = first in ("uploads", "outputs") and rest[:1] == ["acme"]
    own_job = first == "jobs" and rest[:1] in ([JOB_OF_OWN], [OWN_JOB])
    own_video = key.startswith((f"videos/original/{JOB_OF_OWN}", f"frames/{JOB_OF_OWN}"))
    assert may_read == (own or own_job or own_video or first == "shared")
    assert may_write == (own and first == "outputs" and len(rest) > 1)


@pytest.mark.parametrize("requester_id", ["", "~", "..", "a/b", "acme/..", "ä", "x" * 200])
def test_each_requester_has_a_folder_of_its_own(requester_id: str) -> None:
    folder = folder_of(requester_id)
    assert "/" not in folder
    assert folder not in (".", "..")
    assert (folder == "~") == (requester_id == "")
    assert named_by(f"uploads/{folder}/a") == ("tenant", folder)


@pytest.fixture
async def place(url: str, tmp_path: Path) -> AsyncIterator[Place]:  # noqa: F811
    async with placed(url, tmp_path) as place:
        yield place


async def test_a_task_has_its_requesters_objects_however_it_asks_for_them(place: Place) -> None:
    app = place.app
    reports: dict[str, Any] = {}
    _declare(app, reports)
    raw = await app.objects()
    assert not isinstance(raw, OwnedObjects), "operators' code has all objects"
    for key in ("uploads/acme/1/a", "uploads/other/1/a"):
        await raw.put(key, b"as it was")
    for name in ("by_context", "by_app", "by_simple", "by_thread"):
        await app.enqueue([app.task_named(name).options(requester_id="acme").new_job()])
    await app.worker().run(burst=True)
    assert set(reports.values()) == {("as it was", "object_not_owned", "object_not_owned")}, reports
    assert len(reports) == 4
    assert await raw.get("uploads/other/1/a") == b"as it was"


def _declare(app: Callsheet, told: dict[str, Any]) -> None:
    async def tried(objects: Objects) -> tuple[str, str, str]:
        assert isinstance(objects, OwnedObjects)
        result = (await objects.get("uploads/acme/1/a")).decode()
        refusals = []
        for verb in (objects.get("uploads/other/1/a"), objects.put("uploads/other/1/a", b"mine")):
            try:
                await verb
            except ObjectNotOwned as error:
                refusals.append(error.code)
        return result, refusals[0], refusals[1]

    @app.task
    async def by_context(ctx: Context) -> None:
        told["context"] = await tried(ctx.objects)

    @app.task
    async def by_app(ctx: Context) -> None:
        told["app"] = await asyncio.create_task(_later())

    async def _later() -> tuple[str, str, str]:
        return await tried(await app.objects())

    @app.task
    async def by_simple() -> None:
        told["simple"] = await tried(await app.objects())

    @app.task
    def by_thread(ctx: Context) -> None:
        assert ctx.objects.open_reader("uploads/acme/1/a").read() == b"as it was"
        told["thread"] = app.sync(_later())


async def test_a_thread_that_a_task_starts_by_itself_gets_no_storage(place: Place) -> None:
    app = place.app
    loops: dict[str, asyncio.AbstractEventLoop] = {}
    refusal: dict[str, str] = {}

    def tried(name: str, ask: Callable[[], object]) -> None:
        try:
            refusal[name] = type(ask()).__name__
        except ObjectNotOwned as error:
            refusal[name] = error.code

    def in_thread() -> None:
        tried("portal", lambda: app.sync(app.objects()))
        tried("own loop", lambda: asyncio.run(app.objects()))
        tried("worker's loop", lambda: asyncio.run_coroutine_threadsafe(app.objects(), loops["worker"]).result())

    @app.task
    async def starts_a_thread(ctx: Context) -> None:
        loops["worker"] = asyncio.get_running_loop()
        thread = threading.Thread(target=in_thread)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.001)
        with pytest.raises(ObjectNotOwned):
            await app.objects(of_all_tenants=True)

    handle = await starts_a_thread.options(requester_id="acme").enqueue()
    await app.worker().run(burst=True)
    await handle.result("10s")
    assert refusal == dict.fromkeys(("portal", "own loop", "worker's loop"), "object_not_owned")
    assert not isinstance(await app.objects(), OwnedObjects), "after the worker operators' code has all objects again"


async def test_a_task_in_a_process_has_its_requesters_objects(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_DATABASE_URL", place.app.database_url)
    monkeypatch.setenv("CALLSHEET_OBJECTS_URL", place.app.objects_url)
    from tests.security import of_process  # noqa: PLC0415 - its app is made of the variables

    of_process.app.database_url, of_process.app.objects_url = place.app.database_url, place.app.objects_url
    raw = await place.app.objects()
    for key in ("uploads/acme/1/a", "uploads/other/1/a"):
        await raw.put(key, b"as it was")
    async with of_process.app as app:
        handle = await of_process.tried.options(requester_id="acme").enqueue()
        await app.worker().run(burst=True)
        assert await handle.result("10s") == ["as it was", "object_not_owned", "object_not_owned", "as it was"]


async def test_transcode_neither_reads_nor_writes_what_is_a_strangers(place: Place) -> None:
    """The second exploit, with a job that came by the right contract: checks happen at the point of use."""
    add_transcoding(place.app, RULES)
    raw = await place.app.objects()
    await raw.put("outputs/victim/x.wav", b"as it was")
    payloads = [
        '{"source":"object:outputs/victim/x.wav","output":"object:outputs/acme/x","outputs":[%s]}',
        '{"source":"object:uploads/acme/../../outputs/victim/x.wav","output":"object:outputs/acme","outputs":[%s]}',
    ]
    output = '{"key":"a.mp3","format":"mp3"}'
    jobs = [
        new_job(kind="transcode", queue="transcode", contract="euterpe", requester_id="acme", payload=text % output)
        for text in payloads
    ]
    await place.live.engine.enqueue(jobs)
    await place.app.worker().run(burst=True)
    ended_jobs = [await place.live.engine.get(job.job_id) for job in jobs]
    assert all(job.status in (Status.FAILED, Status.DEAD_LETTER) for job in ended_jobs)
    assert "object_not_owned" in (ended_jobs[0].error or "")
    assert [info.key async for info in raw.list()] == ["outputs/victim/x.wav"]


async def test_a_result_that_names_a_strangers_output_gets_no_url(place: Place) -> None:
    """A worker writes a job's result: it signs named objects for the job's own requester only."""
    await (await place.app.objects()).put("outputs/victim/x.mp3", b"theirs")
    new = new_job(kind="transcode", queue="q", contract="euterpe", requester_id="acme", payload=EMPTY)
    await place.live.engine.enqueue([new])
    (job,) = await place.live.engine.claim(ClaimRequest("w", ("q",)))
    for stage in ("fetching", "processing", "uploading"):
        await place.live.engine.settle([commands.advance(job, stage)])
        job = await place.live.engine.get(job.job_id)
    outputs = [{"location": f"object:outputs/{who}/x.mp3"} for who in ("victim", "acme")]
    await place.live.engine.settle([commands.succeed(job, json.dumps({"outputs": outputs}))])
    async with await place.live.key("acme") as acme:
        body = (await acme.get("/transcode/status", params={"job_id": new.job_id})).json()["outputs"]
    assert body[0]["url"] is None
    assert "/objects/outputs/acme/x.mp3" in body[1]["url"]


@given(key=hostile_keys)
@settings(max_examples=150, deadline=None)
def test_no_picture_of_a_script_is_a_strangers(key: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    asyncio.run(_no_picture(key, tmp_path_factory.mktemp("p")))


async def _no_picture(key: str, folder: Path) -> None:
    raw = MemoryObjects()
    for strange in STRANGE:
        await raw.put(strange, b"secret")
    for reference in (key, f"object:{key}"):
        with pytest.raises(PictureRefused):
            await pictures_of(bound(raw))(reference, folder / "picture")
    assert not list(folder.iterdir())
