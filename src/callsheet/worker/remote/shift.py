"""The main loop of a remote worker: claims wait at the server for jobs; the server may drain or refuse the worker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from callsheet.store.protocol import ClaimRequest
from callsheet.worker.run import Run, Stop
from callsheet.worker.shift import WorkerLoop
from callsheet.worker.workspace import sweep_until_ended

from .caller import UPGRADE_REQUIRED, Caller, ServerAway, ServerRefused, pause
from .heartbeat import RemoteBeats, RemoteHeartbeat
from .plane import RemoteJobSource

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from callsheet.worker.definition import Definition
    from callsheet.worker.options import Options

    from .credentials import Credentials
    from .options import RemoteOptions

log = logging.getLogger("callsheet.worker")
BURST_WAIT_S = 0.25
REST_S = 1.0  # after a claim that was answered with nothing sooner than it should
FINISHING = frozenset({403, UPGRADE_REQUIRED})  # no more jobs, but what runs may end


class RemoteWorkerLoop(WorkerLoop):
    """A shift on a server. `refusal` is the server's refusal of this worker, None while the worker is accepted."""

    def __init__(
        self,
        remote: RemoteOptions,
        credentials: Credentials,
        definitions: Mapping[str, Definition],
        queues: tuple[str, ...],
        options: Options,
    ) -> None:
        self.refusal: ServerRefused | None = None
        self.drained = False
        self._remote, self._credentials = remote, credentials
        self._here = asyncio.get_running_loop()
        self._caller = Caller(remote.url, credentials, self.drain_soon)
        self._plane = RemoteJobSource(self._caller, remote.labels, self._claim_refused)
        self._polled_s = 0.0
        super().__init__(self._plane, definitions, queues, options)
        self.poll_s = self._plane.wait_s = remote.wait_s

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self._caller.close)
        return await super().__aenter__()

    def _make_heartbeat(self) -> RemoteHeartbeat:
        self._beats = RemoteHeartbeat(self._connect, self.runs, self.lease_s)
        return self._beats

    def _connect(self) -> RemoteBeats:
        """Make the heartbeats' connections; called on their thread."""
        caller = Caller(self._remote.url, self._credentials, self.drain_soon)
        return RemoteBeats(caller, self._plane.leases, self._beat_refused)

    def _background_tasks(self) -> Sequence[Coroutine[None, None, None]]:
        return self._credentials.keep_fresh(self._caller), sweep_until_ended(self._options.workspaces, None)

    async def _claim_on(self, *, burst: bool) -> None:
        """Claim jobs as in `WorkerLoop`; a claim waits at the server, in a burst for 0.25 s at most."""
        if burst:
            self._plane.wait_s = BURST_WAIT_S
        await super()._claim_on(burst=burst)

    def stop(self, *, hard: bool = False) -> None:
        """Stop as in `WorkerLoop`, and cancel a claim request that waits at the server."""
        super().stop(hard=hard)
        self._plane.let_go()

    def drain_soon(self) -> None:
        """Drain this worker at the server's request; callable from any thread."""
        self._here.call_soon_threadsafe(self._drain_asked)

    def _drain_asked(self) -> None:
        if not self.drained:
            self.drained = True
            log.info("the server asks this worker to drain")
            self.stop()

    def _claim_refused(self, refusal: ServerRefused) -> None:
        """Stop claiming; a 403 or 426 lets running jobs finish, any other refusal stops running jobs."""
        self._end(refusal, lose=refusal.status not in FINISHING)

    def _beat_refused(self, refusal: ServerRefused) -> None:
        """Stop all jobs after a refused heartbeat; called on the heartbeats' thread."""
        self._here.call_soon_threadsafe(lambda: self._end(refusal, lose=True))

    def _end(self, refusal: ServerRefused, *, lose: bool) -> None:
        if self.refusal is None:
            self.refusal = refusal
            log.error("%s; this worker ends", refusal)
            self.stop()
        if lose:
            for run in list(self.runs.values()):
                run.request_stop(Stop.LOST)

    async def _claim(self, limit: int, *, thorough: bool) -> int:
        asked_at, request = time.monotonic(), ClaimRequest(self._options.worker_id, self._queues, limit)
        try:
            leased_jobs = await self._plane.take(request)
            if thorough and not leased_jobs:
                leased_jobs = await self._plane.take_at_once(request)  # what became due while it waited there
        finally:
            self._polled_s = time.monotonic() - asked_at
        now = time.monotonic()
        self._look_ahead(now)
        if not leased_jobs:
            return 0
        previous_s, self.lease_s = self.lease_s, leased_jobs[0].lease_s
        self._beats.lease_s = self.lease_s
        count = self._line_up(
            [entry.job for entry in leased_jobs], now, now + min(entry.expires_in_s for entry in leased_jobs)
        )
        for entry in leased_jobs:
            if entry.cancel:
                self.runs[entry.job.job_id].request_stop(Stop.CANCEL)
        if not self._beats.beating or self.lease_s < previous_s:
            self._beats.poke({entry.job.job_id for entry in leased_jobs})
        return count

    def _claim_ended(self, run: Run) -> None:
        super()._claim_ended(run)
        self._plane.forget(run.job.claim)

    def _pause_s(self, trouble: int, error: Exception) -> float:
        return pause(trouble - 1, error if isinstance(error, ServerAway) else ServerAway(""))

    def _rest_s(self, room: int, *, burst: bool) -> float:
        """Return 0 after a claim that waited at the server, so that the next claim follows at once."""
        if not room:
            return self.poll_s
        return 0.0 if burst or self._polled_s >= self._plane.wait_s / 2 else REST_S
