"""`SyncClient`: the client for threads without an event loop. It runs a `Client` on a background event loop."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, Unpack

from callsheet.kernel.durations import Duration
from callsheet.kernel.errors import InvalidInput

from .client import DEFAULT_PATIENCE, Client, JobOptions, Messages
from .live import LiveEvent
from .patience import Patience
from .records import JobEvent, Receipt, RemoteJob, Upload
from .uploads import OnUpload, ignore_progress

T = TypeVar("T")
STOP_S = 5.0
_live: weakref.WeakSet[Background] = weakref.WeakSet()


class Background:
    """An event loop in a daemon thread, started on first use; the thread does not keep the process alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopped = False
        _live.add(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. An interrupt of the caller (Ctrl-C) first cancels the coroutine."""
        try:
            _refuse_event_loop()
            future = asyncio.run_coroutine_threadsafe(work, self._running())
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except BaseException:
            if future.cancel() and self._loop is not None:
                asyncio.run_coroutine_threadsafe(_wait_until_ended(work), self._loop).result(STOP_S)
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an async iterator, and close the iterator at the end."""
        end: Any = object()
        try:
            while (item := self.run(_next(items, end))) is not end:
                yield item
        finally:
            close = getattr(items, "aclose", None)
            if close is not None and not self._is_stopped:
                self.run(close())

    def stop(self, closing: Callable[[], Awaitable[None]]) -> None:
        """Run `closing`, cancel all remaining tasks, stop the loop. Safe to call twice."""
        with self._lock:
            loop, self._loop, self._is_stopped = self._loop, None, True
        if loop is not None:
            future = asyncio.run_coroutine_threadsafe(_finish(closing), loop)
            concurrent.futures.wait([future], timeout=STOP_S)
            loop.call_soon_threadsafe(loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_stopped:
                raise InvalidInput("this client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=[self._loop], name="callsheet-client", daemon=True).start()
            return self._loop


@atexit.register
def _stop_all() -> None:
    """Stop all loops at exit: an unfinished iterator must not wait for a loop whose thread has ended."""
    for background in list(_live):
        background.stop(_nothing)


async def _nothing() -> None:
    pass


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _finish(closing: Callable[[], Awaitable[None]]) -> None:
    await closing()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _wait_until_ended(work: Coroutine[Any, Any, Any]) -> None:
    """Wait for the cancelled task to end, because a busy async iterator cannot be closed."""
    tasks = [task for task in asyncio.all_tasks() if task.get_coro() is work]
    if tasks:
        await asyncio.wait(tasks)


async def _next(items: AsyncIterator[Any], end: object) -> Any:
    return await anext(items, end)


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidInput("SyncClient would block this event loop; use Client and await it")


class _Open(NamedTuple):
    pid: int
    client: Client
    background: Background


class SyncClient:
    """Use it as `with SyncClient(url, api_key) as client`. Threads may share it; a forked process reconnects."""

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, patience: Patience = DEFAULT_PATIENCE
    ) -> None:
        self._make = partial(Client, url, api_key, patience=patience)
        self._current = _Open(os.getpid(), self._make(), Background())

    def __repr__(self) -> str:
        return f"<SyncClient {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL of the Callsheet server."""
        return self._current.client.url

    def close(self) -> None:
        """Close all connections and stop the background loop. Safe to call twice."""
        current = self._open
        current.background.stop(current.client.close)

    def create(
        self,
        task: str,
        payload: Mapping[str, Any],
        *,
        ttl_s: int | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Receipt:
        """Create a job and return its receipt; see `Client.create`."""
        client, run = self._open.client, self._open.background.run
        return run(client.create(task, payload, ttl_s=ttl_s, idempotency_key=idempotency_key, **options))

    def create_many(self, jobs: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None) -> Sequence[str]:
        """Create up to 10,000 jobs, all or none, and return their ids; see `Client.create_many`."""
        return self._open.background.run(self._open.client.create_many(jobs, idempotency_key=idempotency_key))

    def tasks(self) -> Sequence[dict[str, Any]]:
        """Return the tasks that workers serve; see `Client.tasks`."""
        return self._open.background.run(self._open.client.tasks())

    def get(self, job_id: str) -> RemoteJob:
        """Return the current state of a job; raise NoSuchJob if the job does not exist for this key."""
        return self._open.background.run(self._open.client.get(job_id))

    def cancel(self, job_id: str, reason: str = "") -> RemoteJob:
        """Cancel a job; raise Conflict if the job ended otherwise. See `Client.cancel`."""
        return self._open.background.run(self._open.client.cancel(job_id, reason))

    def list(
        self,
        *,
        status: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        limit: int | None = None,
    ) -> Iterator[RemoteJob]:
        """Yield jobs, newest first; see `Client.list`."""
        return self._open.background.iterate(self._open.client.list(status=status, task=task, queue=queue, limit=limit))

    def quotas(self) -> dict[str, Any]:
        """Return the quotas of the key's tenant and their use; see `Client.quotas`."""
        return self._open.background.run(self._open.client.quotas())

    def audit(self, *, limit: int | None = None, **filters: str | int) -> Iterator[dict[str, Any]]:
        """Yield audit log entries, newest first; see `Client.audit`."""
        return self._open.background.iterate(self._open.client.audit(limit=limit, **filters))

    def events(self, job_id: str, after: str | None = None) -> Iterator[JobEvent]:
        """Yield a job's events, each once, until the job ends; see `Client.events`."""
        return self._open.background.iterate(self._open.client.events(job_id, after))

    def events_of(self, *job_ids: str) -> Iterator[JobEvent]:
        """Yield the events of several jobs; see `Client.events_of`."""
        return self._open.background.iterate(self._open.client.events_of(*job_ids))

    def live(self, job_id: str, last_event_id: str = "") -> Iterator[LiveEvent]:
        """Yield a live job's events in the form of contract 004; see `Client.live`."""
        return self._open.background.iterate(self._open.client.live(job_id, last_event_id))

    def wait(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for a job and return its result; raise JobFailed, JobCanceled or ResultTimeout."""
        return self._open.background.run(self._open.client.wait(job_id, timeout))

    def ended(self, job_id: str) -> RemoteJob:
        """Wait until a job is done, failed or canceled, and return it."""
        return self._open.background.run(self._open.client.ended(job_id))

    def stream_text(
        self, messages: str | Messages, *, task: str = "chat", system: str = "", model: str | None = None
    ) -> Iterator[str]:
        """Create a model job and yield its answer piece by piece; see `Client.stream_text`."""
        client = self._open.client
        return self._open.background.iterate(client.stream_text(messages, task=task, system=system, model=model))

    def upload(self, path: Path | str, *, upload_id: str = "", on_progress: OnUpload = ignore_progress) -> Upload:
        """Upload a file in parts; `on_progress` is called in another thread. See `Client.upload`."""
        run, client = self._open.background.run, self._open.client
        return run(client.upload(path, upload_id=upload_id, on_progress=on_progress))

    def add_video(self, path: Path | str, *, on_progress: OnUpload = ignore_progress, **about: Any) -> str:
        """Upload a video, start its pipeline and return its id. See `Client.add_video`."""
        return self._open.background.run(self._open.client.add_video(path, on_progress=on_progress, **about))

    @property
    def _open(self) -> _Open:
        """The client of this process, created anew after a fork: a parent's sockets and threads must not be used."""
        if self._current.pid != os.getpid():
            self._current = _Open(os.getpid(), self._make(), Background())
        return self._current
