"""`RemoteWorker`: a `Worker` for machines that reach a server over HTTP, but no database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Unpack

from callsheet.worker.runner import Source, Worker

from .caller import Caller, ServerAway, WorkerRefused, pause
from .credentials import Credentials
from .shift import RemoteWorkerLoop

if TYPE_CHECKING:
    from callsheet.worker.options import WorkerOptions
    from callsheet.worker.shift import WorkerLoop

    from .options import RemoteOptions

log = logging.getLogger("callsheet.worker")


class RemoteWorker(Worker):
    """Runs an app's tasks with jobs from a server. The server does the housekeeping and sets the lease time."""

    def __init__(self, app: Source, remote: RemoteOptions, **options: Unpack[WorkerOptions]) -> None:
        options["housekeeping"] = False
        super().__init__(app, **options)
        self.remote = remote
        self._credentials = Credentials(remote, self.options.worker_id.replace("~", "-")[-100:])
        self._loop: RemoteWorkerLoop | None = None

    @property
    def worker_id(self) -> str:
        """The worker's id at the server."""
        return self._credentials.worker_id

    @property
    def drained(self) -> bool:
        """True after the server's request to drain."""
        return self._loop is not None and self._loop.drained

    async def run(self, *, burst: bool = False) -> None:
        """Work until stopped or drained by the server; raises WorkerRefused if the server refuses this worker."""
        await super().run(burst=burst)
        while self._loop is not None and (refusal := self._loop.refusal) is not None:
            if self._stopping or not self._credentials.give_up(refusal):
                raise WorkerRefused(f"{self.remote.url} does not want this worker: {refusal.detail} ({refusal.code})")
            await super().run(burst=burst)

    async def introduce(self) -> None:
        """Enrol, rotate the worker token, or check the API key; raises WorkerRefused or ServerAway."""
        async with self._caller() as caller:
            await self._credentials.begin(caller)
            if not self._credentials.is_enrolled:
                await self._credentials.show(caller)

    async def _introduce_patiently(self) -> None:
        """Enrol or rotate the token, with retries while the server is away."""
        async with self._caller() as caller:
            failures = 0
            while not self._credentials.is_introduced and not self._stopping:
                try:
                    await self._credentials.begin(caller)
                except ServerAway as away:
                    log.warning("the server cannot be reached, trying again: %s", away)
                    await asyncio.sleep(pause(failures, away))
                    failures += 1

    @contextlib.asynccontextmanager
    async def _caller(self) -> AsyncIterator[Caller]:
        caller = Caller(self.remote.url, self._credentials, lambda: None)
        try:
            yield caller
        finally:
            await caller.close()

    async def _begin(self) -> WorkerLoop:
        await self._introduce_patiently()
        self._loop = RemoteWorkerLoop(self.remote, self._credentials, self._app.definitions, self.queues, self.options)
        return self._loop
