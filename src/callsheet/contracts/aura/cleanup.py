"""Cleanup: removes a live job's folders when the job has ended, and sweeps abandoned folders daily.

Cleanup never fails a job: a folder that cannot be removed is logged as a warning, and the next sweep tries again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

from callsheet.http.state import PerServer, ServerState
from callsheet.kernel.errors import CallsheetError, JobNotFound

from .folders import ORPHAN_S, Folders

if TYPE_CHECKING:
    from callsheet.engine import Engine

log = logging.getLogger("callsheet.cleanup")
FIRST_SWEEP_S, SWEEP_S = 60.0, 24 * 3600.0
PATIENCE_S = 600.0  # how long to wait for the job's end; after that the sweep removes the folders


class Cleanup:
    """Cleans up the folders of one machine. A worker on another machine has a cleanup of its own."""

    def __init__(self, engine: Engine, folders: Folders | None = None) -> None:
        self._engine = engine
        self.folders = folders or Folders()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the sweeps: the first within a minute, then daily."""
        self._begin(self._sweep_for_ever())

    def stop(self) -> None:
        """Cancel all running cleanups. Safe to call twice."""
        for task in self._tasks:
            task.cancel()

    def schedule(self, job_id: str) -> None:
        """Remove a job's folders as soon as the job has ended."""
        self._begin(self._after_its_end(job_id))

    async def sweep(self, now_s: float | None = None) -> int:
        """Remove old, unlocked folders of ended or unknown jobs; returns the number of removed folders."""
        count = 0
        for folder in await asyncio.to_thread(
            lambda: list(self.folders.list_all(time.time() if now_s is None else now_s))
        ):
            if folder.age_s >= ORPHAN_S[folder.kind] and await self._is_over(folder.job_id):
                count += await asyncio.to_thread(self.folders.remove_free, folder.kind, folder.job_id)
        return count

    async def _after_its_end(self, job_id: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for _ in self._engine.watch(job_id):
                    pass
            await asyncio.to_thread(self.folders.remove, job_id)
        except TimeoutError:
            log.warning("the folders of job %s are left to the sweep: it has not ended", job_id)
        except CallsheetError as error:
            log.warning("the folders of job %s are left to the sweep: %s", job_id, error)

    async def _is_over(self, job_id: str) -> bool:
        try:
            return (await self._engine.get(job_id)).status.terminal
        except JobNotFound:
            return True

    async def _sweep_for_ever(self) -> None:
        pause_s = FIRST_SWEEP_S  # soon after the start: a server restarted daily must sweep, too
        while True:
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            pause_s = SWEEP_S
            try:
                await self.sweep()
            except (CallsheetError, OSError) as error:
                log.warning("a sweep of left folders failed: %s", error)

    def _begin(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def cleanup_of(state: ServerState) -> Cleanup:
    """Return the cleanup of this server process, started on first use and stopped with the process."""
    return CLEANUP.of(state)


def _start(state: ServerState) -> Cleanup:
    cleanup = Cleanup(state.engine)
    state.on_stop.append(cleanup.stop)
    cleanup.start()
    return cleanup


CLEANUP = PerServer(_start)
