"""`Client`: a server's jobs from anywhere. Every method survives a lost connection, and none does anything twice."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from callsheet.kernel.durations import Duration, seconds
from callsheet.kernel.errors import InvalidInput, JobCanceled, JobFailed, ResultTimeout

from .chat import TOKEN, Messages, answer, question, token
from .errors import Conflict, UnexpectedAnswer
from .live import LiveEvent, follow_live
from .patience import Patience, Pauses
from .places import ManyJobs, OneJob, job_path
from .records import JobEvent, Receipt, RemoteJob, Upload
from .stream import follow
from .transport import Transport
from .uploads import OnUpload, send_all, unwatched, upload_path

PAGE = 100
VISIBLE = re.compile(r"[!-~]{1,255}").fullmatch
DEFAULT_PATIENCE = Patience()


class Client:
    """A server and a key; without them CALLSHEET_URL and CALLSHEET_API_KEY name them.

    Use it as `async with Client() as client`, in one event loop. `SyncClient` is the same without async.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, patience: Patience = DEFAULT_PATIENCE
    ) -> None:
        self._transport = Transport(url, api_key, patience)

    def __repr__(self) -> str:
        return f"<Client {self.url}>"

    @property
    def url(self) -> str:
        """The server."""
        return self._transport.url

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def close(self) -> None:
        """Close all connections. May be called twice."""
        await self._transport.close()

    async def create(
        self,
        task: str,
        payload: Mapping[str, Any],
        *,
        ttl_s: int | None = None,
        idempotency_key: str | None = None,
    ) -> Receipt:
        """A new job. Tries that follow a lost answer find the same job, by a key of our own if none is given."""
        body: dict[str, Any] = {"task": task, "payload": payload}
        if ttl_s is not None:
            body["ttl_s"] = ttl_s
        key = idempotency_key if idempotency_key is not None else uuid.uuid4().hex
        return Receipt.read(await self._transport.post("/v1/jobs", body, {"Idempotency-Key": _header(key)}))

    async def get(self, job_id: str) -> RemoteJob:
        """A job as it is now; raises NoSuchJob."""
        return RemoteJob.read(await self._transport.get(job_path(job_id)))

    async def cancel(self, job_id: str, reason: str = "") -> RemoteJob:
        """Ask for the end of a job: at once when it waits, soon when it runs. Raises Conflict when it has ended."""
        try:
            told = await self._transport.post(job_path(job_id, "/cancel"), {"reason": reason} if reason else {})
        except Conflict:
            job = await self.get(job_id)
            if job.status == "canceled":  # by an earlier try whose answer was lost, or by somebody else
                return job
            raise
        return RemoteJob.read(told)

    async def list(
        self,
        *,
        status: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[RemoteJob]:
        """Jobs, the newest first, page by page as they are needed; at most `limit`."""
        query: dict[str, str | int] = {"limit": PAGE if limit is None else min(limit, PAGE)}
        query |= {name: word for name, word in (("status", status), ("task", task), ("queue", queue)) if word}
        left = limit
        while left is None or left > 0:
            page = await self._transport.get("/v1/jobs", query)
            jobs, cursor = _page(page)
            for job in jobs[:left]:
                yield job
            if not cursor:
                return
            left = None if left is None else left - len(jobs)
            query["cursor"] = cursor

    async def quotas(self) -> dict[str, Any]:
        """What the key's tenant may have and what it uses: `limits`, `used`, `own` and `scope` by quota."""
        page = await self._transport.get("/v1/quotas", {"limit": 1})
        found: list[dict[str, Any]] = page.get("quotas") or []
        if not found:
            raise UnexpectedAnswer("the server's answer about quotas has none")
        return found[0]

    async def audit(self, *, limit: int | None = None, **filters: str | int) -> AsyncGenerator[dict[str, Any]]:
        """Acts of the audit log, the newest first, page by page; filters are action, actor, tenant, since and until."""
        query: dict[str, str | int] = {"limit": PAGE if limit is None else min(limit, PAGE), **filters}
        left = limit
        while left is None or left > 0:
            page = await self._transport.get("/v1/audit", query)
            entries: list[dict[str, Any]] = page.get("entries") or []
            for entry in entries[:left]:
                yield entry
            if not page.get("next"):
                return
            left = None if left is None else left - len(entries)
            query["cursor"] = str(page["next"])

    def events(self, job_id: str, after: str | None = None) -> AsyncGenerator[JobEvent]:
        """A job's events after an event's id, past and live, until its end: each once, in order, over any network.

        An event of type `reset` says that the server knows no such id: go on from the job that it carries.
        """
        return follow(self._transport, OneJob(job_id, after))

    def events_of(self, *job_ids: str) -> AsyncGenerator[JobEvent]:
        """The events of several jobs over one connection, until all have ended.

        `"*"` is every job, without an end: first a `reset` for each open one. After a lost connection a `reset` tells
        of each open job that moved meanwhile; of those that ended meanwhile the server does not tell.
        """
        return follow(self._transport, ManyJobs(job_ids))

    def live(self, job_id: str, last_event_id: str = "") -> AsyncGenerator[LiveEvent]:
        """A live job's events in the words of contract 004; `LiveState` holds what they come to."""
        return follow_live(self._transport, job_id, last_event_id=last_event_id)

    async def wait(self, job_id: str, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - limits the wait only
        """A job's result, once it has one; raises JobFailed, JobCanceled, or ResultTimeout while the job goes on."""
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                return outcome(await self.ended(job_id))
        except TimeoutError:
            raise ResultTimeout(f"job {job_id} has not ended within {timeout}; it goes on") from None

    async def ended(self, job_id: str) -> RemoteJob:
        """A job, once it has ended, however it did."""
        pauses = Pauses(self._transport.patience, self._transport.patience.reconnect_for_s)
        job = await self.get(job_id)
        while not job.ended:
            async for event in self.events(job_id, job.last_event_id or None):
                pauses.connected()
                if event.ends:
                    pauses.moved_on()
            job = await self.get(job_id)
            if not job.ended:  # somebody brought it back
                await pauses.after(UnexpectedAnswer(f"job {job_id} does not end, though its events did"))
        return job

    async def stream_text(
        self, messages: str | Messages, *, task: str = "chat", system: str = "", model: str | None = None
    ) -> AsyncGenerator[str]:
        """Ask a model and yield its answer piece by piece; raises JobFailed or JobCanceled.

        `messages` is one text or a conversation. Leaving the loop early does not cancel the job. After a failed
        attempt the next one's text follows from its beginning; `events` shows where.
        """
        job = await self.create(task, question(messages, system=system, model=model))
        silent = True
        async with aclosing(self.events(job.job_id)) as events:
            async for event in events:
                if event.type == TOKEN:
                    silent = False
                    yield token(event.data)
        result = outcome(await self.get(job.job_id))
        if silent:
            yield answer(result)

    async def upload(self, path: Path | str, *, upload_id: str = "", on_progress: OnUpload = unwatched) -> Upload:
        """Send a file, in parts; its `key` is for jobs. A cut connection costs the part that was on its way.

        Another process goes on with the `upload_id` that `on_progress` was told. The same file has to be there.
        """
        source = Path(path)
        if upload_id:
            told = await self._transport.get(upload_path(upload_id))
        else:
            told = await self._transport.post("/v1/uploads", _file(source))
        upload = Upload.read(told)
        await send_all(self._transport, source, upload, on_progress)
        return Upload.read(await self._transport.post(upload_path(upload.upload_id, "/complete"), {}))

    async def add_video(self, path: Path | str, *, on_progress: OnUpload = unwatched, **about: Any) -> str:
        """Send a video and begin the work on it; its id. `about` is its `title`, `team_id`, `options`.

        When the first answer is lost, a video without a file may stay behind as `uploading`; nothing works on it.
        """
        source = Path(path)
        made = await self._transport.post("/videos", {**_file(source), **about})
        try:
            video_id, upload = str(made["video"]["video_id"]), Upload.read(made["upload"])
        except (KeyError, TypeError) as error:
            raise UnexpectedAnswer("a video was expected") from error
        await send_all(self._transport, source, upload, on_progress)
        await self._transport.post(f"/videos/{video_id}/complete", {})
        return video_id


def outcome(job: RemoteJob) -> Any:
    """An ended job's result; raises JobCanceled or JobFailed."""
    if job.status == "done":
        return job.result
    error = job.error or {}
    said = f"{error.get('code', 'unknown')}: {error.get('message', '')}"
    if job.status == "canceled":
        raise JobCanceled(f"job {job.job_id} was canceled: {job.cancel_reason or 'no reason given'}", error)
    raise JobFailed(f"job {job.job_id} ended as {job.status} after {job.attempts} attempts: {said}", error)


def _header(key: str) -> str:
    if not VISIBLE(key):
        raise InvalidInput("an idempotency key has 1 to 255 visible ASCII characters and no spaces")
    return key


def _file(source: Path) -> dict[str, Any]:
    return {"name": source.name, "size": source.stat().st_size}


def _page(told: Any) -> tuple[Sequence[RemoteJob], str | None]:
    if not isinstance(told, dict) or not isinstance(told.get("jobs"), list):
        raise UnexpectedAnswer("a page of jobs was expected")
    return [RemoteJob.read(job) for job in told["jobs"]], told.get("next")
