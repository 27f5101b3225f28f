"""The steps of the demo, as a client of the public API. Each can be interrupted and done again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from callsheet.client import Client as Api
from callsheet.contracts.cortana.jobs import PIPELINE
from callsheet.receiver import Receiver

from ..failures import Told  # noqa: TID252 - the commands' own
from .home import Home
from .receiver import Inbox

LOOK_S = 0.2
WORDS = "call times"
PATIENCE = httpx2.Timeout(60)
SCRIPT = """\
---
size: 480p
theme: dark
accent: #ff7a59
---
# The call sheet

One page, every day.

## What stands on it

- Call times for each department
- Scenes in the order of the day

## Why it works

Everybody reads the same page. Budget: $4,200. Questions? @production or #callsheet

"""

Tell = Callable[[float, str], None]


class StepFailed(Told):
    """A step's work ended badly: it would do so for ever, unless the demo starts over."""

    def __init__(self, what: str, error: Any) -> None:
        if isinstance(error, dict):
            error = ": ".join(str(error[name]) for name in ("code", "message") if error.get(name))
        super().__init__(f"{what}: {error or 'it was canceled'}; started again, the demo begins anew")


class Row(NamedTuple):
    """What a step came to, for the table at the end."""

    step: str
    outcome: str
    file: str = ""


class Client(NamedTuple):
    """The API, as requests and as Python's client, and the demo's folder and inbox."""

    http: httpx2.AsyncClient
    api: Api
    home: Home
    inbox: Inbox

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        """One answer; raises Told."""
        return _checked(await self.http.get(path, params=query or None))

    async def post(self, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """One answer; raises Told."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return _checked(await self.http.post(path, json=body if body is not None else {}, headers=named))

    async def save(self, path: str, name: str) -> Path:
        """A file of the server in the demo's folder."""
        target = self.home.path(name)
        async with self.http.stream("GET", path, follow_redirects=True) as answer:
            if answer.is_error:
                await answer.aread()
                _checked(answer)
            with target.open("wb") as file:
                async for piece in answer.aiter_bytes():
                    file.write(piece)
        return target


def _checked(answer: httpx2.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json() if answer.content else {}
    if answer.is_error:
        raise Told(f"{answer.request.method} {answer.request.url.path}: {body.get('detail') or answer.status_code}")
    return body


async def compose(client: Client, tell: Tell) -> Row:
    """A script becomes a video."""
    name = f"demo-compose-{client.home.kept.get('tries', 1)}"
    made = await client.post("/api/jobs", {"task": "compose", "payload": {"script": SCRIPT}}, Idempotency_Key=name)
    over = ("Done", "Failed", "Canceled")
    async for job in _watched(client, f"/api/jobs/{made['jobId']}", lambda job: job["status"] in over):
        tell(job["percent"], job.get("phase") or job["status"])
    if job["status"] != "Done":
        raise StepFailed("no video was composed", next(iter(job["errors"]), None))
    path = await client.save(f"/v1/jobs/{made['jobId']}/artifacts/video.mp4", "composed.mp4")
    return Row("compose: script → video", f"{path.stat().st_size // 1024} KB", path.name)


async def add_video(client: Client, tell: Tell) -> Row:
    """The video goes through transcode, sample, ocr and segment_index."""
    video_id = client.home.kept.get("video_id")
    if not video_id or (await client.get(f"/videos/{video_id}"))["status"] == "uploading":
        tell(0, "uploading")
        video_id = await client.api.add_video(client.home.path("composed.mp4"), title="The call sheet")
        client.home.keep(video_id=video_id)
    over = ("ready", "failed")
    async for video in _watched(client, f"/videos/{video_id}", lambda video: video["status"] in over):
        begun = [stage for stage in PIPELINE if stage in video["jobs"]]
        here = (await client.get(f"/v1/jobs/{video['jobs'][begun[-1]]}"))["progress"] if begun else 0.0
        tell((100 * max(0, len(begun) - 1) + here) / len(PIPELINE), begun[-1] if begun else "queued")
    if video["status"] != "ready":
        raise StepFailed("the video could not be read", video["error"])
    about = video["coverage"]
    told = f"{about['sampled']} frames looked at, {about['kept']} kept, {about['detections']} texts read"
    return Row("transcode → sample → ocr → segment_index", told)


async def search(client: Client, tell: Tell) -> Row:
    """Its words are found."""
    found = await client.get("/search", q=WORDS, video_id=client.home.kept["video_id"])
    if not found["hits"]:
        raise StepFailed("the search found nothing", f"{WORDS!r} was not read in the video")
    hit = found["hits"][0]
    client.home.keep(hit=[hit["t_start"], hit["t_end"]])
    tell(100, "found")
    return Row(f"search “{WORDS}”", f"“{hit['text']}” at {hit['t_start'] / 1000:.1f} s")


async def clip(client: Client, tell: Tell) -> Row:
    """A clip of the hit is cut."""
    start, end = client.home.kept["hit"]
    video_id = client.home.kept["video_id"]
    body = {"video_id": video_id, "clip_id": f"demo-{video_id}", "t_start": start, "t_end": end, "padding_ms": 500}
    made = await client.post("/clips", body)
    over = ("done", "failed")
    async for cut in _watched(client, f"/clips/{made['clip_id']}", lambda cut: cut["status"] in over):
        tell((await client.get(f"/v1/jobs/{made['job_id']}"))["progress"], cut["status"])
    if cut["status"] != "done":
        raise StepFailed("no clip was cut", (await client.get(f"/v1/jobs/{made['job_id']}"))["error"])
    path = await client.save(f"/clips/{made['clip_id']}/file", "clip.mp4")
    told = f"{cut['actual_start'] / 1000:.1f} to {cut['actual_end'] / 1000:.1f} s, {path.stat().st_size // 1024} KB"
    return Row("clip of the hit", told, path.name)


async def transcode(client: Client, tell: Tell) -> Row:
    """An output is made of it, and each move is told to a receiver that verifies the signature."""
    client.inbox.receiver = Receiver([await _secret(client)])
    body = {
        "source": f"object:{await _own_source(client)}",
        "outputs": [{"key": "voice.mp3", "format": "mp3", "loudness_lufs": -16}],
        "status_webhook_url": client.inbox.url,
    }
    name = f"demo-transcode-{client.home.kept['source'].rpartition('/')[0][-36:]}"
    made = await client.post("/transcode", body, Idempotency_Key=name)
    job_id = made["job_id"]
    path = f"/transcode/status?job_id={job_id}"
    over = ("succeeded", "failed", "dead_letter")
    async for job in _watched(client, path, lambda job: job["status"] in over):
        tell(job.get("progress") or 0.0, job["status"])
    if job["status"] != "succeeded":
        raise StepFailed(f"transcode ended as {job['status']}", job.get("error"))
    if not client.home.kept.get("delivered"):
        await client.inbox.until(job_id, "succeeded")
        client.home.keep(delivered=len(client.inbox.events))
    told = f"{client.home.kept['delivered']} callbacks delivered and verified"
    return Row("transcode → mp3, signed webhook", told)


async def _secret(client: Client) -> str:
    """The requester's webhook secret: told once, so it is kept in the demo's own folder."""
    if "secret" not in client.home.kept:
        client.home.keep(secret=(await client.post("/v1/webhooks/secret"))["secret"])
    secret: str = client.home.kept["secret"]
    return secret


async def _own_source(client: Client) -> str:
    """The composed video as an upload of ours."""
    if "source" not in client.home.kept:
        client.home.keep(source=(await client.api.upload(client.home.path("composed.mp4"))).key)
    source: str = client.home.kept["source"]
    return source


async def _watched(
    client: Client, path: str, is_over: Callable[[dict[str, Any]], bool]
) -> AsyncIterator[dict[str, Any]]:
    """What is to be read there, now and then, until it is over."""
    while True:
        found = await client.get(path)
        yield found
        if is_over(found):
            return
        await asyncio.sleep(LOOK_S)


STEPS = (compose, add_video, search, clip, transcode)
LABELS = {
    compose: "compose",
    add_video: "read the video",
    search: "search",
    clip: "cut a clip",
    transcode: "transcode",
}
