"""The steps of the demo, as a client of the public API. Each step can be interrupted and repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx2

from callsheet.cli.errors import CommandFailed
from callsheet.client import Client as Api
from callsheet.contracts.cortana.jobs import PIPELINE
from callsheet.receiver import NotVerified, Receiver

from .home import Home

MAX_BYTES = 1_000_000
POLL_S = 0.2
WORDS = "call times"
REQUEST_LIMIT = httpx2.Timeout(60)
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

Update = Callable[[float, str], None]


class Inbox:
    """A small webhook server that keeps the verified events; `until` waits for one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.receiver: Receiver | None = None
        self.events: list[dict[str, Any]] = []
        self.refusals = 0
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}/hook"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    async def until(self, job_id: str, status: str) -> dict[str, Any]:
        """Return the event with this status of a job, waiting for it."""
        while True:
            for event in self.events:
                if event.get("job_id") == job_id and event.get("status") == status:
                    return event
            self._news.clear()
            await self._news.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = [line.partition(":") for line in head.split("\r\n")[1:] if line]
            headers = {name.strip().lower(): value.strip() for name, _, value in lines}
            body = await reader.readexactly(min(MAX_BYTES, int(headers.get("content-length", "0"))))
            status = self._receive(headers, body)
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _receive(self, headers: dict[str, str], body: bytes) -> str:
        if self.receiver is None:
            return "503 Service Unavailable"
        try:
            event = self.receiver.verify(headers, body)
        except NotVerified:
            self.refusals += 1
            return "401 Unauthorized"
        with self.receiver.once(event.event_id) as is_new:
            if is_new:
                self.events.append(event.body)
                self._news.set()
        return "204 No Content"


class StepFailed(CommandFailed):
    """A step's job failed. It would fail again, unless the demo starts over."""

    def __init__(self, what: str, error: Any) -> None:
        if isinstance(error, dict):
            error = ": ".join(str(error[name]) for name in ("code", "message") if error.get(name))
        super().__init__(f"{what}: {error or 'it was canceled'}; started again, the demo begins from the first step")


class Result(NamedTuple):
    """The outcome of a step, for the table at the end."""

    step: str
    outcome: str
    file: str = ""


class Client(NamedTuple):
    """The API, as plain HTTP and as the Python client, with the demo's folder and inbox."""

    http: httpx2.AsyncClient
    api: Api
    home: Home
    inbox: Inbox

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return the body of a response; raises CommandFailed."""
        return _body(await self.http.get(path, params=query or None))

    async def post(self, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """Send a body and return the body of the response; raises CommandFailed."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return _body(await self.http.post(path, json=body if body is not None else {}, headers=named))

    async def save(self, path: str, name: str) -> Path:
        """Download a file into the demo's folder."""
        target = self.home.path(name)
        async with self.http.stream("GET", path, follow_redirects=True) as answer:
            if answer.is_error:
                await answer.aread()
                _body(answer)
            with target.open("wb") as file:
                async for piece in answer.aiter_bytes():
                    file.write(piece)
        return target


def _body(answer: httpx2.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json() if answer.content else {}
    if answer.is_error:
        raise CommandFailed(
            f"{answer.request.method} {answer.request.url.path}: {body.get('detail') or answer.status_code}"
        )
    return body


async def compose(client: Client, update: Update) -> Result:
    """Compose a video from a script."""
    name = f"demo-compose-{client.home.state.get('tries', 1)}"
    created = await client.post("/api/jobs", {"task": "compose", "payload": {"script": SCRIPT}}, Idempotency_Key=name)
    over = ("Done", "Failed", "Canceled")
    async for job in _poll(client, f"/api/jobs/{created['jobId']}", lambda job: job["status"] in over):
        update(job["percent"], job.get("phase") or job["status"])
    if job["status"] != "Done":
        raise StepFailed("no video was composed", next(iter(job["errors"]), None))
    path = await client.save(f"/v1/jobs/{created['jobId']}/artifacts/video.mp4", "composed.mp4")
    return Result("compose: script → video", f"{path.stat().st_size // 1024} KB", path.name)


async def add_video(client: Client, update: Update) -> Result:
    """Upload the video; it goes through transcode, sample, ocr and segment_index."""
    video_id = client.home.state.get("video_id")
    if not video_id or (await client.get(f"/videos/{video_id}"))["status"] == "uploading":
        update(0, "uploading")
        video_id = await client.api.add_video(client.home.path("composed.mp4"), title="The call sheet")
        client.home.save(video_id=video_id)
    over = ("ready", "failed")
    async for video in _poll(client, f"/videos/{video_id}", lambda video: video["status"] in over):
        stages = [stage for stage in PIPELINE if stage in video["jobs"]]
        here = (await client.get(f"/v1/jobs/{video['jobs'][stages[-1]]}"))["progress"] if stages else 0.0
        update((100 * max(0, len(stages) - 1) + here) / len(PIPELINE), stages[-1] if stages else "queued")
    if video["status"] != "ready":
        raise StepFailed("the video could not be read", video["error"])
    coverage = video["coverage"]
    outcome = f"{coverage['sampled']} frames sampled, {coverage['kept']} kept, {coverage['detections']} texts read"
    return Result("transcode → sample → ocr → segment_index", outcome)


async def search(client: Client, update: Update) -> Result:
    """Search the text on screen."""
    page = await client.get("/search", q=WORDS, video_id=client.home.state["video_id"])
    if not page["hits"]:
        raise StepFailed("the search found nothing", f"{WORDS!r} was not read in the video")
    hit = page["hits"][0]
    client.home.save(hit=[hit["t_start"], hit["t_end"]])
    update(100, "found")
    return Result(f"search “{WORDS}”", f"“{hit['text']}” at {hit['t_start'] / 1000:.1f} s")


async def clip(client: Client, update: Update) -> Result:
    """Cut a clip of the search hit."""
    start, end = client.home.state["hit"]
    video_id = client.home.state["video_id"]
    body = {"video_id": video_id, "clip_id": f"demo-{video_id}", "t_start": start, "t_end": end, "padding_ms": 500}
    created = await client.post("/clips", body)
    over = ("done", "failed")
    async for cut in _poll(client, f"/clips/{created['clip_id']}", lambda cut: cut["status"] in over):
        update((await client.get(f"/v1/jobs/{created['job_id']}"))["progress"], cut["status"])
    if cut["status"] != "done":
        raise StepFailed("no clip was cut", (await client.get(f"/v1/jobs/{created['job_id']}"))["error"])
    path = await client.save(f"/clips/{created['clip_id']}/file", "clip.mp4")
    outcome = f"{cut['actual_start'] / 1000:.1f} to {cut['actual_end'] / 1000:.1f} s, {path.stat().st_size // 1024} KB"
    return Result("clip of the hit", outcome, path.name)


async def transcode(client: Client, update: Update) -> Result:
    """Transcode the video; webhooks report each status to a receiver that verifies their signatures."""
    client.inbox.receiver = Receiver([await _secret(client)])
    body = {
        "source": f"object:{await _source_key(client)}",
        "outputs": [{"key": "voice.mp3", "format": "mp3", "loudness_lufs": -16}],
        "status_webhook_url": client.inbox.url,
    }
    name = f"demo-transcode-{client.home.state['source'].rpartition('/')[0][-36:]}"
    created = await client.post("/transcode", body, Idempotency_Key=name)
    job_id = created["job_id"]
    path = f"/transcode/status?job_id={job_id}"
    over = ("succeeded", "failed", "dead_letter")
    async for job in _poll(client, path, lambda job: job["status"] in over):
        update(job.get("progress") or 0.0, job["status"])
    if job["status"] != "succeeded":
        raise StepFailed(f"transcode ended as {job['status']}", job.get("error"))
    if not client.home.state.get("delivered"):
        await client.inbox.until(job_id, "succeeded")
        client.home.save(delivered=len(client.inbox.events))
    outcome = f"{client.home.state['delivered']} callbacks delivered and verified"
    return Result("transcode → mp3, signed webhook", outcome)


async def _secret(client: Client) -> str:
    """Return the webhook secret, which the server shows once and the demo's folder keeps."""
    if "secret" not in client.home.state:
        client.home.save(secret=(await client.post("/v1/webhooks/secret"))["secret"])
    secret: str = client.home.state["secret"]
    return secret


async def _source_key(client: Client) -> str:
    """Return the key of the composed video as an upload."""
    if "source" not in client.home.state:
        client.home.save(source=(await client.api.upload(client.home.path("composed.mp4"))).key)
    source: str = client.home.state["source"]
    return source


async def _poll(client: Client, path: str, is_over: Callable[[dict[str, Any]], bool]) -> AsyncIterator[dict[str, Any]]:
    """Yield the body at a path repeatedly, until `is_over`."""
    while True:
        body = await client.get(path)
        yield body
        if is_over(body):
            return
        await asyncio.sleep(POLL_S)


STEPS = (compose, add_video, search, clip, transcode)
LABELS = {
    compose: "compose",
    add_video: "read the video",
    search: "search",
    clip: "cut a clip",
    transcode: "transcode",
}
