"""Heartbeats over HTTP, from a separate thread and connections, and long-polling watches over longer jobs.

The server answers a watch when one of its jobs is cancelled or lost, so that a cancellation arrives within a second.
Jobs are watched after 0.25 s; a watch lasts 1 s plus twice the age of its youngest job, 20 s at most.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callsheet.kernel.errors import StoreError
from callsheet.store.protocol import HeartbeatResult
from callsheet.store.tasks import end
from callsheet.worker.heartbeat import Heartbeat
from callsheet.worker.run import Run

from .caller import Caller, ServerAway, ServerRefused

if TYPE_CHECKING:
    from callsheet.kernel.job import Claim
    from callsheet.worker.plane import Beats

    from .wire import Lease

log = logging.getLogger("callsheet.worker")
LOOK_S = 0.25
FIRST_WATCH_S, LONGEST_WATCH_S = 1.0, 20.0
REST_S = 1.0  # after a watch that ended early with no news
MOST_WATCHES = 20
MOST_LEASES = 500


class RemoteBeats:
    """Connections for heartbeats. `on_refusal` is called with a response that ends this worker."""

    def __init__(
        self, caller: Caller, leases: Mapping[Claim, Lease], on_refusal: Callable[[ServerRefused], None]
    ) -> None:
        self._caller = caller
        self._leases = leases
        self._on_refusal = on_refusal

    async def open(self) -> object:
        """Do nothing: the HTTP client connects on the first request."""
        return self

    async def close(self) -> None:
        """Close all connections."""
        await self._caller.close()

    async def heartbeat(self, claims: Sequence[Claim], *, lease_ms: int) -> list[HeartbeatResult]:  # noqa: ARG002 - the server says
        """Extend leases; raises ServerAway."""
        return await self.beat(claims)

    async def beat(self, claims: Sequence[Claim], wait_s: float = 0.0) -> list[HeartbeatResult]:
        """Extend leases; with `wait_s` the server answers on the first news of a job, or after that time."""
        held = {claim: lease for claim in claims if (lease := self._leases.get(claim)) is not None}
        results: dict[Claim, HeartbeatResult] = {}
        for begin in range(0, len(held), MOST_LEASES):
            part = dict(list(held.items())[begin : begin + MOST_LEASES])
            proofs = [{"job_id": lease.job_id, "lease_token": lease.lease_token} for lease in part.values()]
            body = {"leases": proofs, "wait_ms": round(wait_s * 1000)}
            try:
                answer = await self._caller.call("heartbeats", body, wait_s=wait_s)
            except ServerRefused as refused:
                if refused.ends_worker:
                    self._on_refusal(refused)
                raise ServerAway(f"heartbeats are refused: {refused}") from refused
            results |= dict(zip(part, _beats(answer, len(part)), strict=True))
        return [results.get(claim, HeartbeatResult(False)) for claim in claims]


class RemoteHeartbeat(Heartbeat):
    """Extends the leases of `runs` over HTTP; `connect` makes the connections, on the heartbeats' thread."""

    may_come_too_late = False  # the server has lived on, and its housekeeping with it

    def __init__(self, connect: Callable[[], RemoteBeats], runs: dict[str, Run], lease_s: float) -> None:
        super().__init__("", None, runs, lease_s)
        self.beating = False
        self._connect = connect
        self._watched_runs: set[Run] = set()
        self._first_seen_at: dict[Run, float] = {}

    def _connection(self) -> Beats:
        return self._connect()

    async def _beat_for_ever(self, store: Beats) -> None:
        assert isinstance(store, RemoteBeats)  # noqa: S101 - made by _connection
        self.beating = True
        watches: set[asyncio.Task[None]] = set()
        look = asyncio.create_task(self._watch_for_ever(store, watches))
        try:
            await super()._beat_for_ever(store)
        finally:
            await end(look)
            await end(*watches)
            self._watched_runs.clear()
            self.beating = False

    async def _watch_for_ever(self, store: RemoteBeats, watches: set[asyncio.Task[None]]) -> None:
        """Start watches over jobs that have run for 0.25 s, one watch per job."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            runs = [run for run in list(self._runs.values()) if run.stop is None and not run.is_settled]
            self._first_seen_at = {run: self._first_seen_at.get(run, now) for run in runs}
            ready = [run for run in runs if run not in self._watched_runs and now - self._first_seen_at[run] >= LOOK_S]
            if ready and len(watches) < MOST_WATCHES:
                age_s = min(now - self._first_seen_at[run] for run in ready)
                self._watched_runs.update(ready)
                watch = asyncio.create_task(self._watch(store, ready, min(LONGEST_WATCH_S, FIRST_WATCH_S + 2 * age_s)))
                watches.add(watch)
                watch.add_done_callback(watches.discard)

    async def _watch(self, store: RemoteBeats, runs: list[Run], wait_s: float) -> None:
        """Wait for news of these jobs, and stop cancelled and lost runs. Heartbeats extend the leases, not watches."""
        asked_at = time.monotonic()
        try:
            news = False
            for run, beat in zip(runs, await store.beat([run.job.claim for run in runs], wait_s), strict=True):
                if not beat.held or beat.cancel_requested:
                    news = True
                    self._take_result(run, beat, asked_at)
            if not news and time.monotonic() - asked_at < wait_s / 2:
                await asyncio.sleep(REST_S)
        except StoreError as error:
            log.debug("a watch over %d jobs was broken off: %s", len(runs), error)
            await asyncio.sleep(REST_S)
        finally:
            self._watched_runs.difference_update(runs)


def _beats(answer: dict[str, Any], count: int) -> list[HeartbeatResult]:
    leases = answer.get("leases")
    if not isinstance(leases, list) or len(leases) != count:
        raise ServerAway("the server's answer does not tell of each lease")
    return [HeartbeatResult(bool(one.get("ok")), bool(one.get("cancel"))) for one in leases]
