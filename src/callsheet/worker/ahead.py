"""What a worker does about jobs that it has claimed ahead of its free slots, so that none counts before it begins.

The store is told of those that have begun and are not short: see `engine.begun`. A job that was lost early once waits
here until it is told that it begins.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from callsheet.engine.begun import is_ahead
from callsheet.kernel.errors import StoreError

if TYPE_CHECKING:
    from callsheet.engine.begun import BegunJobs

    from .run import Run
    from .slots import Slots

log = logging.getLogger("callsheet.worker")
Entry = tuple[float, "Run"]


class Ahead:
    """The claims ahead of one worker. `is_live` says whether a run's claim is still held.

    `suspects` are the jobs that were lost early once: the store must list each as begun before it begins.
    """

    def __init__(self, begun: BegunJobs, slots: Slots, is_live: Callable[[Run], bool]) -> None:
        self.suspects: deque[Entry] = deque()
        self._begun, self._slots, self._is_live = begun, slots, is_live
        self._listed: dict[str, Run] = {}
        self._ran_before: set[Run] = set()

    @property
    def owner(self) -> str:
        """Whose the jobs are that are claimed ahead."""
        return self._begun.owner

    @property
    def has_news(self) -> bool:
        """Whether the store may have to be told of something soon."""
        return bool(self.suspects) or bool(self._unlisted())

    async def look(self, free: int) -> list[Entry]:
        """List what has run since the last look, and suspects for the free slots; return these, which may begin now.

        One at least: in a busy queue no slot is ever free, and nobody else may take these.
        """
        unlisted = self._unlisted()
        long = [run for run in unlisted if run in self._ran_before]
        self._ran_before = set(unlisted)
        suspects = [self.suspects[place] for place in range(min(max(1, free), len(self.suspects)))]
        if not long and not suspects:
            return []
        listed = {job_id: run for job_id, run in self._listed.items() if self._is_live(run)}
        listed |= {run.job_id: run for run in (*long, *(run for _, run in suspects))}
        try:
            await self._begun.write(listed)
        except StoreError as error:
            log.warning("the store is not told yet which jobs have begun: %s", error)
            return []
        self._listed = listed
        return [self.suspects.popleft() for entry in suspects if self.suspects and self.suspects[0] is entry]

    async def close(self) -> None:
        """Forget the list, if nothing of it is held any more."""
        if not any(map(self._is_live, self._listed.values())):
            try:
                await self._begun.remove()
            except StoreError as error:
                log.debug("the list of begun jobs stays for a while: %s", error)

    def _unlisted(self) -> list[Run]:
        """The runs that slots are at, were claimed ahead, and are not listed."""
        return [run for run in self._slots.current() if is_ahead(run.job) and run.job_id not in self._listed]
