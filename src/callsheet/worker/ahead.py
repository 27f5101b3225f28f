"""Jobs claimed ahead of a worker's free slots: an attempt counts only after its function begins.

The worker lists long-running jobs of such claims in the store as begun: see `engine.silent_workers`. A job
that lost an earlier lease waits here until the store lists it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from callsheet.engine.silent_workers import is_ahead
from callsheet.kernel.errors import StoreError

if TYPE_CHECKING:
    from callsheet.engine.silent_workers import BegunJobs

    from .run import Run
    from .slots import Slots

log = logging.getLogger("callsheet.worker")
Entry = tuple[float, "Run"]


class Ahead:
    """The claims ahead of one worker. `is_live` returns whether a run's claim is still held.

    `suspects` are jobs with an earlier lost lease: the store must list each as begun before its function starts.
    """

    def __init__(self, begun_jobs: BegunJobs, slots: Slots, is_live: Callable[[Run], bool]) -> None:
        self.suspects: deque[Entry] = deque()
        self._begun_jobs, self._slots, self._is_live = begun_jobs, slots, is_live
        self._listed_runs: dict[str, Run] = {}
        self._ran_before: set[Run] = set()

    @property
    def owner(self) -> str:
        """The owner's name that claims ahead carry in the store."""
        return self._begun_jobs.owner

    @property
    def has_news(self) -> bool:
        """Whether some jobs may need listing in the store soon."""
        return bool(self.suspects) or bool(self._unlisted_runs())

    async def look(self, free: int) -> list[Entry]:
        """List jobs that ran at the previous call too, and suspects for the free slots; return suspects ready to begin.

        At least one suspect is listed: in a busy queue no slot is ever free, and no other worker may take suspects.
        """
        unlisted_runs = self._unlisted_runs()
        long = [run for run in unlisted_runs if run in self._ran_before]
        self._ran_before = set(unlisted_runs)
        suspects = [self.suspects[place] for place in range(min(max(1, free), len(self.suspects)))]
        if not long and not suspects:
            return []
        listed_runs = {job_id: run for job_id, run in self._listed_runs.items() if self._is_live(run)}
        listed_runs |= {run.job_id: run for run in (*long, *(run for _, run in suspects))}
        try:
            await self._begun_jobs.write(listed_runs)
        except StoreError as error:
            log.warning("the store is not told yet which jobs have begun: %s", error)
            return []
        self._listed_runs = listed_runs
        return [self.suspects.popleft() for entry in suspects if self.suspects and self.suspects[0] is entry]

    async def close(self) -> None:
        """Remove this worker's list from the store, if none of its listed claims is still held."""
        if not any(map(self._is_live, self._listed_runs.values())):
            try:
                await self._begun_jobs.remove()
            except StoreError as error:
                log.debug("the list of begun jobs stays for a while: %s", error)

    def _unlisted_runs(self) -> list[Run]:
        """Return the running jobs that were claimed ahead and are not listed as begun."""
        return [run for run in self._slots.current() if is_ahead(run.job) and run.job_id not in self._listed_runs]
