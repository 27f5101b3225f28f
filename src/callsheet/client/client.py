"""`Client`: jobs on a Callsheet server, over HTTP. Every method survives lost connections and takes effect once."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack

from callsheet.kernel.durations import Duration, seconds
from callsheet.kernel.errors import InvalidInput, JobCanceled, JobFailed, ResultTimeout

from .cursor import ManyJobs, OneJob, job_path
from .errors import Conflict, UnexpectedAnswer
from .live import LiveEvent, follow_live
from .patience import Patience, Pauses
from .records import JobEvent, Receipt, RemoteJob, Upload
from .stream import follow
from .transport import Transport
from .uploads import OnUpload, ignore_progress, send_all, upload_path

TOKEN = "token"  # noqa: S105 - the type of an event
VOID = frozenset(
    {"restart", "retrying", "lease_lost", "released", "waiting", "requeued"}
)  # after these the answer starts again
Messages = Sequence[Mapping[str, Any]]


class JobOptions(TypedDict, total=False):
    """Options of a new job, as `POST /v1/jobs` takes them; lengths of time are seconds or text such as `"10m"`.

    `unchecked` accepts a task that no worker has registered yet.
    """

    queue: str
    priority: int
    delay: float | str
    run_at: str | int
    max_attempts: int
    retry: str | Mapping[str, Any]
    unique_key: str
    concurrency: Mapping[str, Any]
    depends_on: Sequence[str]
    on_dependency_failure: Literal["cancel", "run"]
    ttl: float | str
    correlation_id: str
    contract: str
    unchecked: bool


def question(messages: str | Messages, *, system: str = "", model: str | None = None) -> dict[str, Any]:
    """Return a model job's payload for one prompt or a conversation."""
    payload: dict[str, Any] = (
        {"prompt": messages} if isinstance(messages, str) else {"messages": list(map(dict, messages))}
    )
    return payload | {name: value for name, value in (("system", system), ("model", model)) if value}


def token(data: Mapping[str, Any]) -> str:
    """Return the text of a token event."""
    return str(data.get("text") or "")


def answer(result: Any) -> str:
    """Return the text of a result, for tasks that send no token events."""
    text = result.get("text") if isinstance(result, Mapping) else result
    return text if isinstance(text, str) else json.dumps(result, ensure_ascii=False)


PAGE = 100
VISIBLE = re.compile(r"[!-~]{1,255}").fullmatch
DEFAULT_PATIENCE = Patience()


class Client:
    """An async client of one server. URL and API key default to CALLSHEET_URL and CALLSHEET_API_KEY.

    Use it as `async with Client() as client`, in one event loop. `SyncClient` has the same methods without async.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, patience: Patience = DEFAULT_PATIENCE
    ) -> None:
        self._transport = Transport(url, api_key, patience)

    def __repr__(self) -> str:
        return f"<Client {self.url}>"

    @property
    def url(self) -> str:
        """The base URL of the Callsheet server."""
        return self._transport.url

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def close(self) -> None:
        """Close all connections. Safe to call twice."""
        await self._transport.close()

    async def create(
        self,
        task: str,
        payload: Mapping[str, Any],
        *,
        ttl_s: int | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Receipt:
        """Create a job and return its receipt. By default a random idempotency key keeps retries from adding jobs."""
        body: dict[str, Any] = {"task": task, "payload": payload, **options}
        if ttl_s is not None:
            body["ttl_s"] = ttl_s
        key = idempotency_key if idempotency_key is not None else uuid.uuid4().hex
        return Receipt.read(await self._transport.post("/v1/jobs", body, {"Idempotency-Key": _header(key)}))

    async def create_many(
        self, jobs: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> Sequence[str]:
        """Create up to 10,000 jobs, all or none, and return their ids; each is a mapping that `POST /v1/jobs` takes."""
        key = idempotency_key if idempotency_key is not None else uuid.uuid4().hex
        body = {"jobs": list(map(dict, jobs))}
        receipt = await self._transport.post("/v1/jobs/batch", body, {"Idempotency-Key": _header(key)})
        return [str(job["job_id"]) for job in receipt.get("jobs") or []]

    async def tasks(self) -> Sequence[dict[str, Any]]:
        """Return the tasks that workers serve, with the JSON schemas of their arguments and results."""
        page = await self._transport.get("/v1/tasks", {})
        records: list[dict[str, Any]] = page.get("tasks") or []
        return records

    async def get(self, job_id: str) -> RemoteJob:
        """Return the current state of a job; raise NoSuchJob if the job does not exist for this key."""
        return RemoteJob.read(await self._transport.get(job_path(job_id)))

    async def cancel(self, job_id: str, reason: str = "") -> RemoteJob:
        """Cancel a job: a queued job ends now, a running job soon. Raises Conflict if the job ended otherwise."""
        try:
            body = await self._transport.post(job_path(job_id, "/cancel"), {"reason": reason} if reason else {})
        except Conflict:
            job = await self.get(job_id)
            if job.status == "canceled":  # by an earlier try whose answer was lost, or by somebody else
                return job
            raise
        return RemoteJob.read(body)

    async def list(
        self,
        *,
        status: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[RemoteJob]:
        """Yield jobs, newest first, at most `limit`; pages are requested as the loop needs them."""
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
        """Return the quotas of the key's tenant and their use: `limits`, `used`, `own` and `scope` by quota."""
        page = await self._transport.get("/v1/quotas", {"limit": 1})
        quotas: list[dict[str, Any]] = page.get("quotas") or []
        if not quotas:
            raise UnexpectedAnswer("the server's answer about quotas has none")
        return quotas[0]

    async def audit(self, *, limit: int | None = None, **filters: str | int) -> AsyncGenerator[dict[str, Any]]:
        """Yield audit log entries, newest first; the filters are action, actor, tenant, since and until."""
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
        """Yield a job's past and live events after event id `after`, each once, in order, until the job ends.

        An event of type `reset` means that the server does not know the id: continue from the job in its data.
        """
        return follow(self._transport, OneJob(job_id, after))

    def events_of(self, *job_ids: str) -> AsyncGenerator[JobEvent]:
        """Yield the events of several jobs over one connection, until all jobs have ended.

        `"*"` follows every job and never ends; it begins with a `reset` event per open job. After a lost connection, a
        `reset` reports each open job that changed meanwhile; jobs that ended meanwhile are not reported.
        """
        return follow(self._transport, ManyJobs(job_ids))

    def live(self, job_id: str, last_event_id: str = "") -> AsyncGenerator[LiveEvent]:
        """Yield a live job's events in the form of contract 004; `LiveState` merges them into the job's state."""
        return follow_live(self._transport, job_id, last_event_id=last_event_id)

    async def wait(self, job_id: str, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - limits the wait only
        """Wait for a job and return its result; raise JobFailed, JobCanceled, or ResultTimeout (the job continues)."""
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                return outcome(await self.ended(job_id))
        except TimeoutError:
            raise ResultTimeout(f"job {job_id} has not ended within {timeout}; it goes on") from None

    async def ended(self, job_id: str) -> RemoteJob:
        """Wait until a job is done, failed or canceled, and return it."""
        pauses = Pauses(self._transport.patience, self._transport.patience.reconnect_for_s)
        job = await self.get(job_id)
        while not job.ended:
            async for event in self.events(job_id, job.last_event_id or None):
                pauses.on_connection()
                if event.ends:
                    pauses.moved_on()
            job = await self.get(job_id)
            if not job.ended:  # somebody requeued the job
                await pauses.after(UnexpectedAnswer(f"job {job_id} does not end, though its events did"))
        return job

    async def stream_text(
        self, messages: str | Messages, *, task: str = "chat", system: str = "", model: str | None = None
    ) -> AsyncGenerator[str]:
        """Create a model job and yield its answer piece by piece; raise JobFailed or JobCanceled.

        `messages` is one prompt or a conversation. Leaving the loop early does not cancel the job. After a failed
        attempt, the next attempt's text starts from the beginning; `events` shows the point.
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

    async def upload(self, path: Path | str, *, upload_id: str = "", on_progress: OnUpload = ignore_progress) -> Upload:
        """Upload a file in parts; jobs name it by the returned `key`. A lost connection costs only the current part.

        Another process can resume the same file with the `upload_id` from a record passed to `on_progress`.
        """
        source = Path(path)
        if upload_id:
            body = await self._transport.get(upload_path(upload_id))
        else:
            body = await self._transport.post("/v1/uploads", _file(source))
        upload = Upload.read(body)
        await send_all(self._transport, source, upload, on_progress)
        return Upload.read(await self._transport.post(upload_path(upload.upload_id, "/complete"), {}))

    async def add_video(self, path: Path | str, *, on_progress: OnUpload = ignore_progress, **about: Any) -> str:
        """Upload a video, start its pipeline and return its id. `about` may hold `title`, `team_id` and `options`.

        If the first response is lost, a video without a file may remain `uploading`; no job runs for this video.
        """
        source = Path(path)
        body = await self._transport.post("/videos", {**_file(source), **about})
        try:
            video_id, upload = str(body["video"]["video_id"]), Upload.read(body["upload"])
        except (KeyError, TypeError) as error:
            raise UnexpectedAnswer("a video was expected") from error
        await send_all(self._transport, source, upload, on_progress)
        await self._transport.post(f"/videos/{video_id}/complete", {})
        return video_id


def outcome(job: RemoteJob) -> Any:
    """Return an ended job's result; raise JobCanceled or JobFailed if it did not succeed."""
    if job.status == "done":
        return job.result
    error = job.error or {}
    reason = f"{error.get('code', 'unknown')}: {error.get('message', '')}"
    if job.status == "canceled":
        raise JobCanceled(f"job {job.job_id} was canceled: {job.cancel_reason or 'no reason given'}", error)
    raise JobFailed(f"job {job.job_id} ended as {job.status} after {job.attempts} attempts: {reason}", error)


def _header(key: str) -> str:
    if not VISIBLE(key):
        raise InvalidInput("an idempotency key has 1 to 255 visible ASCII characters and no spaces")
    return key


def _file(source: Path) -> dict[str, Any]:
    return {"name": source.name, "size": source.stat().st_size}


def _page(body: Any) -> tuple[Sequence[RemoteJob], str | None]:
    if not isinstance(body, dict) or not isinstance(body.get("jobs"), list):
        raise UnexpectedAnswer("a page of jobs was expected")
    return [RemoteJob.read(job) for job in body["jobs"]], body.get("next")
