"""What a tenant owns: one resource for every id in a request."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2

from callsheet.app.sealing import VaultSealer
from callsheet.asgi import ROUTERS
from callsheet.catalog import open_catalog
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import Clip, Video, VideoStatus
from callsheet.contracts.cortana import paths
from callsheet.engine.ids import new_id
from callsheet.engine.task_register import TaskRecord, register
from callsheet.kernel import commands
from callsheet.kernel.job import ADOPTED_FILES, Job, NewJob, NewOutboxEvent
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.net.guard import Rules
from callsheet.objects import Objects, open_objects
from callsheet.objects.folders import key_of
from callsheet.outbox import Endpoints
from callsheet.store.protocol import ClaimRequest, Settled
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring
from tests import stores
from tests.http.live import Live, serving

VICTIM, STRANGER = "acme", "globex"
TASK = "estate.secret-task"
SECRET = "the victim's own words"


@dataclass(frozen=True)
class Estate:
    """Ids of things that belong to VICTIM, by the names that the table of routes uses."""

    queued_id: str
    done_id: str
    dead_id: str
    other_dead_id: str
    live_id: str
    transcode_id: str
    pipeline_id: str
    running_id: str
    lease_token: str
    operation_id: str
    event_id: str
    endpoint_id: str
    upload_id: str
    upload_key: str
    video_id: str
    clip_id: str
    worker_id: str
    enrolment_id: str
    key_id: str
    task_name: str
    schedule_name: str

    def fill(self, value: Any) -> Any:
        """Fill a path or body from the table with this estate's ids."""
        if isinstance(value, str):
            for name, own in asdict(self).items():
                value = value.replace(f"{{{name}}}", own)
            return value
        if isinstance(value, dict):
            return {name: self.fill(part) for name, part in value.items()}
        return [self.fill(part) for part in value] if isinstance(value, list) else value


@dataclass
class Town:
    """A complete server with a victim whose resources strangers must not reach."""

    live: Live
    estate: Estate
    objects: Objects
    catalog: Catalog
    victim: httpx2.AsyncClient


@contextlib.asynccontextmanager
async def town(kind: str, folder: Path) -> AsyncIterator[Town]:
    """Every route of the program, on a store of a kind, with a folder of objects and a catalogue of videos."""
    catalog = open_catalog(stores.fresh_url("sqlite"))
    await catalog.migrate()
    await catalog.open()
    url = stores.fresh_url(kind)
    store = await stores.open_store(url)
    objects = await open_objects(f"file://{folder / 'objects'}", store)
    endpoints = Endpoints(store, VaultSealer(LocalKeyring(first_keys())), Rules())
    options: dict[str, Any] = {"routers": ROUTERS, "objects": objects, "catalog": catalog, "endpoints": endpoints}
    try:
        async with serving(url, **options) as live, await live.key(VICTIM) as victim:
            yield Town(live, await _settle_down(live, objects, catalog, victim), objects, catalog, victim)
    finally:
        await objects.close()
        await catalog.close()
        await store.close()


async def _settle_down(live: Live, objects: Objects, catalog: Catalog, victim: httpx2.AsyncClient) -> Estate:
    upload = await _body(victim.post("/v1/uploads", json={"name": "a.txt", "size": 4}))
    endpoint = await _body(victim.post("/v1/webhooks/endpoints", json={"url": "https://example.org/acme"}))
    running, token = await _running(live)
    dead = (await _dead(live, "control_plane")).job_id
    other_dead = (await _dead(live, "control_plane")).job_id
    operation = await _body(victim.post("/v1/dead-letters/replay", json={"task": "no-such-task"}))
    enrolment = await _body(
        live.client.post("/v1/workers/enrolments", json={"tenants": [VICTIM], "queues": ["estate"]})
    )
    worker = await _body(
        live.client.post(
            "/internal/worker/enroll",
            json={"enrolment_token": enrolment["enrolment_token"], "worker_name": "acme-gpu"},
        )
    )
    key = await _body(live.client.post("/v1/keys", json={"name": "acme's laptop", "requester_id": VICTIM}))
    event_id = f"evt_{uuid.uuid4().hex}"
    await _ended(live, _new(), lambda job: commands.succeed(job, outbox=(NewOutboxEvent(event_id, "x", "{}"),)))
    video_id, clip_id = await _video(objects, catalog)
    await register(live.engine.store, [TaskRecord(TASK, description=SECRET)], tenants=[VICTIM])
    return Estate(
        queued_id=await _queued(live, _new()),
        done_id=await _done(live, objects),
        dead_id=dead,
        other_dead_id=other_dead,
        live_id=await _resumable(live),
        transcode_id=await _queued(live, _new("transcode", "euterpe", payload=_transcode())),
        pipeline_id=(await _dead(live, "cortana", "video.transcode")).job_id,
        running_id=running,
        lease_token=token,
        operation_id=operation["operation_id"],
        event_id=event_id,
        endpoint_id=endpoint["endpoint_id"],
        upload_id=upload["upload_id"],
        upload_key=upload["key"],
        video_id=video_id,
        clip_id=clip_id,
        worker_id=worker["worker_id"],
        enrolment_id=enrolment["enrolment_id"],
        key_id=key["key_id"],
        task_name=TASK,
        schedule_name=await _schedule(victim),
    )


async def _schedule(victim: httpx2.AsyncClient) -> str:
    """A schedule of the victim, for a task that only its workers serve."""
    name = "nightly-of-the-estate"
    body = {"task": TASK, "payload": {"secret": SECRET}, "cron": "0 3 1 1 *"}
    await _body(victim.put(f"/v1/schedules/{name}", json=body))
    return name


async def _body(request: Any) -> dict[str, Any]:
    answer: httpx2.Response = await request
    assert answer.is_success, answer.text
    body: dict[str, Any] = answer.json()
    return body


def _new(kind: str = "chat", contract: str = "redis_gateway", payload: str = "") -> NewJob:
    job_id = new_id()
    text = payload or json.dumps({"prompt": SECRET})
    return NewJob(job_id, kind, text, f"estate-{job_id}", requester_id=VICTIM, contract=contract)


def _transcode() -> str:
    place = f"object:outputs/{VICTIM}/x"
    return json.dumps({"source": "https://example.org/a", "output": place, "outputs": [{"format": "mp3"}]})


async def _queued(live: Live, new: NewJob) -> str:
    await live.engine.enqueue([new])
    return new.job_id


async def _ended(live: Live, new: NewJob, end: Callable[[Job], Settlement]) -> Job:
    await live.engine.enqueue([new])
    (job,) = await live.engine.claim(ClaimRequest("w", (new.queue,), 1, 600_000))
    assert await live.engine.settle([end(job)]) == [Settled.APPLIED]
    return job


async def _dead(live: Live, contract: str, kind: str = "resize") -> Job:
    error = JobError("broke", SECRET)
    return await _ended(live, _new(kind, contract), lambda job: commands.dead_letter(job, error))


async def _done(live: Live, objects: Objects) -> str:
    new = _new()
    key = key_of(new.job_id, 1, "out.txt")
    await objects.put(key, SECRET.encode(), content_type="text/plain")
    about = {"name": "out.txt", "key": key, "bytes": len(SECRET), "content_type": "text/plain", "sha256": None}
    row_adopted = (ADOPTED_FILES, json.dumps([about]))
    await _ended(live, new, lambda job: commands.succeed(job, "null")._replace(checkpoint=row_adopted))
    return new.job_id


async def _resumable(live: Live) -> str:
    new = _new("compose", "aura", json.dumps({"script": SECRET}))
    await live.engine.enqueue([new])
    (job,) = await live.engine.claim(ClaimRequest("w", (new.queue,), 1, 600_000))
    stored_text = json.dumps({"markdown": SECRET, "pictures": {}, "files": {}})
    await live.engine.settle([commands.advance(job, "Script"), commands.checkpoint(job, "Script", stored_text)])
    assert await live.engine.settle([commands.dead_letter(job, JobError("broke", "it broke"))]) == [Settled.APPLIED]
    return new.job_id


async def _running(live: Live) -> tuple[str, str]:
    """A job that worker `w1` holds, and the token that proves it."""
    new = _new("resize", "control_plane")._replace(queue="estate")
    await live.engine.enqueue([new])
    body = {"worker_id": "w1", "streams": ["estate"]}
    claim = await _body(live.client.post("/internal/worker/claim", json=body))
    assert claim["job_id"] == new.job_id
    return new.job_id, claim["lease_token"]


async def _video(objects: Objects, catalog: Catalog) -> tuple[str, str]:
    video_id, clip_id = new_id(), new_id()
    await catalog.add_video(
        Video(video_id, VICTIM, None, SECRET, VideoStatus.READY, paths.original(video_id), duration_ms=60_000)
    )
    path = paths.clip(video_id, clip_id)
    await catalog.add_clip(Clip(clip_id, video_id, VICTIM, None, new_id(), 0, 1_000, 0, path))
    frames = json.dumps({"frames": [{"since_ms": 0, "timestamp_ms": 0}]}).encode()
    for key, content in {
        f"{paths.proxies(video_id)}/index.m3u8": b"#EXTM3U\n",
        paths.poster(video_id): b"poster",
        paths.manifest(video_id): frames,
        paths.frame(video_id, 0): b"frame",
        path: b"clip",
    }.items():
        await objects.put(key, content)
    return video_id, clip_id
