"""`RemoteWorker`: a `Worker` for machines that reach a server over HTTP, but no database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Unpack

from callsheet.worker.runner import Source, Worker

from .answers import ServerAway, WorkerRefused
from .caller import Caller, pause
from .credentials import Credentials
from .shift import RemoteShift

if TYPE_CHECKING:
    from callsheet.worker.options import WorkerOptions
    from callsheet.worker.shift import Shift

    from .options import RemoteOptions

log = logging.getLogger("callsheet.worker")


class RemoteWorker(Worker):
    """Runs an app's tasks with jobs from a server. The server does the housekeeping and sets the lease time."""

    def __init__(self, app: Source, remote: RemoteOptions, **options: Unpack[WorkerOptions]) -> None:
        options["housekeeping"] = False
        super().__init__(app, **options)
        self.remote = remote
        self._credentials = Credentials(remote, self.options.worker_id.replace("~", "-")[-100:])
        self._begun: RemoteShift | None = None

    @property
    def worker_id(self) -> str:
        """The worker's id at the server."""
        return self._credentials.worker_id

    @property
    def drained(self) -> bool:
        """True after the server's request to drain."""
        return self._begun is not None and self._begun.drained

    async def run(self, *, burst: bool = False) -> None:
        """Work until stopped or drained by the server; raises WorkerRefused if the server refuses this worker."""
        await super().run(burst=burst)
        while self._begun is not None and (refused := self._begun.refusal) is not None:
            if self._stopping or not self._credentials.give_up(refused):
                raise WorkerRefused(f"{self.remote.url} does not want this worker: {refused.detail} ({refused.code})")
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
            tried = 0
            while not self._credentials.introduced and not self._stopping:
                try:
                    await self._credentials.begin(caller)
                except ServerAway as away:
                    log.warning("the server cannot be reached, trying again: %s", away)
                    await asyncio.sleep(pause(tried, away))
                    tried += 1

    @contextlib.asynccontextmanager
    async def _caller(self) -> AsyncIterator[Caller]:
        caller = Caller(self.remote.url, self._credentials, lambda: None)
        try:
            yield caller
        finally:
            await caller.close()

    async def _begin(self) -> Shift:
        await self._introduce_patiently()
        self._begun = RemoteShift(self.remote, self._credentials, self._app.definitions, self.queues, self.options)
        return self._begun
